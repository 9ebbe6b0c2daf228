"""Large JSON in pieces. One call of the parser holds Python's lock, and with it the event loop, as long as it takes:
here the long arrays of numbers are lifted out of a document and parsed bit by bit, so that others come in between.

An array is lifted when it holds numbers (and the words for what is not finite), flat or nested in a regular shape. Of
everything else the parser gets the text as it is, and says what is wrong with it, unless there is so much of it that
others would notice.
"""

import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import orjson

from headway_runtime.errors import InvalidRequestError

LONG = 2**16  # bytes of an array
PIECE = 2**17  # bytes that are parsed at once

MANY = 2**20
"""Commas in what is parsed at once: so many values take some tens of milliseconds."""

_KEY = b'"data"'
_SPACE = b" \t\r\n"
_WORDS = (b'"NaN"', b'"Infinity"', b'"-Infinity"')
_FLAT = bytes.maketrans(b"[]", b"  ")
_NO_BRACKETS = bytes(set(range(256)) - set(b"[],"))
_ASTRAY = re.compile(rb"\][^\],]|[^\[,]\[")  # a value beside a bracket that no comma parts from it
MOST_DEEP = 16  # more than any program's tensors have

_TURN = 0.002  # seconds that others wait at most
_REST = 5e-5  # seconds

_Piece = TypeVar("_Piece")


def fair(pieces: Iterable[_Piece]) -> Iterator[_Piece]:
    """The pieces, with a rest every 2 ms.

    Python's lock alone does not let others in: who waits for it asks for it after 5 ms in which nobody gave it up, and
    NumPy gives it up, and takes it again before anybody wakes, at every piece.
    """
    begun = time.monotonic()
    for piece in pieces:
        yield piece
        if time.monotonic() - begun > _TURN:
            time.sleep(_REST)
            begun = time.monotonic()


@dataclass(frozen=True, slots=True)
class Numbers:
    """An array of numbers as text: `body[start:stop]` is what stands between its outermost brackets, `depth` deep."""

    body: bytes
    start: int
    stop: int
    depth: int = 1

    def parts(self) -> Iterator[list[object]]:
        """The values, some at a time. Raises orjson.JSONDecodeError."""
        at = self.start
        while at < self.stop:
            end = self.body.find(b",", at + PIECE, self.stop)
            end = self.stop if end < 0 else end
            piece = self.body[at:end]
            yield orjson.loads(b"[%b]" % (piece if self.depth == 1 else piece.translate(_FLAT)))
            at = end + 1
        if self.body[max(self.start, self.stop - PIECE) : self.stop].rstrip(_SPACE).endswith(b","):
            orjson.loads(b"[1,]")  # a comma too many: the parser says so

    def fits(self, shape: Sequence[int]) -> bool:
        """Whether its brackets are those of this shape; a flat one has none."""
        if self.depth == 1:
            return True
        if len(shape) != self.depth:
            return False
        length = 0
        for size in reversed(shape):
            length = size * (length + 2) + max(size - 1, 0)
        if length > 3 * (self.stop - self.start):  # more brackets and commas than there can be
            return False
        wanted = b"," * max(shape[-1] - 1, 0)
        for size in reversed(shape[:-1]):
            wanted = (b"[%b]," % wanted * size)[:-1]
        at = 0
        for piece in fair(self._pieces()):
            if _ASTRAY.search(piece.translate(None, _SPACE)):
                return False
            found = piece.translate(None, _NO_BRACKETS)
            if wanted[at : at + len(found)] != found:
                return False
            at += len(found)
        return at == len(wanted)

    def _pieces(self) -> Iterator[bytes]:
        """It, cut behind commas."""
        at = self.start
        while at < self.stop:
            end = self.body.find(b",", at + PIECE, self.stop) + 1 or self.stop
            yield self.body[at:end]
            at = end


