"""Answers that must match: a JSON schema, any JSON object, a regular expression, a grammar (by llguidance).

In comes a `Constraint` of a request; `Constraints.prepare` compiles it, beside the event loop and the engine, within
bounds, and gives it back `Prepared`. The sampler opens a `Matcher` of it for each answer: which tokens may come next,
and whether the answer is complete. Read `preparing` first, then `matcher`; `grammar` and `bounds` say what is taken.
"""

from headway_runtime.generation.constraints.matcher import Matcher
from headway_runtime.generation.constraints.preparing import Constraints, Prepared

__all__ = ["Constraints", "Matcher", "Prepared"]
