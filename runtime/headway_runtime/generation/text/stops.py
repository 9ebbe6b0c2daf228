"""Where a stop string begins, in a text that comes in pieces.

Each string is followed by the automaton of Knuth, Morris and Pratt: its state is how much of the string the text ends
with, which is how much must be held back. So the work is the same for each character, whatever the strings are, and the
end is the same however the text was cut into tokens: the string that is complete first ends it, and of several the
longest.
"""

from collections.abc import Sequence


class Stops:
    """One text. Nothing may be fed after a stop string was met."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._strings = tuple(dict.fromkeys(stop for stop in stops if stop))
        self._fallbacks = tuple(_fallbacks(stop) for stop in self._strings)
        self._matched = [0] * len(self._strings)
        self._first = {stop[0] for stop in self._strings}
        self._held = ""

    def feed(self, text: str) -> tuple[str, bool]:
        """What is certain now, and whether a stop string was met: the text before it was the last then."""
        if not self._held and not any(first in text for first in self._first):
            return text, False
        held = self._held + text
        for at, letter in enumerate(text, len(self._held) + 1):
            if found := self._step(letter):
                return held[: at - found], True
        certain = len(held) - max(self._matched)
        self._held = held[certain:]
        return held[:certain], False

    def rest(self) -> str:
        """What was held back, when nothing more comes."""
        held, self._held = self._held, ""
        return held

    def _step(self, letter: str) -> int:
        """Characters of the longest stop string that is complete with this letter; 0: of none."""
        found = 0
        for place, (string, fallbacks) in enumerate(zip(self._strings, self._fallbacks, strict=True)):
            matched = self._matched[place]
            while matched and string[matched] != letter:
                matched = fallbacks[matched - 1]
            matched += string[matched] == letter
            self._matched[place] = matched
            if matched == len(string):
                found = max(found, matched)
        return found


def _fallbacks(string: str) -> list[int]:
    """For each beginning of the string, how long the longest shorter beginning is that it ends with."""
    found = [0] * len(string)
    matched = 0
    for place in range(1, len(string)):
        while matched and string[matched] != string[place]:
            matched = found[matched - 1]
        matched += string[matched] == string[place]
        found[place] = matched
    return found