def json_object(text: bytes | bytearray | memoryview | str, wanted: str, *, what: str = "the body") -> dict[str, Any]:
    """What is one JSON object. Raises InvalidRequestError; `wanted` says there what kind of one it must be."""
    try:
        document = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise InvalidRequestError(f"{what} is not JSON: {error}") from None
    if not isinstance(document, dict):
        raise InvalidRequestError(f"{what} must be a JSON object{wanted}")
    return document


def check_count(text: bytes | bytearray) -> None:
    """Raises InvalidRequestError when parsing what was not lifted would keep others waiting."""
    found = 0
    for at in fair(range(0, len(text), 8 * PIECE)):
        found += text.count(b",", at, at + 8 * PIECE)
        if found > MANY:
            raise InvalidRequestError(
                f"more than {MANY} values outside regular arrays of numbers under 'data'; send them in binary"
            )


def lift(text: bytes) -> tuple[bytes, Mapping[str, Numbers]]:
    """The document with every long array of numbers under a key `data` replaced by a name, and the arrays by name."""
    lifted: dict[str, Numbers] = {}
    secret = os.urandom(8).hex()  # so that no document has such a name by itself
    kept: list[bytes] = []
    done = 0
    at = text.find(_KEY)
    while at >= 0:
        numbers = _array(text, at)
        at += len(_KEY)
        if numbers is not None and numbers.stop - numbers.start > LONG:
            name = f"{secret}-{len(lifted)}"
            lifted[name] = numbers
            kept += [text[done : numbers.start - 1], b'"%b"' % name.encode()]
            at = done = numbers.stop + 1
        at = text.find(_KEY, at)
    return b"".join([*kept, text[done:]]), lifted


def _array(text: bytes, at: int) -> Numbers | None:
    """The array of numbers under a key; None when it is not a key, or something else."""
    if text[at - 1 : at] == b"\\":  # in a string
        return None
    at = _skip(text, at + len(_KEY))
    if text[at : at + 1] != b":":
        return None
    at = begin = _skip(text, at + 1)
    depth = 0
    while text[at : at + 1] == b"[" and depth <= MOST_DEEP:
        depth, at = depth + 1, _skip(text, at + 1)
    if not 0 < depth <= MOST_DEEP or text[at : at + 1] == b"]":  # nothing in it
        return None
    stop = text.find(b"]", at) if depth == 1 else _closing(text, at, depth)
    if stop < 0 or not _is_numbers(text, begin + 1, stop, nested=depth > 1):
        return None
    return Numbers(text, begin + 1, stop, depth)


def _closing(text: bytes, at: int, depth: int) -> int:
    """Where the bracket is that closes the outermost of `depth` open ones; -1: nowhere."""
    while at < len(text):
        piece = np.frombuffer(text, np.uint8, min(8 * PIECE, len(text) - at), at)
        places = np.flatnonzero((piece == ord("[")) | (piece == ord("]")))
        depths = depth + np.cumsum(np.where(piece[places] == ord("["), 1, -1))
        closed = np.flatnonzero(depths == 0)
        if closed.size:
            return at + int(places[closed[0]])
        depth = int(depths[-1]) if depths.size else depth
        at += len(piece)
    return -1


def _skip(text: bytes, at: int) -> int:
    while text[at : at + 1] and text[at] in _SPACE:
        at += 1
    return at


def _is_numbers(text: bytes, start: int, stop: int, *, nested: bool) -> bool:
    if text.find(b"{", start, stop) >= 0 or (not nested and text.find(b"[", start, stop) >= 0):
        return False
    quotes = words = 0
    if text.find(b'"', start, stop) >= 0:
        for at in fair(range(start, stop, 8 * PIECE)):
            quotes += text.count(b'"', at, min(at + 8 * PIECE, stop))
            words += sum(text.count(word, at, min(at + 8 * PIECE + len(word) - 1, stop)) for word in _WORDS)
    return quotes == 2 * words
