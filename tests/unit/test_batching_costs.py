"""The cost of a run, from the warm-up's buckets: exact at them, sane between and beyond, corrected by real runs."""

import pytest
from headway_api.podconfig import BucketCost
from headway_runtime.batching.costs import CostModel, Observed, rows_within
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.mixed_lengths import LENGTHS, ROWS, encoder_model, measured


def model(table: dict[tuple[int, int], float], *, stepped: bool = False) -> CostModel:
    costs = [BucketCost(sizes={"batch": rows, "length": size}, seconds=s) for (rows, size), s in table.items()]
    made = CostModel.of(costs, "batch", ("length",), stepped=stepped)
    assert made is not None
    return made


def test_a_bucket_costs_what_was_measured_and_a_run_between_two_something_between() -> None:
    cost = encoder_model()
    for rows in ROWS:
        for length in LENGTHS:
            assert cost(rows, (length,)) == pytest.approx(measured(rows, length))
    assert measured(4, 32) < cost(5, (32,)) < cost(6, (32,)) < measured(8, 32)
    assert cost(5, (40,)) == pytest.approx(measured(5, 40), rel=0.1)


def test_beyond_the_last_bucket_the_cost_grows_in_proportion() -> None:
    cost = model({(1, 8): 2.0, (4, 8): 5.0})
    assert cost(8, (8,)) == pytest.approx(10)
    assert cost(8, (16,)) == pytest.approx(20)


def test_below_the_first_bucket_it_falls_on_the_line_but_no_faster_than_in_proportion() -> None:
    cost = model({(4, 8): 5.0, (8, 8): 9.0, (4, 16): 9.0, (8, 16): 17.0})
    assert cost(1, (8,)) == pytest.approx(2)
    steep = model({(4, 8): 4.0, (8, 8): 16.0})
    assert steep(1, (8,)) == pytest.approx(1)


def test_below_the_first_bucket_a_larger_run_still_costs_no_less() -> None:
    cost = model({(2, 4): 1.0, (3, 4): 1.0, (2, 16): 1.0, (3, 16): 2.0})
    assert cost(1, (4,)) <= cost(1, (16,))


def test_a_size_measured_once_costs_the_same_below() -> None:
    assert model({(8, 8): 5.0})(1, (2,)) == 5


def test_a_small_bucket_that_was_slower_than_a_larger_one_is_taken_for_noise() -> None:
    cost = model({(1, 8): 1.0, (2, 8): 9.0, (4, 8): 3.0, (1, 16): 2.0, (2, 16): 3.0, (4, 16): 5.0})
    assert cost(2, (8,)) == 3


def test_a_combination_that_was_not_allowed_is_estimated_from_its_neighbour() -> None:
    cost = model({(1, 8): 1.0, (1, 16): 2.0, (2, 8): 2.0})
    assert cost(2, (16,)) == pytest.approx(4)


def test_with_static_shapes_a_run_costs_its_bucket() -> None:
    cost = model({(4, 8): 5.0, (8, 8): 9.0}, stepped=True)
    assert [cost(rows, (3,)) for rows in (1, 4, 5, 8)] == [5, 5, 9, 9]
    assert cost(16, (8,)) == 18


def test_dimensions_that_are_not_padded_count_at_their_largest() -> None:
    costs = [BucketCost(sizes={"batch": b, "w": w}, seconds=b * w) for b in (1, 2) for w in (3, 7)]
    made = CostModel.of(costs, "batch")
    assert made is not None
    assert (made(1), made(2)) == (7, 14)


def test_a_program_without_rows_has_a_cost_too() -> None:
    made = CostModel.of([BucketCost(sizes={"w": 4}, seconds=0.5)], None)
    assert made is not None
    assert made(1) == 0.5
    assert CostModel.of([], "batch") is None


TABLES = st.fixed_dictionaries({(r, n): st.floats(0, 10) for r in (2, 3, 8) for n in (4, 16, 40)})


@settings(max_examples=200, deadline=None)
@given(TABLES, st.booleans(), st.integers(0, 20), st.integers(0, 80), st.integers(0, 5), st.integers(0, 20))
def test_a_cost_is_positive_and_never_falls_as_a_run_grows(
    table: dict[tuple[int, int], float], stepped: bool, rows: int, size: int, more_rows: int, more_size: int
) -> None:
    cost = model(table, stepped=stepped)
    assert 0 < cost(rows, (size,)) <= cost(rows + more_rows, (size + more_size,)) * (1 + 1e-9)


def test_a_latency_target_keeps_the_rows_whose_run_fits() -> None:
    def cost(rows: int, sizes: tuple[int, ...]) -> float:
        return 5 + rows * sizes[0]

    assert rows_within(25, cost, (2,), 64) == 10
    assert rows_within(25, cost, (2,), 8) == 8
    assert rows_within(1, cost, (2,), 8) == 1


def test_real_runs_correct_the_curve_once_there_are_enough() -> None:
    observed = Observed(encoder_model())
    for _ in range(Observed.ENOUGH - 1):
        observed.ran(8, (32,), 2 * measured(8, 32))
    assert observed.corrected() is observed.model
    observed.ran(8, (32,), 2 * measured(8, 32))
    corrected = observed.corrected()
    assert corrected(8, (32,)) == pytest.approx(2 * measured(8, 32))
    assert corrected(16, (128,)) == pytest.approx(2 * measured(16, 128)), "the others are scaled alike"


def test_a_bucket_that_is_slower_than_its_warm_up_said_becomes_dearer_than_the_others() -> None:
    observed = Observed(encoder_model())
    for _ in range(400):
        observed.ran(1, (16,), measured(1, 16))
        observed.ran(2, (16,), measured(2, 16))
        observed.ran(32, (128,), 3 * measured(32, 128))
    corrected = observed.corrected()
    assert corrected(32, (128,)) == pytest.approx(3 * measured(32, 128), rel=0.01)
    assert corrected(1, (16,)) == pytest.approx(measured(1, 16), rel=0.01)
    assert corrected(4, (32,)) == pytest.approx(measured(4, 32), rel=0.01)


def test_a_run_that_stood_still_hardly_counts() -> None:
    observed = Observed(encoder_model())
    for number in range(200):
        observed.ran(8, (32,), measured(8, 32) * (300 if number == 190 else 1))
    assert observed.corrected()(8, (32,)) < 1.3 * measured(8, 32)
