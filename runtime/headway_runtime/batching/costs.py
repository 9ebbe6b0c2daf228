"""What a run costs: from the buckets measured while warming to any number of rows and any padded sizes.

Between measured buckets the cost is interpolated, linearly along each axis. Beyond the last it grows in proportion;
below the first it falls on the line of the first two, never faster than in proportion. Timing noise only adds: where a
larger bucket ran faster than a smaller one, the smaller one's time was noise, and the larger one's is taken. So the
cost never falls as a run grows. `Observed` corrects it by what real runs take.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import exp, log, prod
from statistics import median

from headway_api.podconfig import BucketCost

from headway_runtime.batching.grouping import Sizes

LEAST_SECONDS = 1e-6
_REMEMBERED = 65_536

Point = tuple[int, ...]
"""Rows, then the padded sizes."""

Axes = tuple[tuple[int, ...], ...]
"""The ascending sizes along each axis of a table: rows first, then each padded dimension."""


@dataclass(frozen=True, slots=True)
class CostModel:
    """Seconds of a run with so many rows, padded to such sizes. Ask it by calling it.

    `axes` are the measured numbers of rows and the measured sizes of each padded dimension, ascending; `seconds` has
    every combination of them. With `stepped` a run is padded up to a bucket, and costs what the bucket costs.
    """

    axes: Axes
    seconds: Mapping[Point, float]
    stepped: bool = False
    _known: dict[Point, float] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def of(
        cls, costs: Sequence[BucketCost], batch: str | None, padded: Sequence[str] = (), *, stepped: bool = False
    ) -> "CostModel | None":
        """From what was measured while warming; None when nothing was.

        `batch` is the dimension of the rows (None: runs have one row), `padded` those along which requests are padded.
        Other dimensions count at their largest size.
        """
        measured: dict[Point, tuple[int, float]] = {}
        for cost in costs:
            names = (batch, *padded)
            point = tuple(1 if name is None else cost.sizes[name] for name in names)
            rest = prod(size for name, size in cost.sizes.items() if name not in names)
            measured[point] = max(measured.get(point, (0, 0.0)), (rest, cost.seconds))
        if not measured:
            return None
        axes = tuple(tuple(sorted(set(axis))) for axis in zip(*measured, strict=True))
        known = {point: max(seconds, LEAST_SECONDS) for point, (_, seconds) in measured.items()}
        seconds = _monotone(axes, _completed(axes, known))
        if not stepped:
            axes, seconds = _from_one(axes, seconds)
        return cls(axes, seconds, stepped)

    def __call__(self, rows: int, sizes: Sizes = ()) -> float:
        """Seconds, more than 0."""
        point = (rows, *sizes)
        found = self._known.get(point)
        if found is None:
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            found = self._known[point] = self._step(point) if self.stepped else self._interpolate(point)
        return found

    def covering(self, point: Point) -> Point:
        """The smallest bucket that holds it; beyond the largest, the largest."""
        return tuple(
            axis[min(bisect_left(axis, size), len(axis) - 1)] for axis, size in zip(self.axes, point, strict=True)
        )

    def scaled(self, factor: Callable[[Point], float]) -> "CostModel":
        """Every bucket's cost times `factor(bucket)`, and made to grow again."""
        seconds = {point: value * factor(point) for point, value in self.seconds.items()}
        return CostModel(self.axes, _monotone(self.axes, seconds), self.stepped)

    def _step(self, point: Point) -> float:
        bucket = self.covering(point)
        beyond = prod(max(1.0, size / last) for size, last in zip(point, bucket, strict=True))
        return self.seconds[bucket] * beyond

    def _interpolate(self, point: Point) -> float:
        """The weighted mean of the corners around the point."""
        spans = [_span(axis, size) for axis, size in zip(self.axes, point, strict=True)]
        value = 0.0
        for corner in product(*(span.ends for span in spans)):
            value += prod(weight for _, weight in corner) * self.seconds[tuple(size for size, _ in corner)]
        return value * prod(span.beyond for span in spans)


@dataclass(frozen=True, slots=True)
class _Span:
    """Where a size lies on an axis: the measured sizes around it with their weights, and the factor beyond the last."""

    ends: tuple[tuple[int, float], ...]
    beyond: float = 1.0


