"""The text of one answer as its tokens come."""

from collections.abc import Sequence

from tokenizers import Tokenizer

from headway_runtime.generation.text.detokenizer import detokenizer
from headway_runtime.generation.text.stops import Stops


class TextStream:
    """What `push` and `flush` give, joined, is the tokenizer's `decode` of all tokens, up to the first stop string.

    `stop`: texts that end the answer and are no part of it. `skip_special`: special tokens have no text.
    """

    def __init__(self, tokenizer: Tokenizer, stop: Sequence[str] = (), skip_special: bool = True) -> None:
        self._joining = detokenizer(tokenizer).open(skip_special=skip_special)
        self._stops = Stops(stop) if stop else None
        self.taken = 0
        """Tokens of the latest push whose text counts: all, or those up to the one that completed a stop string."""
        self.stopped = False

    def push(self, tokens: Sequence[int]) -> tuple[str, bool]:
        """Text that is certain now, and whether a stop string was met: the tokens after it are of no account."""
        text = []
        self.taken = 0
        for token in tokens:
            if self.stopped:
                break
            text.append(self._passed(self._joining.push(token)))
            self.taken += 1
        return "".join(text), self.stopped

    def flush(self) -> str:
        """What was held back, when the answer ends otherwise. Nothing may be pushed afterwards."""
        if self.stopped:
            return ""
        text = self._passed(self._joining.rest())
        return text if self.stopped or self._stops is None else text + self._stops.rest()

    def _passed(self, text: str) -> str:
        if self._stops is None or not text:
            return text
        certain, self.stopped = self._stops.feed(text)
        return certain
