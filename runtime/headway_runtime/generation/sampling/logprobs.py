"""What the program thought of a token: logarithms of probabilities, of its logits as they are.

As OpenAI's API and vLLM tell them: before bias, constraint, penalties, temperature and filters, so that a token which
was forced can be told from one which was likely.
"""

from collections.abc import Sequence

import numpy as np
import torch

from headway_runtime.generation.sampling.lanes import Row, largest, padded
from headway_runtime.generation.values import TokenLogprob

LEAST = np.float32(-1e30)  # a logit for what is not a number, or less than any
LEAST_LOGPROB = -9999.0  # JSON has no infinity; OpenAI's value


def token_logprob(logits: Row, token: int, top: int, scratch: Row) -> TokenLogprob:
    """Of one row [V]; `scratch`, [padded V], is overwritten."""
    size = logits.size
    scratch[size:] = -np.inf
    finite = np.fmax(logits, LEAST, out=scratch[:size])
    np.subtract(finite, finite.max(), out=finite)
    below = float(np.log(np.exp(finite).sum()))
    told: tuple[tuple[int, float], ...] = ()
    if top:
        ids = largest(scratch, min(top, size))
        first = np.lexsort((ids, -scratch[ids]))[:top]
        told = tuple((int(each), _bounded(float(scratch[each]) - below)) for each in ids[first])
    return TokenLogprob(token, _bounded(float(scratch[token]) - below), told)


def prompt_logprobs(logits: torch.Tensor, tokens: Sequence[int], top: int) -> tuple[TokenLogprob, ...]:
    """Of each token, by the row of `logits`, float32 [n, V], that came before it."""
    rows = logits.detach().cpu().numpy()
    scratch = np.empty(padded(rows.shape[1]), np.float32)
    return tuple(token_logprob(row, token, top, scratch) for row, token in zip(rows, tokens, strict=True))


def _bounded(logprob: float) -> float:
    return max(LEAST_LOGPROB, logprob)
