"""Which token comes next: logits of a step go in, the tokens of each answer come out.

`Sampler.open` makes the `State` of an answer, `Sampler.sample` moves answers on by the rows of a step. Read `sampler`
first, then what it does to a row in this order: `adjust` (constraint, bias, end tokens, penalties by `counts`), then
`draw` (temperature and filters, then one draw by `randomness`). `lanes` finds the few large numbers among many;
`logprobs` tells what the program thought of the tokens.

Nothing here depends on what else is in the batch: a row of logits, the state of its answer and the seed say which token
comes. That holds for rows that were speculated on, too (docs/decisions/0020-speculation-samples-and-compares.md).
"""

from headway_runtime.generation.sampling.logprobs import prompt_logprobs
from headway_runtime.generation.sampling.sampler import Ask, Chosen, Sampler
from headway_runtime.generation.sampling.state import State

__all__ = ["Ask", "Chosen", "Sampler", "State", "prompt_logprobs"]
