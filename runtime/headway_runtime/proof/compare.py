"""Is a row's answer what it was? One answer held against another, output by output."""

import math
from dataclasses import dataclass

import torch

from headway_runtime.proof.deciders import Decider
from headway_runtime.proof.noise import Noise, difference
from headway_runtime.proof.runs import Answers, Runs


@dataclass(frozen=True, slots=True)
class Difference:
    """The difference of one output, and how much of it would be rounding. Infinite: between numbers that cannot be
    subtracted, or of shapes.
    """

    what: str
    largest: float
    allowed: float

    @property
    def words(self) -> str:
        """``output pooled differs by 0.13 (1e-05 would be rounding)``."""
        if math.isinf(self.largest):
            return f"{self.what} differs without bound"
        return f"{self.what} differs by {self.largest:.2g} ({self.allowed:.2g} would be rounding)"


def compare(runs: Runs, expected: Answers, found: Answers, noise: Noise) -> list[Difference]:
    """The differences, by output; those beyond what is allowed first."""
    differences = []
    for at, (one, other) in enumerate(_comparable(runs, expected, found)):
        largest, allowed = difference(one, other), noise.allowed(at, one.dtype)
        if not one.dtype.is_floating_point and largest and _explained(runs, at, expected, other, noise):
            largest = 0.0
        differences.append(Difference(runs.names[at], largest, allowed))
    return sorted(differences, key=lambda d: d.largest <= d.allowed)


def exceeds(difference: Difference) -> bool:
    """Whether it is no rounding."""
    return not difference.largest <= difference.allowed


def hear(runs: Runs, noise: Noise, first: Answers, second: Answers) -> None:
    """Two answers of the program to one row at one size: what they differ by is noise."""
    pairs = _comparable(runs, first, second)
    noise.hear([one for one, _ in pairs], [other for _, other in pairs])


def _comparable(runs: Runs, expected: Answers, found: Answers) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Outputs, and scores cut to what they were (their declared shape is not known)."""
    outputs = len(runs.program.outputs)
    pairs = list(zip(expected[:outputs], found[:outputs], strict=True))
    for at, (one, other) in enumerate(zip(expected[outputs:], found[outputs:], strict=True)):
        if at in runs.unread or not one.dtype.is_floating_point:
            pairs.append((one[:0] if one.dim() else one, one[:0] if one.dim() else one))
        elif one.dim() == other.dim() and all(n <= m for n, m in zip(one.shape, other.shape, strict=True)):
            pairs.append((one, other[tuple(slice(0, n) for n in one.shape)]))
        else:
            pairs.append((one, other))
    return pairs


def _explained(runs: Runs, output: int, expected: Answers, other: torch.Tensor, noise: Noise) -> bool:
    """Whether whole numbers differ only where the scores behind them all but agree: by no more than two roundings."""
    for at, decider in enumerate(runs.deciders):
        place = len(runs.program.outputs) + at
        if decider.output == output and at not in runs.unread:
            margins = _margins(decider, expected[output], other, expected[place])
            allowed = 2 * noise.allowed(place, expected[place].dtype)
            return margins is not None and bool((margins <= allowed).all())
    return False


def _margins(decider: Decider, one: torch.Tensor, other: torch.Tensor, scores: torch.Tensor) -> torch.Tensor | None:
    """Where the two decisions differ: how far apart the scores of both were. None when it cannot be told."""
    if one.shape != other.shape:
        return None
    differ = one != other
    if decider.bound is not None and scores.shape == one.shape:
        return (scores - decider.bound).abs()[differ]
    if decider.axis is None or decider.axis == 0:
        return None
    axis = decider.axis if decider.axis < 0 else decider.axis - 1  # the axis of rows is gone
    one, other = one.long(), other.long()
    if not decider.kept:
        one, other, differ = one.unsqueeze(axis), other.unsqueeze(axis), differ.unsqueeze(axis)
    if one.dim() != scores.dim() or bool((other >= scores.shape[axis]).any()):
        return None
    return (scores.gather(axis, one) - scores.gather(axis, other)).abs()[differ]
