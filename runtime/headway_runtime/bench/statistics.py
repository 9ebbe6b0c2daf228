"""Percentiles and summaries of what was measured. Pure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

PERCENTILES = (50.0, 90.0, 99.0, 99.9)


def percentile(ordered: Sequence[float], percent: float, *, lost: int = 0) -> float:
    """The nearest-rank percentile of an ascending sequence: the least value that at least `percent` per cent do not
    exceed. `lost` more observations count as greater than any: what was never answered took for ever.

    NaN without observations; infinity when the rank falls among the lost.
    """
    count = len(ordered) + lost
    if count == 0:
        return math.nan
    rank = max(1, math.ceil(round(percent / 100 * count, 9)))
    return ordered[rank - 1] if rank <= len(ordered) else math.inf


@dataclass(frozen=True, slots=True)
class Summary:
    """Latencies in seconds: of answered requests only, apart from `p99_all`, for which the lost count as infinite."""

    count: int
    mean: float
    p50: float
    p90: float
    p99: float
    p999: float
    most: float
    p99_all: float

    @property
    def supports_p999(self) -> bool:
        """Whether there are enough observations for the last percentile to differ from the greatest."""
        return self.count >= 1000


def summarise(latencies: Sequence[float], *, lost: int = 0) -> Summary:
    """The summary of latencies in any order. `lost`: requests without a good answer."""
    ordered = sorted(latencies)
    mean = math.fsum(ordered) / len(ordered) if ordered else math.nan
    p50, p90, p99, p999 = (percentile(ordered, percent) for percent in PERCENTILES)
    most = ordered[-1] if ordered else math.nan
    return Summary(len(ordered), mean, p50, p90, p99, p999, most, percentile(ordered, 99, lost=lost))


def cumulative(latencies: Sequence[float], points: int = 400) -> tuple[list[float], list[float]]:
    """Latencies, and the share of requests that took no longer: at most `points` of them, the last ones always."""
    ordered = sorted(latencies)
    count = len(ordered)
    if not count:
        return [], []
    # evenly in "nines": a plot of tails needs most of its points where few requests are
    ranks = sorted({min(count, max(1, round(count * (1 - count ** (-i / points))))) for i in range(points)} | {count})
    return [ordered[rank - 1] for rank in ranks], [rank / count for rank in ranks]
