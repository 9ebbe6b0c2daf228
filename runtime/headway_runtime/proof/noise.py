"""When two answers of the same program to the same row agree: within ten times its own noise.

The noise is what the program's answers to a row differ by when nothing but the number of rows of the run changes: other
kernels, other orders of summation. It may be nought, while a longer run rounds all the same: below the floor of the
element type, relative to the largest value of the output, every difference is rounding. (Where weights are kept in a
lower precision the floor is what that precision may do to an answer: a sum that differs in its last bit may round up in
the next layer, and not down.) An output may hold numbers that
stand for "never", such as -1e30: beside them everything would be rounding, so they are held to themselves only. Pure:
tensors in, numbers out.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

TIMES = 10
FLOOR = {torch.float64: 1e-10, torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}
"""Relative: about 100 (float16, bfloat16: 4) units in the last place."""
APART = {torch.float64: 1e-8, torch.float32: 1e-3, torch.float16: 4e-2, torch.bfloat16: 1.2e-1}
"""Relative: further apart than any rounding."""
LOUDEST = 100
"""Times the floor: with more noise than that, agreement would say nothing."""
BEYOND = 1000
"""Times all usual numbers of an output, and times 1 (beside tiny probabilities, 1 is usual): from there on a number
stands for something, and measures nothing.
"""


@dataclass(slots=True)
class Noise:
    """Of each output: the largest value seen, and the largest difference that was noise. ``least``: a floor for every
    type, relative.
    """

    least: float = 0.0
    scale: list[float] = field(default_factory=list)
    noise: list[float] = field(default_factory=list)

    def hear(self, first: Sequence[torch.Tensor], second: Sequence[torch.Tensor]) -> None:
        """Two answers to one row that should be equal."""
        if not self.noise:
            self.scale, self.noise = [0.0] * len(first), [0.0] * len(first)
        for at, (one, other) in enumerate(zip(first, second, strict=True)):
            self.scale[at] = max(self.scale[at], largest(one))
            self.noise[at] = max(self.noise[at], difference(one, other))

    def allowed(self, at: int, dtype: torch.dtype) -> float:
        """How much answers of this output may differ."""
        return max(TIMES * self.noise[at], self._floor(dtype) * self.scale[at])

    def too_loud(self, at: int, dtype: torch.dtype) -> bool:
        """Whether the noise would hide what is to be found."""
        return dtype.is_floating_point and self.allowed(at, dtype) > LOUDEST * self._floor(dtype) * self.scale[at]

    def _floor(self, dtype: torch.dtype) -> float:
        return max(FLOOR[dtype], self.least) if dtype in FLOOR else 0.0


def difference(one: torch.Tensor, other: torch.Tensor) -> float:
    """The largest absolute difference; infinite between shapes, and where one value is NaN or infinite alone."""
    if one.shape != other.shape or one.dtype != other.dtype:
        return math.inf
    if one.numel() == 0 or torch.equal(one, other):
        return 0.0
    if not one.dtype.is_floating_point:
        return float((one != other).sum())
    here, there = one.double(), other.double()
    same = (here == there) | (here.isnan() & there.isnan())
    beyond = here.isfinite() & (here.abs() > largest(one))
    same |= beyond & ((here - there).abs() <= FLOOR[one.dtype] * here.abs())
    return float(torch.where(same, 0.0, (here - there).abs()).nan_to_num(nan=math.inf).max())


def apart(one: torch.Tensor, other: torch.Tensor, rounding: float = 0.0) -> bool:
    """Whether two answers are others beyond what other kernels, chosen for another number of rows, could make them.
    ``rounding``: a floor for every type, relative.
    """
    return difference(one, other) > max(APART.get(one.dtype, 0.0), rounding) * largest(one)


def largest(tensor: torch.Tensor) -> float:
    """The largest usual absolute value: finite, and not `BEYOND` times the next smaller one and 1, unless most are.
    0 of whole numbers, which have no rounding.
    """
    if not tensor.dtype.is_floating_point:
        return 0.0
    values = tensor.double().abs().flatten()
    values = values[values.isfinite() & (values > 0)]
    if not values.numel():
        return 0.0
    most, quarter = float(values.max()), float(values.kthvalue(-(-values.numel() // 4)).values)
    if most <= BEYOND * max(quarter, 1.0):
        return most
    rising = values[values >= quarter].sort().values
    leaps = torch.nonzero(rising[1:] > BEYOND * rising[:-1].clamp(min=1))
    return float(rising[leaps[0]]) if leaps.numel() else most
