"""Large JSON in pieces. One call of the parser holds Python's lock, and with it the event loop, as long as it takes:
here the long arrays of numbers are lifted out of a document and parsed bit by bit, so that others come in between.

An array is lifted when it is flat, or nested in the shape that its tensor has; of everything else the parser gets
the text as it is, and says what is wrong with it.
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import orjson

LONG = 2**16  # bytes of an array
PIECE = 2**17  # bytes that are parsed at once

_KEY = b'"data"'
_SPACE = b" \t\r\n"


@dataclass(frozen=True, slots=True)
class Numbers:
    """A flat array of numbers as text: `body[start:stop]` is what stands between its brackets."""

    body: bytes
    start: int
    stop: int

    def parts(self) -> Iterator[list[object]]:
        """The values, some at a time. Raises orjson.JSONDecodeError."""
        at = self.start
        while at < self.stop:
            end = self.body.find(b",", at + PIECE, self.stop)
            end = self.stop if end < 0 else end
            yield orjson.loads(b"[%b]" % self.body[at:end])
            at = end + 1
        if self.body[max(self.start, self.stop - PIECE) : self.stop].rstrip(_SPACE).endswith(b","):
            orjson.loads(b"[1,]")  # a comma too many: the parser says so


def lift(text: bytes) -> tuple[bytes, Mapping[str, Numbers]]:
    """The document with every long flat array under a key `data` replaced by a name, and the arrays by those names."""
    lifted: dict[str, Numbers] = {}
    secret = os.urandom(8).hex()  # so that no document has such a name by itself
    kept: list[bytes] = []
    done = 0
    at = text.find(_KEY)
    while at >= 0:
        start = _array(text, at)
        stop = -1 if start is None else text.find(b"]", start)
        if start is not None and stop - start > LONG and _is_flat(text, start, stop):
            name = f"{secret}-{len(lifted)}"
            lifted[name] = Numbers(text, start, stop)
            kept += [text[done : start - 1], b'"%b"' % name.encode()]
            done = stop + 1
        at = text.find(_KEY, max(at + len(_KEY), stop))
    return b"".join([*kept, text[done:]]), lifted


def _array(text: bytes, at: int) -> int | None:
    """Where the content of the array under a key begins; None when it is not a key, or not an array."""
    if text[at - 1 : at] == b"\\":  # in a string
        return None
    at = _skip(text, at + len(_KEY))
    if text[at : at + 1] != b":":
        return None
    at = _skip(text, at + 1)
    return at + 1 if text[at : at + 1] == b"[" else None


def _skip(text: bytes, at: int) -> int:
    while text[at : at + 1] and text[at] in _SPACE:
        at += 1
    return at


def _is_flat(text: bytes, start: int, stop: int) -> bool:
    return all(text.find(mark, start, stop) < 0 for mark in (b"[", b'"', b"{"))
