"""What requests look like and what is answered, against the golden samples: running statistics of a few requests.

Sampled by time: a request is looked at only when all looking so far has taken less than `SHARE` of the time since, and
of a large tensor only some elements. What is shown is of the latest `EPOCH` to twice as many requests, so that it moves
with the traffic of a pod that has run for months. On the event loop.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import inf, sqrt
from time import perf_counter

import torch
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

Tensors = Sequence[torch.Tensor]

SHARE = 0.01  # of the time
EPOCH = 256  # requests
ELEMENTS = 16_384  # of one tensor
TENSORS = 16  # inputs, and outputs, that are looked at: a series for each statistic of each
CLASSES = 1000  # a longer last axis is not taken for classes
BINS = 32  # more classes than this are counted in ranges


@dataclass(slots=True)
class Statistics:
    """Of numbers: how many, their mean, sum of squared differences from it, range, and how many were not finite or
    outside of a given range.
    """

    count: int = 0
    mean: float = 0.0
    squares: float = 0.0
    least: float = inf
    most: float = -inf
    odd: int = 0
    outside: int = 0

    @classmethod
    def of(cls, tensor: torch.Tensor, expected: "Statistics | None" = None) -> "Statistics":
        """Of some elements of a tensor; `expected` has the range beyond which they are counted as outside."""
        flat = tensor.reshape(-1)
        flat = flat[:: -(-flat.numel() // ELEMENTS) or 1].to(torch.float64)
        values = flat[torch.isfinite(flat)]
        odd = flat.numel() - values.numel()
        if not values.numel():
            return cls(odd=odd)
        spread, mean = torch.var_mean(values, correction=0)
        least, most = torch.aminmax(values)
        outside = 0
        if expected is not None and expected.count and (least < expected.least or most > expected.most):
            outside = int(((values < expected.least) | (values > expected.most)).sum())
        count = values.numel()
        return cls(count, float(mean), float(spread) * count, float(least), float(most), odd, outside)

    def __add__(self, other: "Statistics") -> "Statistics":
        """Of both together (Chan, Golub and LeVeque, 1979)."""
        count = self.count + other.count
        apart = other.mean - self.mean
        return Statistics(
            count,
            self.mean + apart * other.count / count if count else 0.0,
            self.squares + other.squares + (apart * apart * self.count * other.count / count if count else 0.0),
            min(self.least, other.least),
            max(self.most, other.most),
            self.odd + other.odd,
            self.outside + other.outside,
        )

    @property
    def deviation(self) -> float:
        """The standard deviation."""
        return sqrt(self.squares / self.count) if self.count else 0.0

    def shown(self) -> dict[str, float]:
        """By name; nothing when no number was seen."""
        if not self.count + self.odd:
            return {}
        shares = {"not_finite": self.odd / (self.count + self.odd)}
        if not self.count:
            return shares
        outside = self.outside / self.count
        return {
            "mean": self.mean,
            "std": self.deviation,
            "min": self.least,
            "max": self.most,
            "outside": outside,
            **shares,
        }

    def shift(self, expected: "Statistics") -> float:
        """How far the mean has moved from the expected one, in its standard deviations (its means, or ones, where that
        is 0).
        """
        return abs(self.mean - expected.mean) / (expected.deviation or abs(expected.mean) or 1.0)


@dataclass(slots=True)
class _Watched:
    """One input or output: what is expected of it, and what was seen in this epoch and the one before."""

    role: str
    name: str
    expected: Statistics = field(default_factory=Statistics)
    earlier: Statistics = field(default_factory=Statistics)
    latest: Statistics = field(default_factory=Statistics)
    classes: list[int] = field(default_factory=list)  # predictions by class, or by range of classes, since the start
    size: int = 0  # of the axis that is taken for classes

    @property
    def width(self) -> int:
        """Classes of a range."""
        return -(-self.size // BINS)

    def see(self, tensor: torch.Tensor) -> None:
        if tensor.is_complex():
            return
        self.latest += Statistics.of(tensor, self.expected)
        size = tensor.shape[-1] if tensor.ndim >= 2 else 0
        if self.role == "output" and tensor.is_floating_point() and 2 <= size <= CLASSES:
            self._count(tensor.reshape(-1, size)[: max(1, ELEMENTS // size)].argmax(-1), size)

    def _count(self, predictions: torch.Tensor, size: int) -> None:
        if not self.classes:
            self.size = size
            self.classes = [0] * -(-size // self.width)
        if size != self.size:  # an axis that varies does not hold classes
            return
        for place, count in enumerate(torch.bincount(predictions // self.width).tolist()):
            self.classes[place] += count

    def class_name(self, place: int) -> str:
        first = place * self.width
        last = min(first + self.width, self.size) - 1
        return str(first) if first == last else f"{first}-{last}"


class Drift:
    """Statistics of a program's inputs and outputs, by their names."""

    def __init__(self, inputs: Sequence[str], outputs: Sequence[str]) -> None:
        self._inputs = [_Watched("input", name) for name in inputs[:TENSORS]]
        self._outputs = [_Watched("output", name) for name in outputs[:TENSORS]]
        self._next = -inf
        self.samples = 0

    @property
    def watched(self) -> Sequence[_Watched]:
        """Inputs, then outputs."""
        return (*self._inputs, *self._outputs)

    def expect(self, inputs: Tensors, outputs: Tensors) -> None:
        """A golden sample: what is usual."""
        for watched, tensor in self._pairs(inputs, outputs):
            if not tensor.is_complex():
                watched.expected += Statistics.of(tensor)

    def due(self, now: float) -> bool:
        """Whether to look at a request."""
        return now >= self._next

    def see(self, inputs: Tensors, outputs: Tensors, now: float) -> None:
        """Look at a request and its answer; real rows only, in the program's order. `now` is of time.monotonic()."""
        began = perf_counter()
        if self.samples and self.samples % EPOCH == 0:
            for watched in self.watched:
                watched.earlier, watched.latest = watched.latest, Statistics()
        self.samples += 1
        for watched, tensor in self._pairs(inputs, outputs):
            watched.see(tensor)
        self._next = now + (perf_counter() - began) / SHARE

    def _pairs(self, inputs: Tensors, outputs: Tensors) -> Iterable[tuple[_Watched, torch.Tensor]]:
        yield from zip(self._inputs, inputs, strict=False)
        yield from zip(self._outputs, outputs, strict=False)


