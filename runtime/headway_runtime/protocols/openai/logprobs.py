"""Logarithms of probabilities in the two shapes that OpenAI has for them, and what a token is as text. Pure."""

from collections.abc import Iterable
from typing import Any

from tokenizers import Tokenizer

from headway_runtime.generation.text.detokenizer import detokenizer
from headway_runtime.generation.values import TokenLogprob

_LEAST = -9999.0  # for a probability of 0, which JSON has no logarithm of; OpenAI has the same


class TokenTexts:
    """What each token of a tokenizer is by itself."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.bytes_of = detokenizer(tokenizer).alone

    def text_of(self, token: int) -> str:
        """With U+FFFD in place of a part of a character."""
        return self.bytes_of(token).decode(errors="replace")

    def name_of(self, token: int) -> str:
        """As OpenAI names it where only a text can stand: a part of a character is `bytes:\\xe2\\x80`."""
        data = self.bytes_of(token)
        try:
            return data.decode()
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in data)


def of_chat(logprobs: Iterable[TokenLogprob], texts: TokenTexts) -> dict[str, Any]:
    """The `logprobs` of a chat's choice."""
    return {
        "content": [
            {
                **_entry(each.token, each.logprob, texts),
                "top_logprobs": [_entry(token, logprob, texts) for token, logprob in each.top],
            }
            for each in logprobs
        ],
        "refusal": None,
    }


def of_completion(
    logprobs: Iterable[TokenLogprob], texts: TokenTexts, offset: int, *, unpredicted: int | None = None
) -> tuple[dict[str, Any], int]:
    """The `logprobs` of a completion's choice, whose text begins at `offset`; and where it ends. `unpredicted`: a token
    before them all, which nothing predicts: the first of a prompt.
    """
    found: dict[str, Any] = {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}
    if unpredicted is not None:
        offset = _append(found, texts, unpredicted, offset)
        found["token_logprobs"].append(None)
        found["top_logprobs"].append(None)
    for each in logprobs:
        offset = _append(found, texts, each.token, offset)
        found["token_logprobs"].append(max(each.logprob, _LEAST))
        top = {texts.name_of(token): max(logprob, _LEAST) for token, logprob in each.top}
        found["top_logprobs"].append({texts.name_of(each.token): max(each.logprob, _LEAST), **top} if top else None)
    return found, offset


def _append(found: dict[str, Any], texts: TokenTexts, token: int, offset: int) -> int:
    found["tokens"].append(texts.name_of(token))
    found["text_offset"].append(offset)
    return offset + len(texts.text_of(token))


def _entry(token: int, logprob: float, texts: TokenTexts) -> dict[str, Any]:
    data = texts.bytes_of(token)
    return {"token": data.decode(errors="replace"), "logprob": max(logprob, _LEAST), "bytes": list(data)}
