"""Calls of tools in an answer's text, piece by piece, in each form that models have. Pure.

What may still become a mark (`<tool_call>`) or a call is kept until it is certain.
"""

from collections.abc import Callable
from typing import Protocol

from headway_runtime.protocols.openai.callscan import CallScanner, Delta
from headway_runtime.protocols.openai.question import CallForm

_OPEN, _CLOSE = "<tool_call>", "</tool_call>"


class Calls(Protocol):
    """Of one answer."""

    called: int
    """Calls that have begun."""

    def push(self, text: str) -> list[Delta]:
        """What is certain now."""

    def finish(self) -> list[Delta]:
        """The text has ended."""


def calls_of(form: CallForm, tools: frozenset[str], named: str | None) -> Calls | None:
    """None: the text is text."""
    match form:
        case CallForm.NONE:
            return None
        case CallForm.HERMES:
            return Hermes()
        case CallForm.LLAMA:
            return Objects(between=" \t\r\n;", is_tool=tools.__contains__, only=False)
        case CallForm.LIST:
            return Objects(between=" \t\r\n,[]", is_tool=bool, only=True)
        case CallForm.ARGUMENTS:
            assert named is not None
            return Arguments(named)


class Arguments:
    """The whole text is the arguments of the tool that the request names."""

    def __init__(self, name: str) -> None:
        self.called = 0
        self._name = name

    def push(self, text: str) -> list[Delta]:
        """All of it."""
        begins = [] if self.called else [Delta(name=self._name)]
        self.called = 1
        return [*begins, Delta(arguments=text)] if text else begins

    def finish(self) -> list[Delta]:
        """Nothing was kept."""
        return []


class Objects:
    """Calls with nothing but `between` beside them; where something else begins, all that follows is text, which with
    `only` there is none of.
    """

    def __init__(self, *, between: str, is_tool: Callable[[str], bool], only: bool) -> None:
        self.called = 0
        self._between, self._is_tool, self._only = between, is_tool, only
        self._scanner: CallScanner | None = None
        self._text = False

    def push(self, text: str) -> list[Delta]:
        """What is certain now."""
        out: list[Delta] = []
        rest: str | None = text
        while rest and not self._text:
            if self._scanner is None:
                rest = rest.lstrip(self._between)
                if not rest:
                    return out
                if rest[0] != "{":
                    self._text = True
                    break
                self._scanner = CallScanner(self.called, self._is_tool)
            deltas, rest = self._scanner.push(rest)
            out += deltas
            if rest is not None:
                self._text = not self._scanner.begun
                self.called += self._scanner.begun
                self._scanner = None
        if rest and self._text and not self._only:
            out.append(Delta(content=rest))
        return out

    def finish(self) -> list[Delta]:
        """The text has ended."""
        if self._scanner is None:
            return []
        self.called += self._scanner.begun
        return self._scanner.finish()


class Hermes:
    """Text, with calls between marks."""

    def __init__(self) -> None:
        self.called = 0
        self._kept = ""  # what may be the begin of a mark, or spaces around calls
        self._scanner: CallScanner | None = None
        self._inside = False  # between the marks

    def push(self, text: str) -> list[Delta]:
        """What is certain now."""
        out: list[Delta] = []
        self._kept += text
        while self._advance(out):
            pass
        return out

    def finish(self) -> list[Delta]:
        """The text has ended."""
        if self._scanner is not None:
            self.called += self._scanner.begun
            return self._scanner.finish()
        out: list[Delta] = []
        if not self._inside:
            self._say(self._kept, out)
        return out

    def _advance(self, out: list[Delta]) -> bool:
        """Go on as far as one kind of text goes; False: nothing more is certain."""
        if self._scanner is not None:
            deltas, rest = self._scanner.push(self._kept)
            out += deltas
            self._kept = rest or ""
            if rest is None:
                return False
            self.called += self._scanner.begun
            self._scanner = None
            return True
        if self._inside:
            return self._between(out)
        at = self._kept.find(_OPEN)
        if at >= 0:
            self._say(self._kept[:at], out)
            self._kept, self._inside = self._kept[at + len(_OPEN) :], True
            return True
        certain = len(self._kept) - _overlap(self._kept, _OPEN)
        if self.called and not self._kept[:certain].strip():
            return False
        self._say(self._kept[:certain], out)
        self._kept = self._kept[certain:]
        return False

    def _between(self, out: list[Delta]) -> bool:
        """Between the marks and outside of a call."""
        kept = self._kept.lstrip()
        if kept.startswith(_CLOSE):
            self._kept, self._inside = kept[len(_CLOSE) :], False
            return True
        if kept.startswith("{"):
            self._kept, self._scanner = kept, CallScanner(self.called, bool)
            return True
        if not kept or _CLOSE.startswith(kept):
            return False
        self._inside = False  # a form that is not known here
        out.append(Delta(content=_OPEN + self._kept))
        self._kept = ""
        return True

    def _say(self, text: str, out: list[Delta]) -> None:
        if text and not (self.called and not text.strip()):
            out.append(Delta(content=text))


def _overlap(text: str, mark: str) -> int:
    """Characters at the end of a text that may be the begin of a mark."""
    return next((size for size in range(min(len(mark) - 1, len(text)), 0, -1) if text.endswith(mark[:size])), 0)
