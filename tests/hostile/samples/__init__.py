"""Archives that must be refused, each by the rule it breaks, by subject: ``files`` that are no archive, the ``layout``
of the zip file, other ``records``, ``text`` (JSON and schema), ``symbols`` (sizes and guards), ``trees`` (names and
nesting), ``weights``, of the graph ``nodes`` and ``values``, and of text generation ``decoder``. ``registry`` says how
one is made.
"""

from tests.hostile.samples import decoder, files, layout, nodes, records, symbols, text, trees, values, weights
from tests.hostile.samples.registry import SAMPLES

__all__ = ["SAMPLES", "decoder", "files", "layout", "nodes", "records", "symbols", "text", "trees", "values", "weights"]
