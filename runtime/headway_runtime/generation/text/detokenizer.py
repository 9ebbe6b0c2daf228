"""Which way a tokenizer's tokens become text; what a token is, looked up once."""

from collections.abc import Callable
from typing import TypeVar
from weakref import WeakKeyDictionary

from tokenizers import Tokenizer

from headway_runtime.generation.text.decoders import byte_of, bytes_of, fallback, is_byte_level
from headway_runtime.generation.text.joining import ByteJoining, FallbackJoining, Joining, WindowJoining

_Piece = TypeVar("_Piece", bytes, str | bytes)


class Detokenizer:
    """Of one tokenizer; its tokens are remembered for all texts. For any thread: what two look up at once is equal.
    `special`: tokens without a text.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self.special = {token for token, added in tokenizer.get_added_tokens_decoder().items() if added.special}
        self._byte_level = is_byte_level(tokenizer)
        self._fallback = fallback(tokenizer)
        self._known: dict[int, str | bytes] = {}

    def open(self, *, skip_special: bool) -> Joining:
        """A new text."""
        skipped = self.special if skip_special else frozenset[int]()
        if self._byte_level:
            return ByteJoining(_without(skipped, self.alone))
        if self._fallback is not None:
            return FallbackJoining(_without(skipped, self._piece), self._fallback.strip)
        return WindowJoining(lambda tokens: str(self._tokenizer.decode(tokens, skip_special_tokens=skip_special)))

    def alone(self, token: int) -> bytes:
        """What a token is by itself: not always a whole character."""
        piece = self._piece(token)
        return piece if isinstance(piece, bytes) else piece.encode()

    def bytes_of(self, token: int) -> bytes | None:
        """What a token adds to a text, whatever is beside it; None where that cannot be said. It is not remembered: who
        asks asks of every token, once.
        """
        if not self._byte_level and self._fallback is None:
            return None if self._tokenizer.id_to_token(token) is not None else b""
        piece = self._read(token)
        return piece if isinstance(piece, bytes) else piece.encode()

    def _piece(self, token: int) -> str | bytes:
        found = self._known.get(token)
        if found is None:
            found = self._known[token] = self._read(token)
        return found

    def _read(self, token: int) -> str | bytes:
        text = self._tokenizer.id_to_token(token)
        if text is None:
            return b""
        if self._byte_level:
            return bytes_of(text)
        if self._fallback is None:
            return str(self._tokenizer.decode([token], skip_special_tokens=False))
        for pattern, content in self._fallback.replaced:
            text = text.replace(pattern, content)
        return byte_of(text) or text


def _without(skipped: "set[int] | frozenset[int]", read: Callable[[int], _Piece]) -> Callable[[int], _Piece]:
    """A token without a text is no bytes: SentencePiece's decoder does not see it, and it ends no run of bytes."""
    return lambda token: b"" if token in skipped else read(token)


_MADE: WeakKeyDictionary[Tokenizer, Detokenizer] = WeakKeyDictionary()


def detokenizer(tokenizer: Tokenizer) -> Detokenizer:
    """The same one for the same tokenizer."""
    found = _MADE.get(tokenizer)
    if found is None:
        found = _MADE[tokenizer] = Detokenizer(tokenizer)
    return found
