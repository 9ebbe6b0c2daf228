"""Prepared decoders for tests, and steps of them written down by hand: no scheduler."""

from collections.abc import Sequence
from pathlib import Path

import torch
from headway_runtime.prepare import inspection, repack
from headway_runtime.prepare.decoder import BLOCK_TOKENS
from headway_runtime.program.decoder import Decoder, StepInputs

Part = tuple[Sequence[int], int, Sequence[int]]
"""All tokens of a sequence so far, how many of them are in the cache already, and its blocks."""


def prepared(source: Path, target: Path) -> Path:
    """The prepared directory of a `.pt2`."""
    target.mkdir(parents=True, exist_ok=True)
    repack.repack(inspection.inspect(str(source)), source, target)
    return target


def step(parts: Sequence[Part], *, logits: Sequence[int] | None = None) -> StepInputs:
    """One step of these sequences; logits of the last token of each, or of those that are named."""
    tokens: list[int] = []
    positions: list[int] = []
    slots: list[int] = []
    starts = [0]
    most = max(len(blocks) for _, _, blocks in parts)
    for all_tokens, done, blocks in parts:
        new = range(done, len(all_tokens))
        tokens += all_tokens[done:]
        positions += new
        slots += [blocks[at // BLOCK_TOKENS] * BLOCK_TOKENS + at % BLOCK_TOKENS for at in new]
        starts.append(len(tokens))
    int32 = torch.int32
    return StepInputs(
        torch.tensor(tokens),
        torch.tensor(positions),
        torch.tensor(slots),
        torch.tensor([[*blocks, *[0] * (most - len(blocks))] for _, _, blocks in parts], dtype=int32),
        torch.tensor([len(all_tokens) for all_tokens, _, _ in parts], dtype=int32),
        torch.tensor(starts, dtype=int32),
        torch.tensor([end - 1 for end in starts[1:]] if logits is None else list(logits)),
    )


def greedy(decoder: Decoder, prompt: Sequence[int], count: int, *, first_block: int = 1) -> list[int]:
    """The next `count` tokens, alone."""
    tokens, done = list(prompt), 0
    blocks = range(first_block, first_block + (len(prompt) + count) // BLOCK_TOKENS + 1)
    for _ in range(count):
        found = decoder.step(step([(tokens, done, blocks)]))
        done = len(tokens)
        tokens.append(int(found.argmax()))
    return tokens[len(prompt) :]
