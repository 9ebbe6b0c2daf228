"""The load of the last minutes, in a ring of short cells: what `advice` looks at. No clock: time is passed in.

Fed once for each run and each refusal, on the event loop. The minutes end with the latest of them: a pod that nobody
asks any more goes on to say what its latest load said, so that silence is no news.
"""

from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from headway_runtime.advice import Window
from headway_runtime.batching.policy import Cost, Limits
from headway_runtime.batching.work import RunRecord

CELL_SECONDS = 10.0
CELLS = 30  # five minutes

_LEAST = 1e-5  # seconds; what is shorter counts as this
_STEPS = 170  # up to 100 s
_BOUNDS = tuple(_LEAST * 1.1**step for step in range(1, _STEPS))  # quantiles are exact to 5 %


@dataclass(slots=True)
class _Cell:
    began: float
    requests: int = 0
    rows: int = 0
    busy: float = 0.0
    rejected: int = 0
    runs: Counter[int] = field(default_factory=Counter)  # by their rows
    weighted: list[float] = field(default_factory=list)  # padded sizes, times rows
    waits: list[int] = field(default_factory=lambda: [0] * _STEPS)
    times: list[int] = field(default_factory=lambda: [0] * _STEPS)  # waits and runs together


class Recent:
    """`batch` and `padded` are the dimensions of the layout; `began` is when the pod was ready."""

    def __init__(self, batch: str | None, padded: Sequence[str], *, began: float) -> None:
        self._padded = tuple(padded)
        self._cells: deque[_Cell] = deque([_Cell(began)], maxlen=CELLS)
        self._latest = began

    def ran(self, record: RunRecord, waits: Sequence[float], now: float) -> None:
        """A run ended at `now`; `waits` are the seconds that its answered requests had waited."""
        cell = self._cell(now)
        cell.requests += record.requests
        cell.rows += record.rows
        cell.busy += record.seconds
        cell.runs[record.rows] += 1
        sizes = [record.sizes[name] * float(record.rows) for name in self._padded]
        cell.weighted = [a + b for a, b in zip(cell.weighted, sizes, strict=True)] if cell.weighted else sizes
        for wait in waits:
            cell.waits[bisect_right(_BOUNDS, wait)] += 1
            cell.times[bisect_right(_BOUNDS, wait + record.seconds)] += 1

    def refused(self, now: float) -> None:
        """A request was turned away because the line was full, or ran out of time in it."""
        self._cell(now).rejected += 1

    def window(self, *, limits: Limits, batches: Sequence[int], instances: int, cost: Cost | None) -> Window:
        """All that is remembered. `batches` are the warmed numbers of rows."""
        cells = self._cells
        rows = sum(cell.rows for cell in cells)
        totals = [sum(column) for column in zip(*(cell.weighted for cell in cells if cell.weighted), strict=True)]
        return Window(
            seconds=self._latest - cells[0].began,
            instances=instances,
            requests=sum(cell.requests for cell in cells),
            rejected=sum(cell.rejected for cell in cells),
            busy=sum(cell.busy for cell in cells),
            runs=sum((cell.runs for cell in cells), Counter()),
            sizes=tuple(max(1, round(total / rows)) for total in totals),
            queue_p50=_quantile(0.5, [cell.waits for cell in cells]),
            queue_p99=_quantile(0.99, [cell.waits for cell in cells]),
            request_p99=_quantile(0.99, [cell.times for cell in cells]),
            limits=limits,
            batches=tuple(batches),
            cost=cost,
        )

    def _cell(self, now: float) -> _Cell:
        self._latest = now
        newest = self._cells[-1]
        if now - newest.began < CELL_SECONDS:
            return newest
        passed = int((now - newest.began) / CELL_SECONDS)
        for number in range(max(1, passed - CELLS + 1), passed + 1):  # also those in which nothing ran
            self._cells.append(_Cell(newest.began + number * CELL_SECONDS))
        return self._cells[-1]


def _quantile(share: float, counts: Sequence[Sequence[int]]) -> float:
    """Seconds; the middle of the step in which the quantile lies. 0 when nothing was counted."""
    merged = [sum(column) for column in zip(*counts, strict=True)]
    left = share * sum(merged)
    if not left:
        return 0.0
    for step, count in enumerate(merged):
        left -= count
        if left <= 0:
            return float(_LEAST * 1.1 ** (step + 0.5))
    raise AssertionError("the counts add up to their sum")
