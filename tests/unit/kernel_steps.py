"""Steps for the kernels' tests: sequences with a past, what is added to each, and attention told in the plainest
way.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from headway_runtime.kernels.cache import PagedCache
from headway_runtime.prepare.decoder import BLOCK_TOKENS, DecoderGeometry, LayerGeometry


@dataclass(frozen=True, slots=True)
class Shape:
    """Of one layer, and of its sequences: `past` tokens of each that are in the cache, `new` ones of this step."""

    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 16
    past: tuple[int, ...] = (5, 0, 40)
    new: tuple[int, ...] = (1, 3, 7)
    scale: float = 0.25
    window: int = 0
    softcap: float = 0.0

    @property
    def geometry(self) -> DecoderGeometry:
        layers = (LayerGeometry(0, self.heads, self.kv_heads, self.head_dim, self.window),)
        return DecoderGeometry(layers, vocabulary=8)

    @property
    def lengths(self) -> list[int]:
        return [past + new for past, new in zip(self.past, self.new, strict=True)]

    @property
    def blocks(self) -> int:
        return 1 + sum(-(-length // BLOCK_TOKENS) for length in self.lengths)


class Sequences:
    """Random keys, values and queries [H, length, D] of every sequence, and blocks for them in a shuffled order."""

    def __init__(self, shape: Shape, *, seed: int = 0, spread: float = 1.0) -> None:
        random = torch.Generator().manual_seed(seed)
        self.shape = shape
        free = (1 + torch.randperm(shape.blocks - 1, generator=random)).tolist()
        self.tables = [[free.pop() for _ in range(-(-length // BLOCK_TOKENS))] for length in shape.lengths]

        def normal(heads: int) -> list[torch.Tensor]:
            sizes = [(length, heads, shape.head_dim) for length in shape.lengths]
            return [torch.randn(size, generator=random) * spread for size in sizes]

        self.q, self.k, self.v = normal(shape.heads), normal(shape.kv_heads), normal(shape.kv_heads)

    def step(self, pieces: Sequence[tuple[int, int, int]]) -> list[torch.Tensor]:
        """Arguments of the operator for tokens `first` to `last` of some sequences: (sequence, first, last)."""
        width = max((len(self.tables[s]) for s, _, _ in pieces), default=1) + 1
        tables = torch.zeros(len(pieces), max(1, width), dtype=torch.int32)
        slots: list[int] = []
        for row, (sequence, first, last) in enumerate(pieces):
            blocks = self.tables[sequence]
            tables[row, : len(blocks)] = torch.tensor(blocks, dtype=torch.int32)
            slots += [blocks[t // BLOCK_TOKENS] * BLOCK_TOKENS + t % BLOCK_TOKENS for t in range(first, last)]
        starts = torch.tensor([0, *(last - first for _, first, last in pieces)]).cumsum(0).to(torch.int32)
        lengths = torch.tensor([last for _, _, last in pieces], dtype=torch.int32)
        q, k, v = (torch.cat([of[s][first:last] for s, first, last in pieces]) for of in (self.q, self.k, self.v))
        return [q, k, v, tables, lengths, starts, torch.tensor(slots, dtype=torch.int64)]

    def past(self) -> list[torch.Tensor]:
        return self.step([(s, 0, past) for s, past in enumerate(self.shape.past) if past])

    def now(self) -> list[torch.Tensor]:
        return self.step(
            [(s, n - m, n) for s, (n, m) in enumerate(zip(self.shape.lengths, self.shape.new, strict=True))]
        )

    def attend(self, cache: PagedCache, step: Sequence[torch.Tensor]) -> torch.Tensor:
        shape = self.shape
        return cache.attend(*step, 0, shape.scale, shape.window, shape.softcap)

    def run(self, cache: PagedCache) -> torch.Tensor:
        """Write the past, then do the step."""
        if any(self.shape.past):
            self.attend(cache, self.past())
        return self.attend(cache, self.now())

    def expected(self) -> torch.Tensor:
        """The step's answer, one token and head at a time, in float64."""
        answers = [
            self._one(sequence, position)
            for sequence, (length, new) in enumerate(zip(self.shape.lengths, self.shape.new, strict=True))
            for position in range(length - new, length)
        ]
        empty = torch.empty(0, self.shape.heads, self.shape.head_dim, dtype=torch.float64)
        return torch.stack(answers) if answers else empty

    def _one(self, sequence: int, position: int) -> torch.Tensor:
        shape = self.shape
        group = shape.heads // shape.kv_heads
        first = max(0, position - shape.window + 1) if shape.window else 0
        rows = []
        for head in range(shape.heads):
            k = self.k[sequence][first : position + 1, head // group].double()
            v = self.v[sequence][first : position + 1, head // group].double()
            scores = k @ self.q[sequence][position, head].double() * shape.scale
            if shape.softcap:
                scores = torch.tensor([shape.softcap * math.tanh(s / shape.softcap) for s in scores.tolist()]).double()
            weights = (scores - scores.max()).exp()
            rows.append(weights @ v / weights.sum())
        return torch.stack(rows)
