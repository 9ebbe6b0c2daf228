"""The fit of the cost curve, and what is advised for known curves and loads: pure."""

import io
import re
from math import prod

import pytest
from headway_api.fields import MAX_BUCKETS
from headway_api.podconfig import Advice, BucketCost
from headway_runtime.bench.advise import Advised, Load, Setting, advise, doubtful
from headway_runtime.bench.buckets import choose, waste
from headway_runtime.bench.costs import Costs, Point, fit
from headway_runtime.bench.report import show
from headway_runtime.bench.results import Results
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

ROWS = (1, 2, 4, 8, 16, 32)
NOW = Setting(max_batch=32, max_wait=0.002)


def line(fixed: float, per_row: float, *, lengths: tuple[int, ...] = ()) -> Costs:
    """A curve in which a row costs in proportion to its length over 64, or the same always."""
    if not lengths:
        return measured([({"batch": rows}, fixed + per_row * rows) for rows in ROWS], "batch")
    cells = [(rows, length) for rows in ROWS for length in lengths]
    return measured([({"batch": r, "sequence": n}, fixed + per_row * r * n / 64) for r, n in cells], "batch")


def measured(costs: list[tuple[dict[str, int], float]], batch: str | None) -> Costs:
    found = Costs.of([BucketCost(sizes=sizes, seconds=seconds) for sizes, seconds in costs], batch)
    assert found is not None
    return found


def asked(costs: Costs, *, rate: float, now: Setting = NOW, target: float | None = None, rows: int = 1) -> Advised:
    return advise(costs, Load(rate, saturation=1e9, sizes=[{"batch": rows}], latency_target=target), now)


@given(st.floats(1e-6, 1), st.floats(1e-6, 1))
def test_the_fit_finds_what_a_run_and_what_a_row_costs(fixed: float, per_row: float) -> None:
    found = fit([Point(rows, fixed + per_row * rows) for rows in ROWS])
    assert found == (pytest.approx(fixed, rel=1e-3, abs=1e-9), pytest.approx(per_row, rel=1e-3, abs=1e-9))


@given(st.lists(st.tuples(st.integers(1, 64), st.floats(1e-6, 10)), min_size=1, max_size=12))
def test_no_share_of_a_fit_is_ever_negative(points: list[tuple[int, float]]) -> None:
    fixed, per_row = fit([Point(rows, seconds) for rows, seconds in points])
    assert fixed >= 0
    assert per_row >= 0
    assert fixed + per_row > 0


def test_runs_between_measured_ones_are_read_off_the_curve() -> None:
    costs = line(0.005, 0.001, lengths=(16, 64))
    assert costs.seconds(8, {"sequence": 64}) == pytest.approx(0.013)
    assert costs.seconds(12, {"sequence": 64}) == pytest.approx(0.017)
    assert costs.seconds(64, {"sequence": 64}) == pytest.approx(2 * costs.seconds(32, {"sequence": 64}))
    assert costs.seconds(8, {"sequence": 40}) == pytest.approx(0.005 + 0.008 * 40 / 64)
    assert costs.buckets() == {"sequence": (16, 64), "batch": ROWS}
    one_each = sum(0.005 + 0.001 * rows * length / 64 for rows in ROWS for length in (16, 64))
    assert costs.warm_seconds(costs.buckets()) == pytest.approx(one_each)


def test_the_batch_is_as_large_as_makes_rows_cheap_and_no_larger() -> None:
    assert asked(line(0.005, 0.001), rate=10).setting.max_batch == 32  # a row costs 1.16 ms there, 1.31 in a run of 16
    assert asked(line(0.0001, 0.001), rate=10).setting.max_batch == 1
    assert asked(line(0.001, 0.001), rate=10).setting.max_batch == 8  # 1.13 ms a row, and 1.03 in a run of 32
    assert "larger runs save less than 10% more" in asked(line(0.001, 0.001), rate=10).why[0]


