"""What the load of the last minutes says of the knobs: `recommend`, a list of rules, of which the first that applies
speaks. Pure.

Round numbers are advised (a warmed batch; 1, 2 or 5 times a power of ten), so that the advice does not move with every
look, and the pods of one version say the same.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import ceil

from headway_api.podconfig import Advice, Recommendation
from headway_api.units import format_duration

from headway_runtime.batching.policy import Cost, Limits

ENOUGH_SECONDS = 60.0
ENOUGH_RUNS = 50

SATURATED = 0.9  # share of the time that the device is busy
WORKING = 0.4
IDLE = 0.3
REJECTING = 0.01  # share of the requests
FULL = 0.8  # share of maxBatch from which on a run is full
WORTHWHILE = 0.1  # share of a row's cost that a change must save
TARGET_USE = 0.7  # what replicas are advised for
_WAITS = tuple(step * 10.0**power for power in range(-4, 1) for step in (1, 2, 5))  # 100 us to 5 s


@dataclass(frozen=True, slots=True)
class Window:
    """What happened, and under which knobs. Times in seconds.

    `runs`: how many there were, by their rows. `busy`: in runs, of all instances together. `sizes`: padded sizes of a
    row, on average. `rejected`: requests for which the line was full or took too long. `batches`: the warmed numbers
    of rows, ascending. `cost`: of a run; None: not known.
    """

    seconds: float
    instances: int
    requests: int
    rejected: int
    busy: float
    runs: Mapping[int, int]
    sizes: tuple[int, ...]
    queue_p50: float
    queue_p99: float
    request_p99: float
    limits: Limits
    batches: tuple[int, ...]
    cost: Cost | None

    @property
    def count(self) -> int:
        """Runs."""
        return sum(self.runs.values())

    @property
    def rows(self) -> int:
        """Rows of all runs."""
        return sum(rows * count for rows, count in self.runs.items())

    @property
    def mean_rows(self) -> float:
        """Rows of a run."""
        return self.rows / self.count

    @property
    def use(self) -> float:
        """Share of the time that the device is busy."""
        return self.busy / (self.seconds * self.instances)

    @property
    def full(self) -> float:
        """Share of the runs that are full."""
        bound = FULL * self.limits.max_batch
        return sum(count for rows, count in self.runs.items() if rows >= bound) / self.count

    @property
    def turned_away(self) -> float:
        """Share of the requests that were rejected."""
        return self.rejected / max(1, self.requests + self.rejected)

    def saving(self, rows: int) -> float:
        """Share of a row's cost that runs of `rows` rows would save."""
        if self.cost is None:
            return 0.0
        usual = max(1, round(self.mean_rows))
        return 1 - self.cost(rows, self.sizes) / rows / (self.cost(usual, self.sizes) / usual)


def recommend(window: Window) -> Recommendation | None:
    """What to set, and why; None when too little was seen to say anything."""
    if window.seconds < ENOUGH_SECONDS or window.count < ENOUGH_RUNS:
        return None
    return next(found for rule in RULES if (found := rule(window)) is not None)


def _saturated(window: Window) -> Recommendation | None:
    """More comes than can be done: larger runs if they are cheaper, else more pods."""
    overrun = window.turned_away >= REJECTING and window.use >= TARGET_USE
    if window.use < SATURATED and not overrun:
        return None
    larger = _larger(window)
    if larger is not None:
        return Recommendation(
            reason=Advice.SATURATED, message=f"{_load(window)}; {_why_larger(window, larger)}", max_batch=larger
        )
    more = ceil(10 * (window.use / (1 - window.turned_away) / TARGET_USE - 1)) * 10
    message = f"{_load(window)}; larger runs would not help: about {more} % more replicas bring it to 70 %"
    return Recommendation(reason=Advice.SATURATED, message=message)


def _full_runs(window: Window) -> Recommendation | None:
    """The device works, its runs are full, and larger ones are cheaper."""
    larger = _larger(window) if window.use >= WORKING else None
    if larger is None:
        return None
    message = f"{_load(window)}; {_why_larger(window, larger)}"
    return Recommendation(reason=Advice.UNDER_BATCHED, message=message, max_batch=larger)


def _small_runs(window: Window) -> Recommendation | None:
    """The device works, its runs are small, and a wait of no more than two runs would make them twice as large."""
    if window.use < WORKING or window.cost is None or window.mean_rows > window.limits.max_batch / 2:
        return None
    rows = min(window.limits.max_batch, round(2 * window.mean_rows))
    wait = _round((rows - window.mean_rows) * window.seconds / window.rows)
    if wait <= window.limits.max_wait or wait > 2 * window.cost(rows, window.sizes):
        return None
    saving = window.saving(rows)
    if saving < WORTHWHILE:
        return None
    message = (
        f"{_load(window)}; with maxWait {_ms(wait)} instead of {_ms(window.limits.max_wait)} runs of about {rows} rows "
        f"come together, in which a row costs {saving:.0%} less; a request then waits up to so much longer"
    )
    return Recommendation(reason=Advice.UNDER_BATCHED, message=message, max_wait=format_duration(wait))


def _waits_in_vain(window: Window) -> Recommendation | None:
    """The device has time, and requests wait for company that does not come."""
    wait = window.limits.max_wait
    if not wait or window.use > IDLE or window.mean_rows > 1.2 or window.queue_p50 < FULL * wait:
        return None
    message = (
        f"{_load(window)}; half of the requests wait {_ms(window.queue_p50)} or longer for company that does not "
        "come: without maxWait they would be answered so much sooner"
    )
    return Recommendation(reason=Advice.BALANCED, message=message, max_wait=format_duration(0))


def _balanced(window: Window) -> Recommendation | None:
    return Recommendation(reason=Advice.BALANCED, message=_load(window))


RULES: tuple[Callable[[Window], Recommendation | None], ...] = (
    _saturated,
    _full_runs,
    _small_runs,
    _waits_in_vain,
    _balanced,
)


def _larger(window: Window) -> int | None:
    """The smallest warmed batch beyond maxBatch that gives most of what larger ones could, if runs are full now."""
    if window.full < 0.5:
        return None
    savings = {rows: window.saving(rows) for rows in window.batches if rows > window.limits.max_batch}
    most = max(savings.values(), default=0.0)
    if most < WORTHWHILE:
        return None
    return next(rows for rows, saving in savings.items() if saving >= FULL * most)


def _why_larger(window: Window, rows: int) -> str:
    saving = f"with maxBatch {rows} a row costs {window.saving(rows):.0%} less"
    return f"{window.full:.0%} of the runs are full (maxBatch {window.limits.max_batch}); {saving}"


def _load(window: Window) -> str:
    away = f", {window.turned_away:.1%} of the requests are turned away" if window.rejected else ""
    return (
        f"in {window.seconds / 60:.0f} min the device was busy {window.use:.0%} of the time, with "
        f"{window.mean_rows:.1f} rows in a run; p99 of requests {_ms(window.request_p99)}, of their waiting "
        f"{_ms(window.queue_p99)}{away}"
    )


def _round(seconds: float) -> float:
    """The nearest round wait."""
    return min(_WAITS, key=lambda wait: max(wait / seconds, seconds / wait))


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms"
