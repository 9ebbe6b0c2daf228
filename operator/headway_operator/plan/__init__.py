"""Deciding: from one `Observed` and the time to one `Plan`. Total functions on frozen values; no I/O, no clock.

What enters is what is, never what changed: a pass that was lost, repeated or late decides the same. The story:

    facts      what the pass knows: ready pods, acknowledged weights, the spec with its defaults
    identity   which revisions the spec asks for: found among the records, or recorded now
    roles      who is stable, who comes in, who is the canary, who is kept, who leaves, what was given up
    weights    who may answer how much: capacity before weight, and nothing on a guess
    replicas   how many pods each has: no scale-down before its weight is verified to be gone
    ladder     the first rung that matches names the state for the user

`failures` turns what pods said into typed refusals, for `ladder` and for `status`. `intent` is the plan as the router
needs it. Read `decide` first.
"""

from headway_operator.plan.decide import plan
from headway_operator.plan.intent import route_intent

__all__ = ["plan", "route_intent"]
