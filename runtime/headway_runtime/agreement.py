"""When an answer agrees with a golden one: a floating-point value within ``atol + rtol * |golden|``, NaN with NaN, an
infinity with the same infinity; a whole number or a boolean when it is equal. Pure: two tensors in, words out.
"""

import math
from dataclasses import dataclass

import torch

RTOL = 1e-3
ATOL = 1e-5
COARSE = {torch.bfloat16: 1.6e-2, torch.float16: 4e-3}
"""The default rtol of types that have fewer digits than `RTOL` asks for."""


@dataclass(frozen=True, slots=True)
class Tolerance:
    """None: the default of the element type."""

    rtol: float | None = None
    atol: float | None = None

    def of(self, dtype: torch.dtype) -> tuple[float, float]:
        """(rtol, atol) for values of this type."""
        rtol = COARSE.get(dtype, RTOL) if self.rtol is None else self.rtol
        return rtol, ATOL if self.atol is None else self.atol


def compare(answer: torch.Tensor, golden: torch.Tensor, tolerance: Tolerance) -> tuple[float, str]:
    """(largest finite absolute difference, what disagrees in words; empty when nothing does)."""
    if answer.shape != golden.shape or answer.dtype != golden.dtype:
        text = f"the answer is {answer.dtype} {list(answer.shape)}, golden is {golden.dtype} {list(golden.shape)}"
        return 0.0, text
    if golden.numel() == 0:
        return 0.0, ""
    if not golden.dtype.is_floating_point:
        return _compare_exactly(answer, golden)
    rtol, atol = tolerance.of(golden.dtype)
    here, there = answer.double(), golden.double()
    same = (here == there) | (here.isnan() & there.isnan())  # equal infinities have no difference
    difference = torch.where(same, 0.0, (here - there).abs())
    within = (difference <= atol + rtol * there.abs()) & there.isfinite()  # false of NaN; infinity is near nothing
    outside = ~same & ~within
    finite = float(difference[difference.isfinite()].max()) if bool(difference.isfinite().any()) else 0.0
    if not bool(outside.any()):
        return finite, ""
    ranked = torch.where(outside, difference.nan_to_num(nan=math.inf), -1.0)
    return finite, _words(here, there, ranked, int(outside.sum()), f"allowed is {atol:g} + {rtol:g} * |golden|")


def _compare_exactly(answer: torch.Tensor, golden: torch.Tensor) -> tuple[float, str]:
    """Whole numbers and booleans: Python's own integers, so that no difference of 64-bit numbers wraps around."""
    if torch.equal(answer, golden):
        return 0.0, ""
    pairs = zip(answer.flatten().tolist(), golden.flatten().tolist(), strict=True)
    ranked = torch.tensor([float(abs(int(here) - int(there))) for here, there in pairs], dtype=torch.float64)
    return float(ranked.max()), _words(
        answer, golden, ranked.reshape(golden.shape), int((ranked > 0).sum()), "it must be equal"
    )


def _words(here: torch.Tensor, there: torch.Tensor, ranked: torch.Tensor, count: int, allowed: str) -> str:
    at = int(ranked.argmax())
    where = [int(i) for i in torch.unravel_index(torch.tensor(at), ranked.shape)] if ranked.dim() else []
    one, other = here.flatten()[at].item(), there.flatten()[at].item()
    largest = f"{ranked.flatten()[at].item():.3g}" if math.isfinite(one) and math.isfinite(other) else "without bound"
    values = f"{count} of {ranked.numel()} values differ, the largest difference is {largest} at {where}"
    return f"{values} (here {one:.7g}, golden {other:.7g}); {allowed}"