def test_a_latency_target_bounds_two_runs() -> None:
    found = asked(line(0.005, 0.001), rate=10, target=0.030)
    assert found.setting.max_batch == 8  # 13 ms a run; 16 rows take 21
    assert "30ms" in found.why[0]
    none = asked(line(0.005, 0.001), rate=10, target=0.005)
    assert none.setting.max_batch == 1
    assert "no knob reaches the target" in none.why[0]


def test_nobody_waits_while_the_device_is_idle() -> None:
    quiet = asked(line(0.005, 0.001), rate=10)
    assert quiet.setting.max_wait == 0
    assert "under way 6%" in quiet.why[1]
    assert quiet.reason is Advice.BALANCED
    assert quiet.changes_knobs  # maxWait is 2ms now


def test_a_line_that_fills_by_itself_needs_no_wait() -> None:
    full = asked(line(0.005, 0.001), rate=900)
    assert full.setting.max_wait == 0
    assert "come together by themselves" in full.why[1]
    assert full.reason is Advice.SATURATED


def test_runs_that_are_back_to_back_and_small_are_worth_a_wait() -> None:
    small = asked(line(0.005, 0.001), rate=300)  # 2 rows a run by themselves, and never a pause
    assert 0 < small.setting.max_wait <= 0.005
    assert "each row that joins one saves 5 ms" in small.why[1]


def test_a_small_maximum_under_load_is_under_batched() -> None:
    found = asked(line(0.005, 0.001), rate=700, now=Setting(2, 0.0))
    assert found.reason is Advice.UNDER_BATCHED
    assert found.setting.max_batch == 32


def test_nothing_is_said_of_a_pod_that_measured_nothing() -> None:
    assert Costs.of([], "batch") is None


def test_when_the_limit_is_elsewhere_it_says_so() -> None:
    costs = line(0.00001, 0.000001)
    found = advise(costs, Load(1000, saturation=2000, sizes=[{"batch": 1}]), Setting(32, 0.0))
    assert "no knob of batching limits this model" in found.why[-1]


def test_buckets_follow_the_requests_and_the_advised_batch() -> None:
    costs = line(0.005, 0.001, lengths=(16, 64, 512))
    sizes = [{"batch": 1, "sequence": 20}] * 50 + [{"batch": 4, "sequence": 40}] * 50
    found = advise(costs, Load(10, saturation=50, sizes=sizes), Setting(8, 0.0))
    assert found.buckets["sequence"] == (20, 40, 512)  # what was admitted still is
    assert "20 to 40, padded +0%" in found.why[2]
    assert found.buckets["batch"][-1] >= max(4, found.setting.max_batch)
    assert found.changes_buckets


def test_no_advice_lowers_what_is_admitted() -> None:
    costs = line(0.0001, 0.001, lengths=(16, 64, 512))  # rows are not cheaper together: maxBatch 1
    sizes = [{"batch": 1, "sequence": 9}]
    for load in (
        Load(10, 50, sizes),
        Load(10, 50, sizes, made_up=["sequence"]),
        Load(10, 50, sizes, unpadded=["sequence"]),
    ):
        found = advise(costs, load, Setting(8, 0.0)).buckets
        assert (found["batch"][-1], found["sequence"][-1]) == (32, 512)


def test_sizes_that_were_made_up_or_are_not_padded_choose_no_buckets() -> None:
    costs = line(0.00001, 0.000001, lengths=(16, 64))
    sizes = [{"batch": 1, "sequence": 20}]
    made_up = advise(costs, Load(10, 50, sizes, made_up=["sequence"]), NOW)
    assert made_up.buckets["sequence"] == (16, 64)
    assert "give yours with --sizes" in made_up.why[2]
    unpadded = advise(costs, Load(10, 50, sizes, unpadded=["sequence"]), NOW)
    assert unpadded.buckets["sequence"] == (16, 64)
    assert "requests are not padded along it" in unpadded.why[2]
    assert re.search(r"one run of each takes 0\.\d+ ms", unpadded.why[2])


