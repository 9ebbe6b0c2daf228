"""Archives that must be refused, each by the rule it breaks, by subject: ``layout`` of the zip file, other ``records``,
``text`` (JSON and schema), ``symbols`` (sizes and guards), ``trees`` (names and nesting), ``weights``, ``nodes`` (the
graph). ``registry`` says how one is made.
"""

from tests.hostile.samples import layout, nodes, records, symbols, text, trees, weights
from tests.hostile.samples.registry import SAMPLES

__all__ = ["SAMPLES", "layout", "nodes", "records", "symbols", "text", "trees", "weights"]
