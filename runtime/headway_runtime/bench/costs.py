"""The cost curve: what one run takes by its rows and sizes, as the pod measured it while warming. Pure.

A run costs something whatever it holds (Python, kernel launches, reading the weights) and something for each row; the
first share is what batching saves. `fit` finds both for each size of the other dimensions, `Costs.seconds` reads any
run off the measured points.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

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

    def seconds(self, rows: int) -> float:
        """A run of so many rows: on the line that joins two points, beyond them in proportion to the fit."""
        first, last = self.points[0], self.points[-1]
        if rows <= first.rows:
            return first.seconds * self._fitted(rows) / self._fitted(first.rows)
        if rows >= last.rows:
            return last.seconds * self._fitted(rows) / self._fitted(last.rows)
        return float(np.interp(rows, [p.rows for p in self.points], [p.seconds for p in self.points]))

    def _fitted(self, rows: int) -> float:
        return self.fixed + self.per_row * rows


@dataclass(frozen=True, slots=True)
class Costs:
    """All curves, by ascending cells. `batch`: the dimension of rows; None when requests run one at a time."""

    curves: tuple[Curve, ...]
    batch: str | None

    @classmethod
    def of(cls, costs: Iterable[tuple[Sizes, float]], batch: str | None) -> "Costs":
        """From sizes by dimension, the batch included, and seconds."""
        by_sizes: dict[tuple[tuple[str, int], ...], list[Point]] = {}
        for sizes, seconds in costs:
            others = tuple((name, size) for name, size in sizes.items() if name != batch)
            by_sizes.setdefault(others, []).append(Point(sizes[batch] if batch else 1, max(seconds, 1e-9)))
        curves = [_curve(dict(sizes), points) for sizes, points in by_sizes.items()]
        return cls(tuple(sorted(curves, key=lambda curve: curve.cells)), batch)

    def seconds(self, rows: int, sizes: Sizes) -> float:
        """A run of `rows` rows of these sizes: between the nearest measured ones, by what a row holds."""
        cells = prod(size for name, size in sizes.items() if name != self.batch)
        at = [curve.cells for curve in self.curves]
        return float(np.interp(cells, at, [curve.seconds(rows) for curve in self.curves]))

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
