"""The cost curve: what one run takes by its rows and sizes, as the pod measured it while warming. Pure.

A run costs something whatever it holds (Python, kernel launches, reading the weights) and something for each row; the
first share is what batching saves. `fit` finds both for each size of the other dimensions; what any run costs is read
off the same model that decides in the pod (`batching/costs.py`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
from headway_api.podconfig import BucketCost

from headway_runtime.batching.costs import LEAST_SECONDS, CostModel

Sizes = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Point:
    """A run of `rows` rows took `seconds`."""

    rows: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Curve:
    """Runs at one size of the other dimensions, by ascending rows. `fixed` and `per_row`, in seconds, are the fit;
    `error` is its greatest relative difference from a point.
    """

    sizes: Sizes
    points: tuple[Point, ...]
    fixed: float
    per_row: float
    error: float

    @property
    def cells(self) -> int:
        """The product of the sizes: what a row holds."""
        return prod(self.sizes.values())


@dataclass(frozen=True, slots=True)
class Costs:
    """All curves, by ascending cells, and the model that a pod's policy makes of the same measurements.

    `batch`: the dimension of rows; None when requests run one at a time. `others`: all other dimensions.
    """

    curves: tuple[Curve, ...]
    batch: str | None
    others: tuple[str, ...]
    model: CostModel

    @classmethod
    def of(cls, costs: Sequence[BucketCost], batch: str | None) -> "Costs | None":
        """From what a pod measured while warming; None when that is nothing."""
        others = tuple(name for name in (costs[0].sizes if costs else ()) if name != batch)
        model = CostModel.of(costs, batch, others)
        if model is None:
            return None
        by_sizes: dict[tuple[int, ...], list[Point]] = {}
        for cost in costs:
            point = Point(cost.sizes[batch] if batch else 1, max(cost.seconds, LEAST_SECONDS))
            by_sizes.setdefault(tuple(cost.sizes[name] for name in others), []).append(point)
        curves = [_curve(dict(zip(others, sizes, strict=True)), points) for sizes, points in by_sizes.items()]
        return cls(tuple(sorted(curves, key=lambda curve: curve.cells)), batch, others, model)

    def seconds(self, rows: int, sizes: Sizes) -> float:
        """A run of `rows` rows of these sizes, as the pod's policy expects it. A size that is not known, because a step
        before the program makes it, counts as the largest.
        """
        largest = (axis[-1] for axis in self.model.axes[1:])
        return self.model(rows, tuple(sizes.get(name, most) for name, most in zip(self.others, largest, strict=True)))

    def buckets(self) -> dict[str, tuple[int, ...]]:
        """The sizes of each dimension that were measured."""
        found: dict[str, set[int]] = {}
        for curve in self.curves:
            for name, size in curve.sizes.items():
                found.setdefault(name, set()).add(size)
            if self.batch:
                found.setdefault(self.batch, set()).update(point.rows for point in curve.points)
        return {name: tuple(sorted(sizes)) for name, sizes in found.items()}

    def warm_seconds(self, buckets: Mapping[str, Sequence[int]]) -> float:
        """One run of every combination of these buckets."""
        total = 0.0
        others = [name for name in buckets if name != self.batch]
        for sizes in _combinations({name: buckets[name] for name in others}):
            total += sum(self.seconds(rows, sizes) for rows in (buckets[self.batch] if self.batch else (1,)))
        return total


def fit(points: Sequence[Point]) -> tuple[float, float]:
    """`fixed` and `per_row`, both at least 0, with the least squares of relative errors: a long run must not decide
    what a short one costs.
    """
    seconds = np.array([point.seconds for point in points])
    rows = np.array([float(point.rows) for point in points])
    candidates = []
    if len(set(rows.tolist())) > 1:
        weighted = np.stack([1 / seconds, rows / seconds], axis=1)
        solution, *_ = np.linalg.lstsq(weighted, np.ones(len(points)), rcond=None)
        if (solution >= 0).all():
            return float(solution[0]), float(solution[1])
    for column in (np.ones(len(points)), rows):  # the best with only one of the two
        share = column / seconds
        factor = float(share.sum() / (share @ share))
        candidates.append((float(((factor * share - 1) ** 2).sum()), factor))
    (without_rows, fixed), (without_fixed, per_row) = candidates
    return (fixed, 0.0) if without_rows < without_fixed else (0.0, per_row)


def _curve(sizes: Sizes, points: list[Point]) -> Curve:
    points = sorted(points, key=lambda point: point.rows)
    fixed, per_row = fit(points)
    error = max(abs((fixed + per_row * p.rows) / p.seconds - 1) for p in points)
    return Curve(sizes, tuple(points), fixed, per_row, error)


def _combinations(buckets: Mapping[str, Sequence[int]]) -> list[dict[str, int]]:
    combinations: list[dict[str, int]] = [{}]
    for name, sizes in buckets.items():
        combinations = [{**combination, name: size} for combination in combinations for size in sizes]
    return combinations
