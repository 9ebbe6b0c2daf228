"""Which requests share a run when a run's cost is known: mixed lengths, several rows, several padded dimensions."""

import pytest
from headway_runtime.batching.policy import Cost, Limits, Policy, Priority, Ticket
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.mixed_lengths import (
    encoder_model,
    measured,
    mixed_lengths,
    perfectly_sorted,
    saturated,
)

FOREVER = float("inf")


def true_cost(rows: int, sizes: tuple[int, ...]) -> float:
    return measured(rows, *sizes)


def line(
    cost: Cost | None, *sizes: tuple[int, ...], max_batch: int = 8, rows: int = 1, left_out: float = 0.0
) -> Policy:
    policy = Policy(Limits(max_batch, 0.0, 10_000, 10**9), cost, left_out=left_out)
    for number, each in enumerate(sizes):
        policy.admit(Ticket(number, "g", rows, 1, number * 1e-3, FOREVER, each))
    return policy


def chosen(policy: Policy) -> list[int]:
    return sorted(ticket.id for ticket in policy.plan(1e6).tickets)


@pytest.mark.parametrize("max_batch", [8, 16, 32])
def test_mixed_lengths_take_at_most_a_tenth_longer_than_a_perfectly_sorted_schedule(max_batch: int) -> None:
    lengths = mixed_lengths(1500, seed=max_batch)
    assert 28 <= sum(lengths) / len(lengths) <= 32
    assert max(lengths) == 128
    perfect = perfectly_sorted(lengths, true_cost, max_batch)

    def share(cost: Cost | None) -> float:
        policy = Policy(Limits(max_batch, 0.0, 10_000, 10**9), cost)
        return perfect / saturated(policy, lengths, true_cost, kept=128)[0]

    assert share(encoder_model()) >= 0.9
    assert share(None) <= 0.65, "first come, first served fails this test"


def test_choosing_company_by_cost_makes_no_tail_longer() -> None:
    lengths = mixed_lengths(1500, seed=5)
    tails = []
    for cost in (None, encoder_model()):
        policy = Policy(Limits(16, 0.0, 10_000, 10**9), cost)
        waits = sorted(saturated(policy, lengths, true_cost, kept=128)[1])
        tails.append(waits[int(0.99 * len(waits))])
    assert tails[1] <= tails[0]


def test_the_oldest_gets_company_of_its_own_length() -> None:
    assert chosen(line(encoder_model(), (20,), (120,), (21,), (125,), (19,))) == [0, 2, 4]


def test_one_that_nothing_fits_runs_alone() -> None:
    assert chosen(line(encoder_model(), (128,), (5,), (6,), (5,), (6,))) == [0]


def test_the_nearest_are_company_and_not_the_smallest() -> None:
    assert chosen(line(encoder_model(), (20,), (5,), (6,), (19,), (5,))) == [0, 3]


def test_nobody_shares_a_run_who_would_only_wait_for_its_end() -> None:
    assert chosen(line(lambda rows, sizes: 1.0 * rows * sizes[0], (30,), (30,), (31,))) == [0]


def test_a_gain_too_small_to_wait_for_is_left() -> None:
    def cost(rows: int, sizes: tuple[int, ...]) -> float:
        return rows * sizes[0] * (1.0 if rows == 1 else 0.9995)

    assert chosen(line(cost, (30,), (30,), (31,))) == [0]


def test_a_large_batch_is_filled_from_many_sizes() -> None:
    policy = line(lambda rows, sizes: 1.0 + sizes[0] / 100, *[(30 + n % 7,) for n in range(200)], max_batch=128)
    assert len(chosen(policy)) >= 120


def test_a_request_too_large_for_company_is_in_nobodys_way() -> None:
    policy = line(encoder_model(), (30,), (31,))
    policy.admit(Ticket(8, "g", 9, 1, 0.1, FOREVER, (29,)))
    assert chosen(policy) == [0, 1]


def test_without_a_cost_equal_sizes_come_first_and_then_the_order_of_arrival() -> None:
    policy = line(None, (9,), (3,), (9,), (5,), (9,), max_batch=4)
    assert [ticket.id for ticket in policy.plan(1e6).tickets] == [0, 2, 4, 1]


def test_where_only_the_number_of_runs_counts_all_run_together() -> None:
    assert chosen(line(lambda rows, sizes: 1.0, (1,), (100,), (7,), max_batch=8)) == [0, 1, 2]


def test_of_equal_ones_the_older_go_and_a_preferred_one_before_them() -> None:
    policy = line(encoder_model(), *[(30,)] * 6, max_batch=4)
    assert chosen(policy) == [0, 1, 2, 3]
    policy.admit(Ticket(9, "g", 1, 1, 0.006, FOREVER, (30,), Priority.HIGH))
    assert chosen(policy) == [0, 1, 2, 9]