def _span(axis: tuple[int, ...], size: int) -> _Span:
    if size >= axis[-1] or len(axis) == 1:
        return _Span(((axis[-1], 1.0),), max(1.0, size / axis[-1]))
    upper = max(1, bisect_left(axis, size))
    low, high = axis[upper - 1], axis[upper]
    share = max(0.0, (size - low) / (high - low))
    return _Span(((low, 1 - share), (high, share)))


def _completed(axes: Axes, known: Mapping[Point, float]) -> dict[Point, float]:
    """Combinations that the program does not allow get the cost of the nearest measured one, in proportion."""

    def guess(point: Point) -> float:
        def distance(other: Point) -> float:
            return sum(max(a, b) / min(a, b) for a, b in zip(point, other, strict=True))

        nearest = min(known, key=distance)
        return known[nearest] * prod(point) / prod(nearest)

    return {point: known[point] if point in known else guess(point) for point in product(*axes)}


def _from_one(
    axes: tuple[tuple[int, ...], ...], seconds: Mapping[Point, float]
) -> tuple[tuple[tuple[int, ...], ...], dict[Point, float]]:
    """With size 1 on every axis that has two sizes or more: on the line of the first two, or in proportion."""
    grown = dict(seconds)
    for number, axis in enumerate(axes):
        if len(axis) == 1 or axis[0] == 1:
            continue
        first, second = axis[:2]
        axes = (*axes[:number], (1, *axis), *axes[number + 1 :])
        for point in [point for point in grown if point[number] == first]:
            here, there = grown[point], grown[(*point[:number], second, *point[number + 1 :])]
            line = here - (there - here) * (first - 1) / (second - first)
            grown[(*point[:number], 1, *point[number + 1 :])] = max(line, here / first)
    return axes, _monotone(axes, grown)


def _monotone(axes: Axes, seconds: Mapping[Point, float]) -> dict[Point, float]:
    """The largest costs that are no larger than the given ones and never fall along an axis."""
    grown: dict[Point, float] = {}
    for point in product(*(axis[::-1] for axis in axes)):
        grown[point] = min([seconds[point], *(grown[larger] for larger in _following(axes, point))])
    return grown


def _following(axes: Axes, point: Point) -> Iterator[Point]:
    for number, (axis, size) in enumerate(zip(axes, point, strict=True)):
        at = axis.index(size) + 1
        if at < len(axis):
            yield (*point[:number], axis[at], *point[number + 1 :])


def rows_within(target: float, cost: Callable[[int, Sizes], float], sizes: Sizes, most: int) -> int:
    """The largest number of rows, of at most `most`, whose run at these sizes takes no longer than `target` seconds; at
    least 1. It is what `latencyTarget` makes of `maxBatch` (Clipper, NSDI 2017, section 4.3: there learned by trial).
    """
    return max(1, bisect_left(range(1, most + 1), True, key=lambda rows: cost(rows, sizes) > target))


@dataclass(slots=True)
class Observed:
    """Real runs against the warm-up: for each bucket a moving average of measured / predicted.

    Warm inputs are synthetic and the machine was loading a model, so the curve may be off, and not equally everywhere.
    The average is the geometric mean: a run of 20 us that stands still for 5 ms, because others have the processor,
    would count in the arithmetic one like 250 runs.
    """

    model: CostModel
    ratios: dict[Point, float] = field(default_factory=dict)  # their logarithms
    counts: dict[Point, int] = field(default_factory=dict)

    KEEP = 0.95  # of the average, for each run
    ENOUGH = 8  # runs of a bucket before it counts

    def ran(self, rows: int, sizes: Sizes, seconds: float) -> None:
        """A run took `seconds`."""
        bucket = self.model.covering((rows, *sizes))
        ratio = log(max(seconds, LEAST_SECONDS) / self.model(rows, sizes))
        count = self.counts.get(bucket, 0)
        keep = min(self.KEEP, count / (count + 1))  # the plain mean at first
        self.ratios[bucket] = keep * self.ratios.get(bucket, 0.0) + (1 - keep) * ratio
        self.counts[bucket] = count + 1

    def corrected(self) -> CostModel:
        """The curve as observed. Buckets with too few runs are scaled like the others."""
        ratios = {bucket: exp(self.ratios[bucket]) for bucket, count in self.counts.items() if count >= self.ENOUGH}
        if not ratios:
            return self.model
        usual = median(ratios.values())
        return self.model.scaled(lambda bucket: ratios.get(bucket, usual))
