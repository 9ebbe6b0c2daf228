"""Does the program say what transformers says? Held against all its logits, and against its tokens.

Logits may differ by a part of the largest, since sums in another order round otherwise. Tokens may not: golden ones are
only those that transformers was sure of (`golden`).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from headway_runtime.export.errors import ExportError
from headway_runtime.export.generate import replay
from headway_runtime.export.generate.golden import Answered
from headway_runtime.export.generate.replay import StepFunction

PART = {torch.float32: 1e-4, torch.bfloat16: 8e-2}
"""Of the largest logit: by how much any may differ. Seen: 4e-6 and 4e-2 (SmolLM2-135M)."""


@dataclass(frozen=True, slots=True)
class Proof:
    """`tokens` golden tokens were compared, twice. `largest_difference`: of two logits."""

    tokens: int
    largest_difference: float


def check(step: StepFunction, answered: Sequence[Answered]) -> Proof:
    """Run all golden prompts, each alone and all together. Raises ExportError naming prompt and token."""
    found = [("alone", one, replay.alone(step, one)) for one in answered]
    together = replay.together(step, answered)
    found += [("beside others", one, logits) for one, logits in zip(answered, together, strict=True)]
    largest = max(_compared(how, one, logits) for how, one, logits in found)
    return Proof(sum(len(one.golden.tokens) for one in answered), largest)


def _compared(how: str, one: Answered, logits: torch.Tensor) -> float:
    """The largest difference. Raises ExportError."""
    width = min(logits.shape[1], one.logits.shape[1])  # a draft has as many as its target
    here, there = logits[:, :width], one.logits[:, :width]
    finite = torch.isfinite(there)
    difference: float = (here - there)[finite].abs().max().item()
    allowed = PART[one.dtype] * there[finite].abs().max().item()
    said = logits.argmax(-1).tolist()
    wrong = next((n for n, token in enumerate(one.golden.tokens) if said[n] != token), None)
    if difference <= allowed and wrong is None:  # NaN is neither
        return difference
    what = f"logits differ by {difference:.3g}, and {allowed:.3g} is allowed"
    if wrong is not None:
        what = f"token {wrong} is {said[wrong]} and should be {one.golden.tokens[wrong]}; {what}"
    raise ExportError(
        "the exported program does not answer as transformers does, so nothing was written: the golden prompt "
        f"{list(one.golden.prompt[:8])} of {len(one.golden.prompt)} tokens, {how}: {what}"
    )
