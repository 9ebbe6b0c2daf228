"""What the sampler remembers of one answer, between steps and across preemption."""

import secrets
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext

import numpy as np

from headway_runtime.generation.constraints import Matcher
from headway_runtime.generation.sampling.counts import Counts
from headway_runtime.generation.values import Generate, Tokens


class State:
    """`position`: tokens made so far. `ended`: the constraint allows nothing more, the answer is complete."""

    def __init__(self, generate: Generate, index: int, *, vocabulary: int, matcher: Matcher | None = None) -> None:
        sampling = generate.sampling
        self.sampling = sampling
        self.index = index
        self.seed = secrets.randbits(63) if sampling.seed is None else sampling.seed
        self.position = 0
        self.ended = False
        self.matcher = matcher
        self.stop_tokens = generate.stop_tokens
        self.min_tokens = generate.min_tokens
        self.logprobs = generate.logprobs
        self.end = np.array(_within(vocabulary, generate.stop_tokens), np.int64)
        biased = _within(vocabulary, sampling.logit_bias)
        self.biased = np.array(biased, np.int64)
        self.bias = np.array([sampling.logit_bias[token] for token in biased], np.float32)
        self.counts: Counts | None = None
        if sampling.repetition_penalty != 1 or sampling.presence_penalty or sampling.frequency_penalty:
            known = generate.prompt if sampling.repetition_penalty != 1 else ()
            self.counts = Counts(_within(vocabulary, known))
        self._plain = sampling.greedy and not biased and self.counts is None and matcher is None

    @property
    def plain(self) -> bool:
        """Whether the next token is the likeliest one of the program, whatever was before."""
        return self._plain and self.position >= self.min_tokens

    def allowed(self, drafts: Sequence[int]) -> Tokens:
        """The drafts up to the first that the constraint forbids: the others need not be computed."""
        return tuple(drafts) if self.matcher is None else tuple(drafts[: self.matcher.valid(drafts)])

    def advance(self, token: int) -> None:
        """The answer goes on by a token. Raises InvalidRequestError: its constraint cannot be followed further."""
        self.position += 1
        if self.counts is not None:
            self.counts.add(token)
        if self.matcher is not None:
            self.matcher.consume(token)
            self.ended = self.matcher.ended

    @contextmanager
    def supposing(self, tokens: Sequence[int]) -> Iterator[None]:
        """As if the answer had gone on by these tokens, for now."""
        self.position += len(tokens)
        try:
            with (
                self.counts.supposing(tokens) if self.counts is not None else nullcontext(),
                self.matcher.supposing(tokens) if self.matcher is not None else nullcontext(),
            ):
                yield
        finally:
            self.position -= len(tokens)


def _within(vocabulary: int, tokens: Iterable[int]) -> list[int]:
    """Those that there are: who asks is told of others before (a program may have fewer logits than embeddings)."""
    return [token for token in tokens if 0 <= token < vocabulary]
