"""What is done to the logits before temperature and filters: vLLM's order.

The constraint's mask, what the request adds to single tokens, the end tokens while the answer is too short, and the
penalties: for repetition (CTRL, 2019: logits above 0 are divided, others multiplied; prompt and answer), then for
frequency and presence (OpenAI: subtracted per occurrence, and once; the answer alone).
"""

import numpy as np

from headway_runtime.generation.sampling.counts import Counts
from headway_runtime.generation.sampling.lanes import Row
from headway_runtime.generation.sampling.state import State
from headway_runtime.generation.values import Sampling

NOT = np.float32(-np.inf)


def adjust(row: Row, state: State) -> None:
    """In place; `row`, [padded vocabulary], has finite logits, and -inf where there is no token."""
    if state.matcher is not None:
        state.matcher.mask(row)
    if state.biased.size:
        row[state.biased] += state.bias
    if state.position < state.min_tokens and state.end.size:
        kept = row[state.end]
        row[state.end] = NOT
        if state.matcher is not None and row.max() == NOT:
            row[state.end] = kept  # the constraint lets the answer end here and only here
    if state.counts is not None:
        _penalize(row, state.counts, state.sampling)


def _penalize(row: Row, counts: Counts, sampling: Sampling) -> None:
    tokens, times = counts.tokens, counts.times
    values = row[tokens]
    if (penalty := sampling.repetition_penalty) != 1:
        values = np.where(values > 0, values / np.float32(penalty), values * np.float32(penalty))
    if sampling.frequency_penalty or sampling.presence_penalty:
        subtracted = sampling.frequency_penalty * times + sampling.presence_penalty * (times > 0)
        values = values - subtracted.astype(np.float32)
    row[tokens] = values
