"""Small distributions and small language models for the tests of the sampler."""

from collections.abc import Sequence

import numpy as np
import torch
from headway_runtime.generation.sampling import Ask, Chosen, Sampler, State
from headway_runtime.generation.values import Generate, Sampling, Tokens


def asked(sampling: Sampling, *, prompt: Tokens = (1, 2, 3), **other: object) -> Generate:
    """A request that says nothing but this."""
    return Generate(prompt=prompt, max_tokens=64, sampling=sampling, **other)


def one(sampler: Sampler, logits: Sequence[float] | torch.Tensor, state: State) -> Chosen:
    """What is chosen by one row."""
    return sampler.sample(torch.as_tensor(logits, dtype=torch.float32)[None], [Ask(state, 0)])[0]


class Model:
    """Logits [V] that are a pure function of the latest two tokens: random, and peaked enough to be guessed."""

    def __init__(self, vocabulary: int, seed: int = 0, scale: float = 2.0) -> None:
        self.vocabulary = vocabulary
        table = np.random.default_rng(seed).standard_normal((vocabulary, vocabulary, vocabulary)) * scale
        self._table = torch.from_numpy(table.astype(np.float32))

    def after(self, tokens: Sequence[int]) -> torch.Tensor:
        """[V]."""
        return self._table[tokens[-2], tokens[-1]]

    def near(self, distance: float) -> "Model":
        """Another that thinks alike: a draft."""
        other = Model(self.vocabulary, 1, distance)
        other._table = other._table + self._table
        return other