class DriftCollector(Collector):
    """For Prometheus: what `shown` has seen; without one, no samples."""

    def __init__(self) -> None:
        self.shown: Drift | None = None

    def collect(self) -> Iterable[Metric]:
        """Built when asked for."""
        samples = CounterMetricFamily("headway_drift_samples", "Requests that were looked at for drift.")
        seen = _gauge("headway_drift_seen", "Statistics of the latest requests that were looked at.", "statistic")
        expected = _gauge("headway_drift_expected", "The same of the golden samples.", "statistic")
        shift = _gauge("headway_drift_shift", "How far the mean is from the expected one, in standard deviations.")
        predictions = CounterMetricFamily(
            "headway_predictions", "The largest of an output's last axis, by class.", labels=["output", "class"]
        )
        if self.shown is not None:
            samples.add_metric([], self.shown.samples)
        for watched in self.shown.watched if self.shown is not None else ():
            labels, found = [watched.role, watched.name], watched.earlier + watched.latest
            for family, statistics in ((seen, found), (expected, watched.expected)):
                for name, value in statistics.shown().items():
                    family.add_metric([*labels, name], value)
            if found.count and watched.expected.count:
                shift.add_metric(labels, found.shift(watched.expected))
            for place, count in enumerate(watched.classes):
                predictions.add_metric([watched.name, watched.class_name(place)], count)
        return samples, seen, expected, shift, predictions


def _gauge(name: str, text: str, *more: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, text, labels=["role", "tensor", *more])
