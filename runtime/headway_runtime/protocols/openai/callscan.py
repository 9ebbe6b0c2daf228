"""One call of a tool as JSON, read character by character: its arguments leave while they are still being made. Pure.

{"name": "weather", "arguments": {"city": "Oslo"}}       or `parameters`, in any order, with anything else beside
"""

import json
from collections.abc import Callable
from enum import Enum, auto
from typing import NamedTuple

_ARGUMENTS = ("arguments", "parameters")
_SPACE = " \t\r\n"


class Delta(NamedTuple):
    """What a piece adds to a message: text; or to the call number `call`, which begins where it has a `name`."""

    content: str = ""
    call: int = 0
    name: str | None = None
    arguments: str = ""


class _At(Enum):
    """Where in the object it is, between the strings."""

    KEY = auto()
    COLON = auto()
    VALUE = auto()  # before its first character
    KEPT = auto()  # in a value that is of interest when it is whole
    LEAVING = auto()  # in the arguments, which leave as they come


class CallScanner:
    """Of one object, which begins with `{`. `is_tool`: whether a name is one of a tool; an object without such a name
    is no call, and comes back as text.
    """

    def __init__(self, number: int, is_tool: Callable[[str], bool]) -> None:
        self.begun = False  # its name has left
        self._number, self._is_tool = number, is_tool
        self._raw = ""
        self._out: list[Delta] = []
        self._at = _At.KEY
        self._depth = 0
        self._in_string = self._escaped = False
        self._over = False
        self._key = self._value = self._leaving = ""
        self._spaces = ""  # in the arguments, which may be behind them
        self._name: str | None = None
        self._early: str | None = None  # arguments that came before the name

    def push(self, text: str) -> tuple[list[Delta], str | None]:
        """What is certain now, and what follows the object (None: it goes on)."""
        rest = None
        for at, character in enumerate(text):
            self._step(character)
            if self._over:
                text, rest = text[: at + 1], text[at + 1 :]
                break
        self._raw += text
        if rest is not None and not self.begun:
            if self._name is None:
                return [Delta(content=self._raw)], rest
            self._begin()
            self._leaving = self._early or "{}"
        if self._leaving:
            self._out.append(Delta(call=self._number, arguments=self._leaving))
        out, self._out, self._leaving = self._out, [], ""
        return out, rest

    def finish(self) -> list[Delta]:
        """The text ends within it: what was taken for a call and has not begun is text."""
        return [] if self.begun or not self._raw else [Delta(content=self._raw)]

    def _step(self, character: str) -> None:
        if self._in_string:
            self._string(character)
        elif character == '"':
            self._in_string = True
            self._grow(character)
        elif character in "{[":
            self._depth += 1
            if self._depth > 1:
                self._grow(character)
        elif character in "}]":
            self._depth -= 1
            if self._depth:
                self._grow(character)
            else:
                self._value_ends()
                self._over = True
        elif self._depth == 1 and character == ",":
            self._value_ends()
            self._at, self._key = _At.KEY, ""
        elif self._depth == 1 and character == ":" and self._at is _At.COLON:
            self._at = _At.VALUE
        else:
            self._grow(character)

    def _string(self, character: str) -> None:
        self._grow(character)
        if self._escaped:
            self._escaped = False
        elif character == "\\":
            self._escaped = True
        elif character == '"':
            self._in_string = False
            if self._at is _At.KEY:
                self._at = _At.COLON

    def _grow(self, character: str) -> None:
        """One more character of a key or a value, or a space beside them."""
        space = character in _SPACE and not self._in_string
        match self._at:
            case _At.KEY if not space:
                self._key += character
            case _At.VALUE if not space:
                leaves = self._name is not None and self._is_arguments() and character != '"' and not self.begun
                self._at, self._value = (_At.LEAVING, "") if leaves else (_At.KEPT, character)
                if leaves:
                    self._begin()
                    self._leaving += character
            case _At.KEPT:
                self._value += character
            case _At.LEAVING if space and self._depth == 1:
                self._spaces += character
            case _At.LEAVING:
                self._leaving += self._spaces + character
                self._spaces = ""
            case _:
                pass

    def _value_ends(self) -> None:
        if self._at is not _At.KEPT:
            return
        value = self._value.rstrip(_SPACE)
        if self._key == '"name"' and self._name is None:
            name = _text(value)
            if name is not None and self._is_tool(name):
                self._name = name
            else:
                self._over = True
        elif self._is_arguments():
            self._early = _text(value) or value

    def _is_arguments(self) -> bool:
        return self._key[1:-1] in _ARGUMENTS

    def _begin(self) -> None:
        self.begun = True
        self._out.append(Delta(call=self._number, name=self._name))


def _text(value: str) -> str | None:
    """The text that a JSON string is."""
    try:
        found = json.loads(value)
    except ValueError:
        return None
    return found if isinstance(found, str) else None
