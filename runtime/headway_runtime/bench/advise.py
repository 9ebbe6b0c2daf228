"""What follows from the cost curve and the load for `maxBatch`, `maxWait` and the shape buckets. Pure.

*maxBatch*: rows are cheaper together until the fixed share of a run is spread thin; beyond that a larger batch only
makes every request in it wait for more of the others. The smallest size within `WORTH` of the cheapest rows is advised,
and with a latency target no size of which two runs (the one that was under way, and one's own) take longer.

*maxWait*: waiting is worth it only when runs are nearly back to back and still small. While a run is under way the
next one fills by itself; at a rate at which that alone keeps the device below `BUSY`, waiting adds latency and nothing
else.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod

from headway_api.fields import MAX_BUCKETS
from headway_api.podconfig import Advice
from headway_api.units import format_duration

from headway_runtime.advice import SATURATED, WORKING
from headway_runtime.bench.buckets import choose, waste
from headway_runtime.bench.costs import Costs

MOST_SIZES = 8  # of a dimension
WORTH = 1.10  # cost of a row over that of the cheapest: less is not worth a larger batch
BUSY = 0.8  # share of the time in which runs are under way
QUIET = 0.5
DOUBTFUL = 1.5  # cost of a row over that in smaller runs


@dataclass(frozen=True, slots=True)
class Load:
    """What was measured, or is expected. `sizes`: of a fair sample of requests, the batch dimension included.

    `made_up`: dimensions whose sizes nobody gave, so that they say nothing of the requests that will come. `unpadded`:
    dimensions along which the pod joins only requests of equal size.
    """

    rate: float  # requests per second to be ready for
    saturation: float  # good answers per second at most
    sizes: Sequence[Mapping[str, int]]
    latency_target: float | None = None  # seconds, for 99 of 100 requests
    made_up: Collection[str] = ()
    unpadded: Collection[str] = ()


@dataclass(frozen=True, slots=True)
class Setting:
    """Knobs: rows, seconds."""

    max_batch: int
    max_wait: float


@dataclass(frozen=True, slots=True)
class Candidate:
    """A value of maxBatch and what it means, at the sizes that come: seconds of a full run, rows per second at most,
    cost of a row over that of the cheapest candidate, and the latency of a request that met a run under way.
    """

    max_batch: int
    run: float
    rows_per_second: float
    cost: float
    latency: float


@dataclass(frozen=True, slots=True)
class Advised:
    """`setting` and `buckets` as they should be; `why`: a sentence for each (maxBatch, maxWait, buckets), and one more
    when no knob would raise what can be answered.
    """

    reason: Advice
    setting: Setting
    buckets: Mapping[str, tuple[int, ...]]
    why: tuple[str, ...]
    candidates: tuple[Candidate, ...]
    changes_knobs: bool
    changes_buckets: bool


def advise(costs: Costs, load: Load, now: Setting) -> Advised:
    """Advice for a load, given the cost curve and the knobs in force."""
    candidates = _candidates(costs, load, now.max_batch)
    max_batch, why_batch = _max_batch(candidates, load)
    max_wait, why_wait = _max_wait(costs, load, max_batch)
    buckets, why_buckets = _buckets(costs, load, max_batch)
    setting = Setting(max_batch, max_wait)
    idle = 1 - _busy(costs, load, load.saturation, max_batch)
    return Advised(
        reason=_reason(candidates, _busy(costs, load, load.rate, now.max_batch), now, max_batch),
        setting=setting,
        buckets=buckets,
        why=(why_batch, why_wait, why_buckets, *([_elsewhere(load, idle)] if idle > QUIET else [])),
        candidates=candidates,
        changes_knobs=(max_batch, format_duration(max_wait)) != (now.max_batch, format_duration(now.max_wait)),
        changes_buckets=bool(buckets) and buckets != costs.buckets(),
    )


def doubtful(candidates: Sequence[Candidate]) -> str | None:
    """Why the curve cannot be true: rows that are much dearer together than alone were timed beside something else."""
    for fewer, more in pairwise(candidates):
        if more.cost > DOUBTFUL * fewer.cost:
            return (
                f"a run of {more.max_batch} rows took {more.run / fewer.run:.1f} times as long as one of "
                f"{fewer.max_batch} while the pod warmed: something else had the processors then. Do not trust the "
                "advice; start the pod again when they are free"
            )
    return None


def mean_run(costs: Costs, load: Load, rows: int) -> float:
    """Seconds of a run of `rows` rows, each request at its own size: what perfect grouping by size would give."""
    return sum(costs.seconds(rows, sizes) for sizes in load.sizes) / len(load.sizes)


def _candidates(costs: Costs, load: Load, now: int) -> tuple[Candidate, ...]:
    largest = costs.buckets().get(costs.batch, (1,))[-1] if costs.batch else 1
    sizes = set(costs.buckets().get(costs.batch or "", (1,))) | {1, min(now, largest)}
    runs = {rows: mean_run(costs, load, rows) for rows in sorted(sizes)}
    cheapest = min(run / rows for rows, run in runs.items())
    return tuple(Candidate(rows, run, rows / run, run / rows / cheapest, 2 * run) for rows, run in runs.items())


def _max_batch(candidates: Sequence[Candidate], load: Load) -> tuple[int, str]:
    worth = next(c for c in candidates if c.cost <= WORTH)
    largest = candidates[-1].max_batch
    if largest == 1:
        return 1, "maxBatch: requests run one at a time"
    told = f"a row in a run of {worth.max_batch} costs {candidates[0].cost / worth.cost:.2f} times less than alone; "
    if worth.max_batch == 1:
        told = f"rows are not cheaper together: a row in a run of {largest} costs x {candidates[-1].cost:.2f} the least"
    elif worth.max_batch == largest:
        told += "larger runs were not warmed"
    else:
        told += f"larger runs save less than {WORTH - 1:.0%} more"
    if load.latency_target is not None and worth.latency > load.latency_target:
        fitting = [c for c in candidates if c.latency <= load.latency_target and c.max_batch <= worth.max_batch]
        chosen = fitting[-1] if fitting else candidates[0]
        target = format_duration(load.latency_target)
        told = (
            f"the largest of which two runs, the one under way and one's own, fit into {target} ({_ms(chosen.latency)})"
            if fitting
            else f"not even two runs of one row fit into {target} ({_ms(chosen.latency)}): no knob reaches the target"
        )
        worth = chosen
    return worth.max_batch, f"maxBatch: {told}"


def _max_wait(costs: Costs, load: Load, max_batch: int) -> tuple[float, str]:
    """Seconds, and why."""
    batch, busy = _natural_batch(costs, load, load.rate * _rows(costs, load), max_batch)
    at = f"at {load.rate:.4g} requests/s"
    if max_batch == 1:
        return 0.0, "maxWait: with one row a run there is no company to wait for"
    if busy < BUSY:
        why = f"{at} runs are under way {busy:.0%} of the time: waiting would add latency and save nothing needed"
        return 0.0, f"maxWait: {why}"
    if batch >= max_batch / 2:
        why = f"{at} about {batch:.0f} rows come together by themselves, while the run before them is under way"
        return 0.0, f"maxWait: {why}"
    fixed = 2 * mean_run(costs, load, 1) - mean_run(costs, load, 2)  # what company saves at once
    wait = round(max(0.0, min(fixed, (load.latency_target or fixed) / 4)), 4)
    return wait, f"maxWait: {at} runs are back to back and small; each row that joins one saves {_ms(fixed)}"


def _natural_batch(costs: Costs, load: Load, rate: float, max_batch: int) -> tuple[float, float]:
    """Rows that a run finds waiting when the next one starts as soon as the last one ends, and the busy share."""
    rows = 1.0
    for _ in range(50):
        run = mean_run(costs, load, round(rows))
        rows = min(float(max_batch), max(1.0, rate * run))
    run = mean_run(costs, load, round(rows))
    return rows, min(1.0, rate * run / rows)


def _busy(costs: Costs, load: Load, rate: float, max_batch: int) -> float:
    """The share of the time in which runs are under way at `rate` requests per second."""
    return _natural_batch(costs, load, rate * _rows(costs, load), max_batch)[1]


def _rows(costs: Costs, load: Load) -> float:
    """Rows of a request, on average."""
    return sum(sizes.get(costs.batch, 1) if costs.batch else 1 for sizes in load.sizes) / len(load.sizes)


def _elsewhere(load: Load, idle: float) -> str:
    return (
        f"no knob of batching limits this model: at {load.saturation:.4g} requests/s, the most that was answered, no "
        f"run is under way {idle:.0%} of the time; reading and answering requests is what takes it: binary tensors, "
        "more rows in a request, or more replicas"
    )


def _buckets(costs: Costs, load: Load, max_batch: int) -> tuple[dict[str, tuple[int, ...]], str]:
    """Buckets and why. The largest of each dimension, the most that is admitted, is never lowered: a sample of requests
    does not say that larger ones will not come.
    """
    now = costs.buckets()
    if not now:
        return {}, "shapeBuckets: every size of this program is fixed"
    for at_most in range(MOST_SIZES, 0, -1):
        chosen, told = _sizes(costs, load, max_batch, at_most)
        if prod(map(len, chosen.values())) <= MAX_BUCKETS:
            break
    else:
        return now, f"shapeBuckets: as now, since better ones would combine to more than {MAX_BUCKETS}"
    cost = f"one run of each takes {_ms(costs.warm_seconds(chosen))}, of those now {_ms(costs.warm_seconds(now))}"
    return chosen, "shapeBuckets: " + "; ".join([*told, cost, "the largest, the most that is admitted, stays"])


def _sizes(costs: Costs, load: Load, max_batch: int, at_most: int) -> tuple[dict[str, tuple[int, ...]], list[str]]:
    """Sizes of every dimension, `at_most` of those that are chosen anew, and what to say of each."""
    chosen: dict[str, tuple[int, ...]] = {}
    told = []
    for name, sizes in costs.buckets().items():
        if name == costs.batch:
            chosen[name] = _batch_sizes(max_batch, warmed=sizes[-1], rows=max(each.get(name, 1) for each in load.sizes))
            continue
        observed = [request[name] for request in load.sizes if name in request]
        if (why := _as_now(name, observed, load)) is not None:
            chosen[name] = sizes
            told.append(f"{name} as now: {why}")
            continue
        largest = max(*observed, sizes[-1])  # a size that is rounded up may be beyond what the program takes
        chosen[name] = tuple(sorted({*(min(size, largest) for size in choose(observed, at_most=at_most)), sizes[-1]}))
        told.append(
            f"{name} as requests have it ({min(observed)} to {max(observed)}, padded {_waste(observed, chosen[name])})"
        )
    return chosen, told


def _as_now(name: str, observed: Sequence[int], load: Load) -> str | None:
    """Why the buckets of a dimension should stay as they are."""
    if not observed:
        return "a step before the program makes it, and its costs count at the largest"
    if name in load.unpadded:
        return "requests are not padded along it, so its sizes only say what is warmed and admitted"
    if name in load.made_up:
        return "its sizes were made up here; give yours with --sizes or --samples"
    return None


def _batch_sizes(max_batch: int, *, warmed: int, rows: int) -> tuple[int, ...]:
    """Batch buckets: the largest is the ceiling of a hot knob and of a request's rows. Where larger runs were never
    measured and might be better, one is.
    """
    ceiling = max(rows, 2 * max_batch if max_batch == warmed > 1 else warmed)
    return tuple(sorted({1, max_batch, ceiling, *(2**power for power in range(2, 16) if 2**power < ceiling)}))


def _reason(candidates: Sequence[Candidate], busy: float, now: Setting, advised: int) -> Advice:
    in_force = next((c for c in candidates if c.max_batch == now.max_batch), candidates[-1])
    if busy >= WORKING and in_force.cost > WORTH and advised > now.max_batch:
        return Advice.UNDER_BATCHED
    return Advice.SATURATED if busy >= SATURATED else Advice.BALANCED


def _waste(observed: Sequence[int], sizes: Sequence[int]) -> str:
    return f"+{waste(observed, sizes) - 1:.0%}"


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms"
