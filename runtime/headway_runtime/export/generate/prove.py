"""Does the program say what transformers says? Held against its logits, and then against its tokens.

Logits may differ by a part of the largest: computed in another order, sums round otherwise. A token may differ
from the golden one only where transformers was not sure itself: where the golden token led by no more than twice that.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from headway_runtime.export.errors import ExportError
from headway_runtime.export.generate import replay
from headway_runtime.export.generate.golden import Answered
from headway_runtime.export.generate.replay import StepFunction

PART = {torch.float32: 1e-3, torch.bfloat16: 4e-2}
"""Of the largest logit, by how much another may differ."""


@dataclass(frozen=True, slots=True)
class Proof:
    """`tokens` golden tokens were compared, twice. `largest_difference`: of two logits. `unsure`: tokens that
    differed where transformers was not sure.
    """

    tokens: int
    largest_difference: float
    unsure: int


def check(step: StepFunction, answered: Sequence[Answered], dtype: torch.dtype) -> Proof:
    """Run all golden prompts, each alone and all together. Raises ExportError naming prompt and token."""
    found = [("alone", one, replay.alone(step, one)) for one in answered]
    together = replay.together(step, answered)
    found += [("beside others", one, logits) for one, logits in zip(answered, together, strict=True)]
    compared = [_compared(how, one, logits, PART[dtype]) for how, one, logits in found]
    return Proof(
        tokens=sum(len(one.golden.tokens) for one in answered),
        largest_difference=max(difference for difference, _ in compared),
        unsure=sum(unsure for _, unsure in compared),
    )


def _compared(how: str, one: Answered, logits: torch.Tensor, part: float) -> tuple[float, int]:
    """The largest difference, and how many tokens differ within the rule. Raises ExportError."""
    finite = torch.isfinite(one.logits)
    difference = (logits - one.logits)[finite].abs().max().item()
    allowed = part * one.logits[finite].abs().max().item()
    where = f"the golden prompt {list(one.golden.prompt[:8])} of {len(one.golden.prompt)} tokens, {how}"
    if not difference <= allowed:  # NaN as well
        raise ExportError(
            f"the exported program does not answer as transformers does, so nothing was written: {where}: logits "
            f"differ by {difference:.3g}, at most {allowed:.3g} is allowed"
        )
    unsure = 0
    for n, (said, golden) in enumerate(zip(logits.argmax(-1).tolist(), one.golden.tokens, strict=True)):
        if said != golden:
            if one.golden.margins[n] > 2 * allowed:
                raise ExportError(f"{where}: token {n} is {said}, transformers says {golden}; nothing was written")
            unsure += 1
    return difference, unsure
