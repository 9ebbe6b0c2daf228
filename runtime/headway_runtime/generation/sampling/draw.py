"""One token of one row: temperature, then filters, then the draw.

The filters are vLLM's, in its order: min-p keeps the tokens with at least that share of the likeliest one's
probability; top-k the k likeliest; top-p the smallest number of the likeliest that have together at least that share
of what the others left. Tokens as likely as the last one that is kept are kept as well, so that their order says
nothing.

The draw is a race: each candidate has an exponential number, divided by its probability, and the least wins (the
Gumbel trick in other words). With the same numbers, two distributions that are alike choose the same token in most
cases: with a chance of at least (1 - d) / (1 + d), where d is their total variation distance (Daliri, Musco and Suresh,
2024). That is how a draft model guesses what is drawn. The many unlikely tokens of a row without filters take part as
one, and race among themselves, by blocks, only when it wins: the distribution is the same, at a fraction of the random
numbers.
"""

import math

import numpy as np
import numpy.typing as npt

from headway_runtime.generation.sampling.lanes import Ids, Row, at_least, largest
from headway_runtime.generation.sampling.randomness import exponentials
from headway_runtime.generation.values import Sampling

SOMEWHERE = 1 << 40  # an id beyond all tokens': of the unlikely ones together
UNLIKELY = math.exp(-12)  # of the likeliest one's probability
MOST = 16_384  # candidates that race one by one
BLOCK = 1024
BLOCKS = 1 << 41  # ids of blocks are from here on


def draw(row: Row, top: float, sampling: Sampling, key: int) -> int:
    """The token. `row`, logits [padded size] whose largest is `top` and which are -inf where nothing may be, is
    overwritten. Temperature is above 0.
    """
    if sampling.top_k:
        ids = largest(row, sampling.top_k)
        return _race(*_nucleus(ids, _weights(row[ids], top, sampling), sampling), key)
    weights = _weights(row, top, sampling)
    if sampling.min_p > 0:
        ids = at_least(weights, sampling.min_p)
        return _race(*_nucleus(ids, weights[ids], sampling), key)
    total = float(weights.sum())
    ids = at_least(weights, UNLIKELY)
    likely = weights[ids]
    if sampling.top_p < 1:
        if likely.sum() < sampling.top_p * total:
            ids = np.flatnonzero(weights)
            likely = weights[ids]
        return _race(*_nucleus(ids, likely, sampling, total), key)
    if ids.size > MOST:
        return _race_by_blocks(weights, key)
    rest = max(total - float(likely.sum()), 0.0)
    first = _race(np.append(ids, SOMEWHERE), np.append(likely, rest), key)
    if first != SOMEWHERE:
        return first
    weights[ids] = 0
    return _race_by_blocks(weights, key)


def _weights(logits: Row, top: float, sampling: Sampling) -> Row:
    """Probabilities as shares of the largest one, in place."""
    np.subtract(logits, np.float32(top), out=logits)
    if sampling.temperature != 1:
        np.multiply(logits, np.float32(min(1 / sampling.temperature, 1e30)), out=logits)
    return np.exp(logits, out=logits)


def _nucleus(ids: Ids, weights: Row, sampling: Sampling, total: float | None = None) -> tuple[Ids, Row]:
    """What min-p and top-p leave. `total`: of all weights, those that were left out included."""
    if sampling.min_p > 0:
        keep = weights >= sampling.min_p
        ids, weights = ids[keep], weights[keep]
    if sampling.top_p >= 1:
        return ids, weights
    falling = np.sort(weights)[::-1]
    together = np.cumsum(falling, dtype=np.float64)
    last = np.searchsorted(together, sampling.top_p * (together[-1] if total is None else total))
    keep = weights >= falling[min(int(last), falling.size - 1)]
    return ids[keep], weights[keep]


def _race(ids: Ids, weights: npt.NDArray[np.floating], key: int) -> int:
    if ids.size > MOST:
        return int(ids[_race_by_blocks(weights, key)])
    if ids.size == 1:
        return int(ids[0])
    with np.errstate(divide="ignore"):  # nobody wins with nothing
        return int(ids[np.argmin(exponentials(key, ids) / weights)])


def _race_by_blocks(weights: npt.NDArray[np.floating], key: int) -> int:
    """Blocks race by what they have together, then those of the one that wins. The index."""
    starts = np.arange(0, weights.size, BLOCK)
    start = BLOCK * (_race(starts // BLOCK + BLOCKS, np.add.reduceat(weights, starts), key) - BLOCKS)
    inside = weights[start : start + BLOCK]
    return _race(np.arange(start, start + inside.size), inside, key)
