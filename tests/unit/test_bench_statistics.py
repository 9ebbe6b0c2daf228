"""Percentiles, the search for a rate, and the choice of buckets: pure."""

import math
import random

import pytest
from headway_runtime.bench.buckets import ENOUGH, choose, waste
from headway_runtime.bench.search import RateSearch
from headway_runtime.bench.statistics import cumulative, percentile, summarise
from hypothesis import given
from hypothesis import strategies as st

LATENCIES = st.lists(st.floats(0, 100), min_size=1, max_size=200)


@given(LATENCIES, st.floats(0.1, 100))
def test_a_percentile_is_the_least_value_that_so_many_do_not_exceed(values: list[float], percent: float) -> None:
    found = percentile(sorted(values), percent)
    need = math.ceil(round(percent / 100 * len(values), 9))
    assert found in values
    assert sum(value <= found for value in values) >= need
    assert sum(value < found for value in values) < max(1, need)


def test_percentiles_of_known_values() -> None:
    ordered = [float(value) for value in range(1, 101)]
    assert [percentile(ordered, p) for p in (50, 90, 99, 99.9, 100)] == [50, 90, 99, 100, 100]
    assert math.isnan(percentile([], 50))


def test_what_was_never_answered_took_for_ever() -> None:
    ordered = [1.0] * 98
    assert percentile(ordered, 99, lost=1) == math.inf
    assert percentile(ordered, 98, lost=2) == 1.0
    summary = summarise(ordered, lost=2)
    assert (summary.p99, summary.p99_all, summary.count) == (1.0, math.inf, 98)


def test_an_empty_summary_says_nothing() -> None:
    summary = summarise([])
    assert summary.count == 0
    assert math.isnan(summary.p50)
    assert cumulative([]) == ([], [])


@given(LATENCIES)
def test_the_distribution_rises_to_the_greatest(values: list[float]) -> None:
    latencies, shares = cumulative(values)
    assert latencies == sorted(latencies)
    assert shares == sorted(shares)
    assert (latencies[-1], shares[-1]) == (max(values), 1.0)
    assert all(
        sum(v <= at for v in values) >= share * len(values) - 1e-9 for at, share in zip(latencies, shares, strict=True)
    )


@given(st.floats(1, 1e5), st.floats(0.01, 100))
def test_the_search_finds_the_highest_rate_that_fits(limit: float, first: float) -> None:
    search = RateSearch(guess=limit * first, trials=60)
    while (rate := search.next_rate()) is not None:
        search.tell(rate, fits=rate <= limit)
    assert search.best is not None
    assert limit / 1.06 <= search.best <= limit


def test_the_search_ends_though_measurements_contradict_each_other() -> None:
    random_ = random.Random(1)
    for _ in range(200):
        search = RateSearch(guess=100, trials=8)
        while (rate := search.next_rate()) is not None:
            assert rate > 0
            search.tell(rate, fits=random_.random() < 0.5)
        assert len(search.told) <= 8
        assert search.best is None or (search.best, True) in search.told


SIZES = st.lists(st.integers(1, 300), min_size=1, max_size=60)


@given(SIZES)
def test_chosen_buckets_hold_every_size_and_waste_little(observed: list[int]) -> None:
    sizes = choose(observed, at_most=len(observed))
    assert list(sizes) == sorted(set(sizes))
    assert len(sizes) <= 6
    assert sizes[-1] >= max(observed)
    assert waste(observed, sizes) >= 1


def test_buckets_follow_the_sizes_that_come() -> None:
    assert choose([16] * 900 + [128] * 100, at_most=8) == (16, 128)
    assert choose([40], at_most=8) == (40,)
    spread = list(range(8, 129))
    assert waste(spread, choose(spread, at_most=8)) <= ENOUGH
    assert waste([5, 10], (10,)) == pytest.approx(20 / 15)
