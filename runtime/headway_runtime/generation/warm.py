"""The shapes of steps that are run once before a pod is ready, and what each takes: one token, a full step of a prompt,
and one token of each of many sequences. What is written into the cache meanwhile belongs to nobody.
"""

import time

import torch
from headway_api.podconfig import BucketCost

from headway_runtime.prepare.decoder import BLOCK_TOKENS
from headway_runtime.program.decoder import Decoder, StepInputs

ENOUGH = 0.05  # seconds of timed runs
MOST_RUNS = 5
Shape = tuple[int, int]
"""Tokens of each sequence, and sequences."""


def shapes(*, step_tokens: int, sequences: int, max_length: int, blocks: int) -> tuple[Shape, ...]:
    """Largest first, so that a lack of memory shows at once. `blocks`: of the cache, block 0 among them."""
    prompt = min(step_tokens, max_length, (blocks - 1) * BLOCK_TOKENS)
    return tuple(dict.fromkeys(((prompt, 1), (1, min(sequences, blocks - 1)), (1, 1))))


def warm(decoder: Decoder, shape: Shape) -> BucketCost:
    """Run a step of this shape; the fastest of a few counts."""
    inputs = _inputs(*shape)
    decoder.step(inputs)
    seconds = [_timed(decoder, inputs)]
    while sum(seconds) < ENOUGH and len(seconds) < MOST_RUNS:
        seconds.append(_timed(decoder, inputs))
    tokens, sequences = shape
    sizes = {"tokens": tokens * sequences, "sequences": sequences}
    return BucketCost(sizes=sizes, seconds=round(min(seconds), 6))


def _timed(decoder: Decoder, inputs: StepInputs) -> float:
    began = time.perf_counter()
    decoder.step(inputs).cpu()
    return time.perf_counter() - began


def _inputs(tokens: int, sequences: int) -> StepInputs:
    """Sequences of so many tokens each from their beginning; of each the last one's logits."""
    each = -(-tokens // BLOCK_TOKENS)
    tables = 1 + torch.arange(sequences * each, dtype=torch.int32).reshape(sequences, each)
    positions = torch.arange(tokens).repeat(sequences)
    first = tables.repeat_interleave(tokens, 0).long()
    slots = first.gather(1, (positions // BLOCK_TOKENS)[:, None])[:, 0] * BLOCK_TOKENS + positions % BLOCK_TOKENS
    return StepInputs(
        token_ids=torch.zeros(tokens * sequences, dtype=torch.int64),
        positions=positions,
        slot_mapping=slots,
        block_tables=tables,
        seq_lens=torch.full((sequences,), tokens, dtype=torch.int32),
        query_start_loc=torch.arange(sequences + 1, dtype=torch.int32) * tokens,
        logits_idx=torch.arange(1, sequences + 1) * tokens - 1,
    )
