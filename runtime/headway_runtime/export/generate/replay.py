"""Golden continuations once more, on a program of the contract: alone at once, and together step by step.

Each golden token is given whatever the program would have said, so that every one is compared on its own.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch

from headway_runtime.export.generate.golden import Answered
from headway_runtime.prepare.decoder import BLOCK_TOKENS, INPUTS

StepFunction = Callable[..., torch.Tensor]
"""The seven inputs by name -> logits float32 [L, V]."""

ROOM = 24
"""Tokens of a prompt in one step of those that run together: no multiple of a block."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Tokens of sequence `row` from `start` on, and of which of them (by position) the logits are wanted."""

    row: int
    start: int
    tokens: tuple[int, ...]
    wanted: range


def blocks(lengths: Sequence[int]) -> int:
    """How many blocks the cache must have, with the one that belongs to nobody."""
    return 1 + len(lengths) * max(map(_blocks_of, lengths))


def inputs(chunks: Sequence[Chunk], rows: int) -> dict[str, torch.Tensor]:
    """One step of `rows` sequences that share a cache. Their blocks lie between each other's."""
    places = [range(chunk.start, chunk.start + len(chunk.tokens)) for chunk in chunks]
    ends = [place.stop for place in places]
    width = max(map(_blocks_of, ends))
    tables = [
        [1 + chunk.row + rows * n if n < _blocks_of(end) else 0 for n in range(width)]
        for chunk, end in zip(chunks, ends, strict=True)
    ]
    located = [(table, at) for table, place in zip(tables, places, strict=True) for at in place]
    starts = [0]
    for chunk in chunks:
        starts.append(starts[-1] + len(chunk.tokens))
    values: dict[str, list[int] | list[list[int]]] = {
        "token_ids": [token for chunk in chunks for token in chunk.tokens],
        "positions": [at for _, at in located],
        "slot_mapping": [table[at // BLOCK_TOKENS] * BLOCK_TOKENS + at % BLOCK_TOKENS for table, at in located],
        "block_tables": tables,
        "seq_lens": ends,
        "query_start_loc": starts,
        "logits_idx": [s + at - c.start for s, c in zip(starts, chunks, strict=False) for at in c.wanted],
    }
    return {name: torch.tensor(values[name], dtype=getattr(torch, dtype)) for name, dtype, _ in INPUTS}


def alone(step: StepFunction, answered: Answered) -> torch.Tensor:
    """Prompt and continuation in one step: float32 [tokens, V]."""
    prompt, tokens = answered.golden.prompt, answered.golden.tokens
    chunk = Chunk(0, 0, prompt + tokens[:-1], range(len(prompt) - 1, len(prompt) + len(tokens) - 1))
    return step(**inputs([chunk], 1))


def together(step: StepFunction, answered: Sequence[Answered]) -> list[torch.Tensor]:
    """All at the same time, prompts in pieces, then a token each step; for each float32 [tokens, V]."""
    left = {row: _chunks(row, one) for row, one in enumerate(answered)}
    found: list[list[torch.Tensor]] = [[] for _ in answered]
    while left:
        chunks = [chunk for pieces in left.values() if (chunk := next(pieces, None)) is not None]
        left = {chunk.row: left[chunk.row] for chunk in chunks}
        if any(chunk.wanted for chunk in chunks):
            logits = iter(step(**inputs(chunks, len(answered))))
            for chunk in chunks:
                found[chunk.row] += [next(logits) for _ in chunk.wanted]
        elif chunks:
            step(**inputs([*chunks[:-1], _any_row(chunks[-1])], len(answered)))
    return [torch.stack(rows) for rows in found]


def _any_row(chunk: Chunk) -> Chunk:
    """A program gives logits of one row at least."""
    return Chunk(chunk.row, chunk.start, chunk.tokens, range(chunk.start, chunk.start + 1))


def _chunks(row: int, answered: Answered) -> Iterator[Chunk]:
    prompt, tokens = answered.golden.prompt, answered.golden.tokens
    for start in range(0, len(prompt), ROOM):
        piece = prompt[start : start + ROOM]
        end = start + len(piece)
        yield Chunk(row, start, piece, range(end - 1, end) if end == len(prompt) else range(0))
    for n, token in enumerate(tokens[:-1]):
        at = len(prompt) + n
        yield Chunk(row, at, (token,), range(at, at + 1))


def _blocks_of(tokens: int) -> int:
    return -(-tokens // BLOCK_TOKENS)
