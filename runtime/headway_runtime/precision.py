"""`spec.precision`: what answers must still be when large weights are kept in fewer bits than the artifact has, and the
words of a refusal. Pure.

`BFloat16` rounds weights and what they are multiplied with by one part in 512 at most, `Int8` by one in 254 of the
largest of each group. Rounding errors have both signs, so that a sum of many is off by less of itself; what is left
grows from layer to layer.
"""

from headway_api.types import Precision

from headway_runtime.errors import FatalError

FIELD = "spec.precision"

MOST_ERROR = {Precision.BFLOAT16: 0.02, Precision.INT8: 0.1}
"""Of an output of real numbers: the size of the error by the size of the answer (root mean squares)."""

LEAST_EQUAL = {Precision.BFLOAT16: 0.95, Precision.INT8: 0.90}
"""Share of an output of whole numbers, or of golden tokens, that must be the same."""


def cannot(precision: Precision, why: str) -> str:
    """Why a program cannot be kept so, whatever it answers. `why` says what to do."""
    return f"{FIELD}: {precision.value}, and {why}"


def not_borne(words: str, what: str) -> FatalError:
    """The refusal of what answers otherwise than it may. `what`: program or decoder."""
    return refused(f"{FIELD}: {words}; this {what} does not bear it: write a higher precision")


def refused(message: str) -> FatalError:
    """`PrecisionRefused`."""
    return FatalError("PrecisionRefused", message, condition="Accepted", field=FIELD)