def test_buckets_that_are_advised_combine_to_no_more_than_a_manifest_may_say() -> None:
    cells = [{"batch": r, "height": h, "width": w} for r in (1, 4, 8, 32) for h in (30, 250) for w in (30, 250)]
    costs = measured([(each, 0.01 + 1e-7 * prod(each.values())) for each in cells], "batch")
    sizes = [{"batch": 1, "height": 1 + n, "width": 250 - n} for n in range(250)]
    found = advise(costs, Load(10, 50, sizes), NOW).buckets
    assert prod(map(len, found.values())) <= MAX_BUCKETS
    assert (found["height"][-1], found["width"][-1]) == (250, 250)  # not rounded up to 256
    assert len(found["height"]) > 2
    few = Load(10, 50, sizes, made_up=["height", "width"])
    many = measured([({"batch": r, "height": h}, 0.01 + 1e-6 * r) for r in (1, 2) for h in range(1, 31)], "batch")
    assert advise(many, few, Setting(2, 0.0)).buckets == many.buckets()


@given(st.lists(st.integers(1, 512), min_size=1, max_size=200))
def test_buckets_hold_every_request_and_pad_by_15_per_cent_unless_eight_are_too_few(observed: list[int]) -> None:
    chosen = choose(observed, at_most=8)
    assert chosen[-1] >= max(observed)
    assert len(chosen) == 8 or (len(chosen) < 8 and waste(observed, chosen) <= 1.15)


def test_a_curve_that_was_measured_beside_other_work_is_doubted() -> None:
    good = asked(line(0.005, 0.001), rate=10)
    assert doubtful(good.candidates) is None
    bad = measured([({"batch": 1}, 0.012), ({"batch": 4}, 0.142), ({"batch": 8}, 0.171)], "batch")
    said = doubtful(asked(bad, rate=10).candidates)
    assert said is not None
    assert "a run of 4 rows took 11.8 times as long as one of 1" in said


def test_a_size_that_a_step_makes_keeps_its_buckets_and_costs_the_most() -> None:
    costs = line(0.005, 0.001, lengths=(16, 64))
    found = advise(costs, Load(10, saturation=50, sizes=[{"batch": 1}]), Setting(8, 0.0))
    assert found.buckets["sequence"] == (16, 64)
    assert found.candidates[0].run == pytest.approx(0.006)
    assert "a step before the program" in found.why[2]


def test_requests_of_many_rows_fit_the_largest_bucket() -> None:
    found = asked(line(0.00001, 0.001), rate=1, rows=20)
    assert found.setting.max_batch == 1
    assert found.buckets["batch"][-1] == 32
    assert asked(line(0.00001, 0.001), rate=1, rows=40).buckets["batch"][-1] == 40


def test_a_program_that_is_not_batched_is_advised_all_the_same() -> None:
    costs = measured([({"n": 4}, 0.01), ({"n": 8}, 0.02)], None)
    found = advise(costs, Load(10, saturation=50, sizes=[{"n": 5}]), Setting(1, 0.0))
    assert (found.setting, found.changes_knobs) == (Setting(1, 0.0), False)
    fixed = advise(measured([({}, 0.01)], None), Load(10, 50, [{}]), Setting(1, 0.0))
    assert fixed.buckets == {}


def test_doubt_stands_above_the_advice_and_in_the_warnings() -> None:
    costs = measured([({"batch": 1}, 0.012), ({"batch": 4}, 0.142), ({"batch": 8}, 0.171)], "batch")
    advised = asked(costs, rate=10)
    results = Results("m", "http://host", {}, {}, False, {}, costs=costs, now=NOW, advised=advised)
    results.doubt = doubtful(advised.candidates)
    console = Console(record=True, width=200, file=io.StringIO())
    show(results, console)
    text = console.export_text()
    assert text.index("Do not trust the advice") < text.index("spec:")
    assert results.to_dict()["warnings"] == [results.doubt]
