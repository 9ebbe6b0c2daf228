"""How single values of a record are read: each of one type, bounded. Every one raises Refusal ``record.form``."""

import math
from collections.abc import Callable, Collection, Mapping
from typing import Any

from headway_runtime.prepare.errors import Refusal
from headway_runtime.prepare.translate import names

MAX_TEXT = 1024
MAX_FACTS = 256

Number = int | float | bool
Reader = Callable[[Any], Any]


def typed(value: Any, type_: type) -> Any:
    """A value of exactly this type."""
    if type(value) is not type_:
        raise Refusal("record.form", f"{type_.__name__} is needed, not {type(value).__name__}")
    return value


def listed(value: Any, limit: int) -> list[Any]:
    """A list of at most so many items."""
    items: list[Any] = typed(value, list)
    if len(items) > limit:
        raise Refusal("record.form", f"{len(items)} items, at most {limit}")
    return items


def text(value: Any) -> str:
    """Printable, at most ``MAX_TEXT`` characters, or empty."""
    if type(value) is not str or len(value) > MAX_TEXT or not (value == "" or value.isprintable()):
        raise Refusal("record.form", f"printable text of at most {MAX_TEXT} characters is needed")
    return value


def name(value: Any) -> str:
    """What an input, an output or a program is called. Also raises Refusal ``name.printable``."""
    return names.check_printable(typed(value, str))


def number(value: Any) -> Number:
    """Finite, as all numbers of the file."""
    if type(value) not in (int, float, bool):
        raise Refusal("record.form", f"a number is needed, not {type(value).__name__}")
    return value  # type: ignore[no-any-return]  # its type was checked in the line above


def real(value: Any, low: float, high: float) -> float:
    """A number within bounds, as a float."""
    found = number(value)
    if type(found) is bool or not (low <= found <= high and math.isfinite(found)):
        raise Refusal("record.form", f"a number from {low:g} to {high:g} is needed, not {found}")
    return float(found)


def whole(value: Any, low: int, high: int) -> int:
    """A whole number within bounds."""
    found: int = typed(value, int)
    if not low <= found <= high:
        raise Refusal("record.form", f"a whole number from {low} to {high} is needed, not {found}")
    return found


def one_of(value: Any, allowed: Collection[str]) -> str:
    """One of a few words."""
    if type(value) is not str or value not in allowed:
        raise Refusal("record.form", f"one of {', '.join(allowed)} is needed")
    return value


def mapped(value: Any, read: Reader) -> dict[str, Any]:
    """A map from names to values of one kind."""
    if len(typed(value, dict)) > MAX_FACTS:
        raise Refusal("record.form", f"{len(value)} items, at most {MAX_FACTS}")
    return {names.check_printable(key): read(item) for key, item in value.items()}


def fields(value: Any, readers: Mapping[str, Reader], *, required: Collection[str] = ()) -> dict[str, Any]:
    """The known fields of an object, each read; the refusal of one has its JSON path."""
    if unknown := typed(value, dict).keys() - readers.keys():
        raise Refusal("record.form", f"unknown fields {sorted(unknown)[:3]}; known are {sorted(readers)}")
    if missing := set(required) - value.keys():
        raise Refusal("record.form", f"{min(missing)} is missing")
    found: dict[str, Any] = {}
    for key, item in value.items():
        try:
            found[key] = readers[key](item)
        except Refusal as refusal:
            raise refusal.inside(key) from None
    return found
