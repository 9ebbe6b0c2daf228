"""What the data of a request decide, and the gate therefore does not know."""

from collections.abc import Sequence
from typing import Any


class Unknown:
    """A number, a tensor, or one of several results."""

    def __repr__(self) -> str:
        return "unknown"


UNKNOWN = Unknown()


def any_unknown(values: Sequence[Any]) -> bool:
    """Whether one of the values, or of the lists among them, is unknown."""
    return any(v is UNKNOWN or (type(v) is list and any_unknown(v)) for v in values)


def unknown_like(out: Any) -> Any:
    """Unknown values in the form in which an instruction names its results."""
    return [unknown_like(o) for o in out] if isinstance(out, list) else UNKNOWN
