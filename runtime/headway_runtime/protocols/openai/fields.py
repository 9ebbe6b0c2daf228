"""Fields of a JSON object, each checked as it is read: what is wrong names the field, and what is allowed. Pure.

A field that is null counts as absent, as OpenAI's clients have it.
"""

import difflib
import math
from collections.abc import Collection, Mapping
from itertools import islice
from typing import Any

from headway_runtime.protocols.openai.errors import ParameterError

_SHOWN = 60  # characters of a wrong value


class Fields:
    """Of one object. `path` is where it is in the body; empty: the body itself."""

    def __init__(self, document: Mapping[str, Any], path: str = "") -> None:
        self._document = document
        self._path = path

    def at(self, name: str | int) -> str:
        """The path of a field."""
        return f"{self._path}.{name}" if self._path else str(name)

    def raw(self, name: str) -> Any:
        """As it is; None: absent."""
        return self._document.get(name)

    def names(self) -> list[str]:
        """Those that are given."""
        return [name for name, value in self._document.items() if value is not None]

    def error(self, name: str, allowed: str) -> ParameterError:
        """What a field is, and what is allowed."""
        return ParameterError(self.at(name), f"{shown(self.raw(name))} is not {allowed}")

    def integer(self, name: str, least: int, most: int) -> int | None:
        """Raises ParameterError."""
        value = self.raw(name)
        if value is None:
            return None
        if type(value) is not int or not least <= value <= most:
            raise self.error(name, f"an integer from {least} to {most}")
        return value

    def number(self, name: str, least: float, most: float, *, above: bool = False) -> float | None:
        """`above`: `least` itself is not allowed. Raises ParameterError."""
        value = self.raw(name)
        if value is None:
            return None
        if type(value) not in (int, float) or not math.isfinite(value):
            good = False
        else:
            good = (least < value if above else least <= value) and value <= most
        if not good:
            raise self.error(
                name, f"a number {'above' if above else 'from'} {least:g}{', up' if above else ''} to {most:g}"
            )
        return float(value)

    def boolean(self, name: str, default: bool = False) -> bool:
        """Raises ParameterError."""
        value = self.raw(name)
        if value is None:
            return default
        if type(value) is not bool:
            raise self.error(name, "true or false")
        return value

    def text(self, name: str) -> str | None:
        """Raises ParameterError."""
        value = self.raw(name)
        if value is not None and not isinstance(value, str):
            raise self.error(name, "a text")
        return value

    def object(self, name: str) -> "Fields | None":
        """Raises ParameterError."""
        value = self.raw(name)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise self.error(name, "an object")
        return Fields(value, self.at(name))

    def list(self, name: str) -> list[Any] | None:
        """Raises ParameterError."""
        value = self.raw(name)
        if value is not None and not isinstance(value, list):
            raise self.error(name, "a list")
        return value

    def as_dict(self) -> dict[str, Any]:
        """All of them, as they are."""
        return dict(self._document)

    def only(self, known: Collection[str], refused: Mapping[str, str]) -> None:
        """Raises ParameterError for a field that is not known, or cannot be honoured (`refused`: why)."""
        for name in self.names():
            if name in refused:
                raise ParameterError(self.at(name), refused[name])
            if name not in known:
                close = difflib.get_close_matches(name[:_SHOWN], known, 1)
                hint = f"; did you mean {close[0]!r}?" if close else "; docs/protocols.md has those that are"
                raise ParameterError(self.at(shown(name).strip("'")), f"is no field that is read here{hint}")


def shown(value: object) -> str:
    """A value in an error, cut; the rest of it, which may be megabytes, is not looked at."""
    text = repr(_beginning(value, 2)) if not isinstance(value, bool) else str(value).lower()
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def _beginning(value: object, levels: int) -> object:
    """As much of a value as is ever shown."""
    if isinstance(value, str):
        return value[: _SHOWN + 1]
    if isinstance(value, list | dict) and not levels:
        return type(value)() if not value else ...
    if isinstance(value, list):
        return [_beginning(each, levels - 1) for each in value[:_SHOWN]]
    if isinstance(value, dict):
        first = islice(value.items(), _SHOWN)
        return {str(key)[:_SHOWN]: _beginning(each, levels - 1) for key, each in first}
    return value
