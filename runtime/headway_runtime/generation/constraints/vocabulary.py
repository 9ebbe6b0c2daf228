"""The vocabulary as llguidance wants it: what each token adds to a text, in bytes.

It could read the tokenizer's file itself. That takes three times as long (3.1 s of a core for Gemma's 262,144 tokens),
and the interpreter is held meanwhile.
"""

from collections.abc import Sequence

from llguidance import LLTokenizer
from tokenizers import Tokenizer

from headway_runtime.generation.text.detokenizer import Detokenizer, detokenizer

_MARK = "\x02"
"""Merged with nothing, and before a text so that the text is not its beginning, where many tokenizers add a space."""


def read(tokenizer: Tokenizer, *, vocabulary: int, end: Sequence[int]) -> LLTokenizer | None:
    """None when the text of a token depends on its neighbours. Takes 1.3 s for 262,144 tokens, 0.2 s for 49,152."""
    known = detokenizer(tokenizer)
    tokens = [known.bytes_of(token) for token in range(vocabulary)]
    if None in tokens:
        return None
    special = sorted(token for token in known.special if token < vocabulary)
    ends = [token for token in end if token < vocabulary] or [0]
    wrapped = _Wrapped(tokenizer, known, tokens, special, ends[0])
    wrapped.made = LLTokenizer(wrapped, n_vocab=vocabulary, eos_token=ends)
    wrapped.tokens = ()  # they were copied
    return wrapped.made


class _Wrapped:
    """Has what `LLTokenizer` looks for, and is called for the tokens of a text that a grammar demands."""

    is_tokenizer_wrapper = True
    bos_token_id = None

    def __init__(
        self,
        tokenizer: Tokenizer,
        known: Detokenizer,
        tokens: Sequence[bytes | None],
        special: Sequence[int],
        end: int,
    ) -> None:
        self._tokenizer, self._known = tokenizer, known
        self.tokens, self.special_token_ids, self.eos_token_id = tokens, special, end
        self.made: LLTokenizer | None = None

    def __call__(self, text: str) -> list[int]:
        for before in ("", _MARK):
            tokens = self._after(before, list(self._tokenizer.encode(before + text, add_special_tokens=False).ids))
            if self._bytes(tokens) == text.encode():
                return tokens
        return [] if self.made is None else list(self.made.greedy_tokenize(text))

    def _after(self, before: str, tokens: list[int]) -> list[int]:
        count = 0
        while before and count < len(tokens) and before.encode() not in self._bytes(tokens[:count]):
            count += 1
        return tokens[count:]

    def _bytes(self, tokens: Sequence[int]) -> bytes:
        return b"".join(self._known.bytes_of(token) or b"" for token in tokens)
