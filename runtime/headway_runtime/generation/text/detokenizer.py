"""Which way a tokenizer's tokens become text; what a token is, looked up once."""

from collections.abc import Callable
from typing import TypeVar
from weakref import WeakKeyDictionary

from tokenizers import Tokenizer

from headway_runtime.generation.text.decoders import byte_of, bytes_of, fallback, is_byte_level
from headway_runtime.generation.text.joining import ByteJoining, FallbackJoining, Joining, WindowJoining

_T = TypeVar("_T", bytes, str | bytes)


class Detokenizer:
    """Of one tokenizer; its tokens are remembered for all texts. For one thread. `special`: tokens without a text."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self.special = {token for token, added in tokenizer.get_added_tokens_decoder().items() if added.special}
        self._byte_level = is_byte_level(tokenizer)
        self._fallback = fallback(tokenizer)
        self._bytes: dict[int, bytes] = {}
        self._pieces: dict[int, str | bytes] = {}

    def open(self, *, skip_special: bool) -> Joining:
        """A new text."""
        if self._byte_level:
            return ByteJoining(self._looked_up(self._bytes, bytes_of, b"", skip_special=skip_special))
        if self._fallback is not None:
            # a token without a text is not seen by the decoder, and ends no run of bytes
            pieces = self._looked_up(self._pieces, self._piece, b"", skip_special=skip_special)
            return FallbackJoining(pieces, self._fallback.strip)
        return WindowJoining(lambda tokens: str(self._tokenizer.decode(tokens, skip_special_tokens=skip_special)))

    def bytes_of(self, token: int) -> bytes | None:
        """What a token adds to a text, whatever is beside it; None where that cannot be said."""
        text = self._tokenizer.id_to_token(token)
        if text is None:
            return b""
        if self._byte_level:
            return bytes_of(text)
        if self._fallback is None:
            return None
        piece = self._piece(text)
        return piece if isinstance(piece, bytes) else piece.encode()

    def _looked_up(
        self, known: dict[int, _T], read: Callable[[str], _T], nothing: _T, *, skip_special: bool
    ) -> Callable[[int], _T]:
        def look_up(token: int) -> _T:
            if skip_special and token in self.special:
                return nothing
            found = known.get(token)
            if found is None:
                text = self._tokenizer.id_to_token(token)
                found = known[token] = nothing if text is None else read(text)
            return found

        return look_up

    def _piece(self, text: str) -> str | bytes:
        for pattern, content in self._fallback.replaced if self._fallback else ():
            text = text.replace(pattern, content)
        return byte_of(text) or text


_MADE: WeakKeyDictionary[Tokenizer, Detokenizer] = WeakKeyDictionary()


def detokenizer(tokenizer: Tokenizer) -> Detokenizer:
    """The same one for the same tokenizer."""
    found = _MADE.get(tokenizer)
    if found is None:
        found = _MADE[tokenizer] = Detokenizer(tokenizer)
    return found
