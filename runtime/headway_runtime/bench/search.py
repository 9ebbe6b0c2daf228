"""The highest rate whose latency fits: bisection between a rate that fits and one that does not. Pure."""

import math
from dataclasses import dataclass, field

CLOSE = 1.05  # the two rates are this near: the search is over


@dataclass(slots=True)
class RateSearch:
    """Ask `next_rate`, measure, `tell`, until `next_rate` is None. Rates in requests per second.

    `guess`: where to begin, such as half of what a closed loop reached. Outside the first bracket it goes by factors of
    1.5, inside by halves of the logarithm, at most `trials` times.
    """

    guess: float
    trials: int = 8
    best: float | None = None  # the highest that fitted
    worst: float | None = None  # the lowest that did not
    told: list[tuple[float, bool]] = field(default_factory=list)

    def next_rate(self) -> float | None:
        """What to measure next."""
        if len(self.told) >= self.trials:
            return None
        if self.best is None and self.worst is None:
            return self.guess
        if self.worst is None:
            assert self.best is not None
            return self.best * 1.5
        if self.best is None:
            return self.worst / 2
        return None if self.worst / self.best < CLOSE else math.sqrt(self.best * self.worst)

    def tell(self, rate: float, *, fits: bool) -> None:
        """What the measurement said. A rate that fitted below one that did not: the nearest pair counts."""
        self.told.append((rate, fits))
        if fits:
            self.best = rate if self.best is None else max(self.best, rate)
        else:
            self.worst = rate if self.worst is None else min(self.worst, rate)
        if self.best is not None and self.worst is not None and self.best >= self.worst:
            self.best = max((r for r, good in self.told if good and r < self.worst), default=None)