def test_company_of_several_rows_fits_into_the_batch() -> None:
    assert chosen(line(encoder_model(), (30,), (30,), (31,), rows=3)) == [0, 1]


def test_along_two_padded_dimensions_both_count() -> None:
    def cost(rows: int, sizes: tuple[int, ...]) -> float:
        return 300 + rows * sizes[0] * sizes[1]

    policy = line(cost, (8, 64), (64, 8), (8, 60), (60, 8), (9, 64))
    assert chosen(policy) == [0, 2, 4], "equal areas, but 64 x 64 for both together"


def test_the_common_box_of_two_sizes_is_what_a_run_is_padded_to() -> None:
    def cost(rows: int, sizes: tuple[int, ...]) -> float:
        return 100.0 if sizes[0] * sizes[1] >= 9 * 64 else 1.0

    assert chosen(line(cost, (8, 64), (9, 60))) == [0]


@pytest.mark.parametrize("waiting", [32, 512, 4096])
def test_a_choice_looks_at_no_more_however_many_wait(waiting: int) -> None:
    asked = 0

    def cost(rows: int, sizes: tuple[int, ...]) -> float:
        nonlocal asked
        asked += 1
        return true_cost(rows, sizes)

    policy = line(cost, *[(length,) for length in mixed_lengths(waiting, seed=2)], max_batch=32)
    assert policy.plan(1e6).tickets
    assert asked <= 2 * 25 * 33, "each piece of the window as a ceiling, for each number of rows, once"


def of_cells(rows: int, sizes: tuple[int, ...]) -> float:
    return 40.0 + rows * sizes[0]


@pytest.mark.parametrize(("left_out", "together"), [(0.0, [0]), (0.35, [0]), (0.45, [0, 1]), (1.0, [0, 1])])
def test_unlike_requests_run_together_where_what_fills_them_up_is_left_out(
    left_out: float, together: list[int]
) -> None:
    """Apart they cost 180, and together 220, of whose cells 80 in 180 fill up: worth it from a share of 0.41 on."""
    assert chosen(line(of_cells, (10,), (90,), left_out=left_out)) == together


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(1, 60), min_size=1, max_size=7),
    st.integers(1, 8),
    st.sampled_from([0.0, 0.3, 0.8, 1.0]),
    st.sampled_from([1.0, 40.0, 400.0]),
)
def test_the_cut_is_the_cheapest_of_all(lengths: list[int], most: int, left_out: float, of_a_run: float) -> None:
    """All the runs of a line, served one after the other while nothing arrives, cost what the cheapest cut costs."""

    def cost(part: list[int]) -> float:
        rows, longest = len(part), max(part)
        spared = left_out * (1 - sum(part) / (rows * longest))
        return (of_a_run + rows * longest) * (1 + 0.001 * rows) * (1 - spared)

    def cheapest(of: list[int]) -> float:
        ends = range(1, min(most, len(of)) + 1)
        return min((cost(of[:end]) + cheapest(of[end:]) for end in ends), default=0.0)

    policy = Policy(Limits(most, 0.0, 10_000, 10**9), lambda rows, sizes: of_a_run + rows * sizes[0], left_out=left_out)
    for number, length in enumerate(lengths):
        policy.admit(Ticket(number, "g", 1, 1, number * 1e-3, FOREVER, (length,)))
    first = [lengths[ticket.id] for ticket in policy.plan(1e6).tickets]
    rest = lengths.copy()
    for length in first:
        rest.remove(length)
    assert cost(first) + cheapest(sorted(rest)) <= cheapest(sorted(lengths)) * (1 + 1e-9)


SIZES = st.tuples(st.integers(1, 12), st.integers(1, 12))


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(SIZES, st.integers(1, 7)), min_size=1, max_size=60),
    st.integers(1, 40),
    st.sampled_from(
        [lambda rows, s: 30.0 + rows * s[0] * s[1], lambda rows, s: 1.0, lambda rows, s: 0.1 * rows * s[0]]
    ),
)
def test_any_line_of_any_sizes_is_served_whole(
    requests: list[tuple[tuple[int, int], int]], max_batch: int, cost: Cost
) -> None:
    policy = Policy(Limits(max_batch, 0.0, 10_000, 10**9), cost)
    for number, (sizes, rows) in enumerate(requests):
        policy.admit(Ticket(number, "g", rows, 1, float(number), FOREVER, sizes))
    served: list[int] = []
    while len(policy):
        oldest = policy.waiting()[0]
        plan = policy.plan(1e6)
        assert plan.tickets[0] == oldest
        assert sum(ticket.rows for ticket in plan.tickets) <= max_batch or len(plan.tickets) == 1
        served += [ticket.id for ticket in plan.tickets]
        policy.start(plan)
    assert sorted(served) == list(range(len(requests)))
