"""What a load says of the knobs, and how the load is remembered."""

import re
from dataclasses import replace

import pytest
from headway_api.podconfig import Advice
from headway_api.units import DURATION_PATTERN
from headway_runtime.advice import Window, recommend
from headway_runtime.batching.policy import Limits
from headway_runtime.batching.target import Within
from headway_runtime.batching.work import RunRecord
from headway_runtime.recent import CELL_SECONDS, CELLS, Recent


def affine(rows: int, sizes: tuple[int, ...]) -> float:
    """5 ms for a run and 1 ms for each row."""
    return 5e-3 + 1e-3 * rows


def linear(rows: int, sizes: tuple[int, ...]) -> float:
    return 6e-3 * rows


def window(runs: dict[int, int], **changes: object) -> Window:
    """A minute under maxBatch 8 and maxWait 2 ms, as far as not changed."""
    busy = sum(count * affine(rows, ()) for rows, count in runs.items())
    made = Window(
        seconds=60,
        instances=1,
        requests=sum(rows * count for rows, count in runs.items()),
        rejected=0,
        busy=busy,
        runs=runs,
        sizes=(),
        queue_p50=1e-3,
        queue_p99=5e-3,
        request_p99=30e-3,
        limits=Limits(8, 2e-3, 512, 1 << 28),
        batches=(1, 2, 4, 8, 16, 32),
        cost=affine,
    )
    return replace(made, **changes)  # type: ignore[arg-type]


TABLE = [
    # what happens, the window, reason, maxBatch, maxWait, words of the message
    ("idle", window({1: 600}, queue_p50=1e-4), Advice.BALANCED, None, None, "busy 6%"),
    ("half busy, runs filled well", window({6: 3000}), Advice.BALANCED, None, None, "6.0 rows"),
    ("busy with full runs", window({8: 3000}), Advice.UNDER_BATCHED, 32, None, "costs 29% less"),
    ("busy with full runs, larger ones gain nothing", window({8: 3000}, cost=linear), Advice.BALANCED, None, None, ""),
    ("full runs at the largest bucket", window({8: 3000}, batches=(1, 8)), Advice.BALANCED, None, None, ""),
    ("larger runs miss the target", window({8: 3000}, cost=Within(affine, 0.014)), Advice.BALANCED, None, None, ""),
    ("busy one by one", window({1: 5000, 2: 2000}), Advice.UNDER_BATCHED, None, "10ms", "costs 56% less"),
    ("few, and dear", window({1: 500, 2: 200}, busy=40), Advice.BALANCED, None, None, ""),
    ("one by one, and linear", window({1: 5000, 2: 2000}, cost=linear), Advice.BALANCED, None, None, ""),
    ("saturated, runs full", window({8: 4500}), Advice.SATURATED, 32, None, "100% of the runs are full"),
    ("saturated at the end", window({8: 4500}, batches=(1, 8)), Advice.SATURATED, None, None, "40 % more replicas"),
    ("turned away", window({5: 4500}, rejected=900), Advice.SATURATED, None, None, "20 % more replicas"),
    ("in bursts only", window({5: 600}, rejected=900), Advice.BALANCED, None, None, "turned away"),
    ("two instances", window({8: 4500}, instances=4, batches=(1, 8)), Advice.BALANCED, None, None, "busy 24%"),
    ("waits in vain", window({1: 600}, queue_p50=2e-3), Advice.BALANCED, None, "0s", "company that does not come"),
    ("waits, with company", window({3: 600}, queue_p50=2e-3), Advice.BALANCED, None, None, ""),
    ("waits, and works", window({1: 3500}, queue_p50=2e-3), Advice.BALANCED, None, None, ""),
    ("full runs, and idle", window({8: 1000}), Advice.BALANCED, None, None, "busy 22%"),
    ("no costs known", window({1: 5000, 2: 2000}, cost=None), Advice.BALANCED, None, None, ""),
]


@pytest.mark.parametrize(
    ("seen", "reason", "max_batch", "max_wait", "words"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE]
)
def test_what_a_load_says(
    seen: Window, reason: Advice, max_batch: int | None, max_wait: str | None, words: str
) -> None:
    found = recommend(seen)
    assert found is not None
    assert (found.reason, found.max_batch, found.max_wait) == (reason, max_batch, max_wait), found.message
    assert words in found.message
    if max_wait is not None:
        assert re.fullmatch(DURATION_PATTERN, max_wait)


def test_too_little_says_nothing() -> None:
    assert recommend(window({8: 4000}, seconds=59)) is None
    assert recommend(window({8: 49})) is None
    assert recommend(window({})) is None


def test_what_was_advised_is_not_advised_again() -> None:
    first = recommend(window({1: 5000, 2: 2000}))
    assert first is not None
    assert first.max_wait == "10ms"
    again = recommend(window({1: 5000, 2: 2000}, limits=Limits(8, 10e-3, 512, 1 << 28)))
    assert again is not None
    assert again.max_wait is None


def record(rows: int, length: int = 10, seconds: float = 0.01) -> RunRecord:
    return RunRecord({"batch": rows, "sequence": length}, rows, rows, seconds)


def looked_at(recent: Recent) -> Window:
    return recent.window(limits=Limits(8, 0, 64, 100), batches=(1, 8), instances=1, cost=affine)


def test_the_last_minutes_are_remembered_and_no_more() -> None:
    recent = Recent("batch", ("sequence",), began=100.0)
    recent.ran(record(2), [0.001, 0.002], 101.0)
    recent.ran(record(6, length=30), [0.003] * 6, 102.0)
    recent.refused(115.0)
    seen = looked_at(recent)
    assert (seen.seconds, seen.requests, seen.rejected) == (15, 8, 1)
    assert seen.busy == pytest.approx(0.02)
    assert dict(seen.runs) == {2: 1, 6: 1}
    assert seen.sizes == (25,)
    assert seen.queue_p50 == pytest.approx(0.003, rel=0.06)
    assert seen.request_p99 == pytest.approx(0.013, rel=0.06)
    recent.refused(101.0 + CELLS * CELL_SECONDS)
    later = looked_at(recent)
    assert (later.requests, later.rejected) == (0, 2)
    assert later.seconds <= CELLS * CELL_SECONDS


def test_silence_is_no_news_and_ends_with_the_next_request() -> None:
    recent = Recent(None, (), began=0.0)
    for second in range(100):
        recent.ran(RunRecord({}, 1, 1, 0.1), [0.0], float(second))
    before = looked_at(recent)
    assert recommend(before) == recommend(looked_at(recent))
    recent.ran(RunRecord({}, 1, 1, 0.1), [0.0], 1e6)
    seen = looked_at(recent)
    assert seen.count == 1
    assert (CELLS - 1) * CELL_SECONDS <= seen.seconds <= CELLS * CELL_SECONDS
    assert recommend(seen) is None


def test_times_beyond_the_scale_are_kept_at_its_ends() -> None:
    recent = Recent(None, (), began=0.0)
    recent.ran(RunRecord({}, 2, 2, 1e-9), [0.0, 0.0], 1.0)
    assert looked_at(recent).queue_p99 == pytest.approx(1e-5, rel=0.06)
    recent.ran(RunRecord({}, 2, 2, 1e6), [1e6] * 1000, 1.0)
    assert looked_at(recent).queue_p99 > 90
