"""Requests for a text model: made up of words, as many as a distribution says, and never the same beginning twice."""

import random
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

import orjson

from headway_runtime.bench.encode import JSON_TYPE, Body, http_request
from headway_runtime.bench.errors import BenchError
from headway_runtime.bench.fetch import address_of
from headway_runtime.bench.inputs import WORDS
from headway_runtime.bench.sizes import Distribution

PROMPT, ANSWER = "prompt.words", "answer"
_USUAL_WORDS, _USUAL_ANSWER = 200, 64
_WORDS_OF, _ANSWER_OF = 8, 4  # parts of the longest sequence, at most: a word may be several tokens


@dataclass(frozen=True, slots=True)
class Prompts:
    """`sizes`: words of a prompt, and tokens of an answer, which does not end before."""

    url: str
    model: str
    sizes: Mapping[str, Distribution]

    def requests(self, seed: int) -> Iterator[bytes]:
        """Whole HTTP requests without end. Lengths are those of the seed. A prompt begins with a word of this call, so
        that nothing of it is found in a prefix cache.
        """
        random_ = random.Random(seed)  # noqa: S311 - no secret
        while True:
            yield self._request(self.sizes[PROMPT].draw(random_), self.sizes[ANSWER].draw(random_), random_)

    def longest(self) -> bytes:
        """The longest request."""
        return self._request(self.sizes[PROMPT].most, self.sizes[ANSWER].most, random.Random(0))  # noqa: S311

    def _request(self, words: int, tokens: int, random_: random.Random) -> bytes:
        asked = {
            "model": self.model,
            "prompt": " ".join([secrets.token_hex(4), *random_.choices(WORDS, k=words - 1)]),
            "max_tokens": tokens,
            "ignore_eos": True,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        path = f"{urlsplit(self.url).path.rstrip('/')}/v1/completions"
        return http_request(str(address_of(self.url)), path, Body(orjson.dumps(asked), (("content-type", JSON_TYPE),)))


def sizes_of(given: Mapping[str, Distribution], longest: int | None) -> dict[str, Distribution]:
    """Sizes that are given, and usual ones. `longest`: tokens of a sequence, where that is known. Raises BenchError."""
    unknown = given.keys() - {PROMPT, ANSWER}
    if unknown:
        raise BenchError(f"--sizes {min(unknown)}: the sizes of a model that generates text are {PROMPT} and {ANSWER}")
    for name, size in given.items():
        if not size.least:
            raise BenchError(f"--sizes {name}={size}: at least 1")
    words = _USUAL_WORDS if longest is None else max(1, min(_USUAL_WORDS, longest // _WORDS_OF))
    answer = _USUAL_ANSWER if longest is None else max(1, min(_USUAL_ANSWER, longest // _ANSWER_OF))
    usual = {PROMPT: Distribution(1, words, max(1.0, words / 4)), ANSWER: Distribution(answer, answer)}
    return {**usual, **given}
