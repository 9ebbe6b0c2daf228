"""Tokens to text, three ways: each gives, token by token, exactly what the tokenizer's `decode` gives for all of them.

`Joining` is one text. `push` gives what is certain after one more token, `rest` what is left when nothing more comes.
"""

import codecs
from collections.abc import Callable
from typing import Protocol

UNKNOWN = "\N{REPLACEMENT CHARACTER}"


class Joining(Protocol):
    """One text."""

    def push(self, token: int) -> str:
        """What is certain with this token."""

    def rest(self) -> str:
        """What is left."""


class ByteJoining:
    """Byte-level BPE: a token is some bytes of UTF-8, a character may need several tokens."""

    def __init__(self, bytes_of: Callable[[int], bytes]) -> None:
        self._bytes_of = bytes_of
        self._utf8 = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def push(self, token: int) -> str:
        """See Joining."""
        return self._utf8.decode(self._bytes_of(token))

    def rest(self) -> str:
        """See Joining."""
        return self._utf8.decode(b"", final=True)


class FallbackJoining:
    """SentencePiece: a token is a text, or one byte of a character that is not in the vocabulary.

    Bytes are held back until another token comes: a run of them is text only as a whole (one that is not UTF-8 becomes
    as many replacement characters as it has bytes). `strip`: so many spaces at the very beginning are left out.
    """

    def __init__(self, piece_of: Callable[[int], str | bytes], strip: int) -> None:
        self._piece_of = piece_of
        self._strip = strip
        self._run = bytearray()

    def push(self, token: int) -> str:
        """See Joining."""
        piece = self._piece_of(token)
        if isinstance(piece, bytes):
            self._run += piece
            return ""
        return self._stripped(self._ended() + piece) if self._run or self._strip else piece

    def rest(self) -> str:
        """See Joining."""
        return self._stripped(self._ended())

    def _ended(self) -> str:
        run, self._run = self._run, bytearray()
        try:
            return run.decode()
        except UnicodeDecodeError:
            return UNKNOWN * len(run)

    def _stripped(self, text: str) -> str:
        while self._strip and text:
            if not text.startswith(" "):
                self._strip = 0
                break
            text = text[1:]
            self._strip -= 1
        return text


class WindowJoining:
    """Any other tokenizer: the latest tokens are decoded again with each new one, and what is longer is new.

    Text Generation Inference's way. The tokens before are decoded too, because the first of a text may read otherwise;
    a text that ends with a replacement character may be half of one, but is not held for more than `LONGEST` tokens.
    """

    LONGEST = 32

    def __init__(self, decode: Callable[[list[int]], str]) -> None:
        self._decode = decode
        self._window: list[int] = []
        self._told = 0  # tokens of the window whose text was given

    def push(self, token: int) -> str:
        """See Joining."""
        self._window.append(token)
        return self._news(certain=len(self._window) - self._told >= self.LONGEST)

    def rest(self) -> str:
        """See Joining."""
        return self._news(certain=True)

    def _news(self, *, certain: bool) -> str:
        before = self._decode(self._window[: self._told])
        text = self._decode(self._window)
        if len(text) <= len(before) or (text.endswith(UNKNOWN) and not certain):
            return ""
        self._window = self._window[self._told :]
        self._told = len(self._window)
        return text[len(before) :]
