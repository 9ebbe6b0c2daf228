"""Reading JSON that may be anything: each helper returns what was asked for or raises SignatureError, saying where."""

from typing import Any

from headway_runtime.prepare.container import strict_json
from headway_runtime.prepare.errors import Refusal, SignatureError, printable


def invalid(message: str) -> SignatureError:
    """The refusal of a signature that is there."""
    return SignatureError("SignatureInvalid", message)


def parse(data: bytes, what: str) -> Any:
    """JSON without duplicate keys or NaN, of bounded depth."""
    try:
        return strict_json.parse(data)
    except Refusal as r:
        detail = f": {r.detail}" if r.detail else ""
        raise invalid(f"{what} cannot be read: {r.message}{detail}") from None


def fields(value: Any, what: str, *, required: set[str], optional: frozenset[str] | set[str] = frozenset()) -> None:
    """An object with exactly these fields."""
    if not isinstance(value, dict):
        raise invalid(f"{what} is not a JSON object")
    if missing := required - value.keys():
        raise invalid(f"{what} lacks {', '.join(sorted(missing))}")
    if unknown := value.keys() - required - optional:
        raise invalid(f"{what} has unknown fields: {', '.join(printable(name, 40) for name in sorted(unknown)[:4])}")


def text(value: Any, what: str, limit: int) -> str:
    """A string of 1 to ``limit`` characters, all of which can be printed."""
    if not isinstance(value, str) or not value or len(value) > limit or not value.isprintable():
        raise invalid(f"{what} is not a text of at most {limit} printable characters")
    return value


def items(value: Any, what: str, limit: int) -> list[Any]:
    """A list of at most ``limit`` items."""
    if not isinstance(value, list) or len(value) > limit:
        raise invalid(f"{what} is not a list of at most {limit} items")
    return value
