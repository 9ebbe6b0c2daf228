"""Running statistics of inputs and outputs, against the golden samples."""

import itertools

import pytest
import torch
from headway_runtime.drift import BINS, ELEMENTS, EPOCH, SHARE, TENSORS, Drift, Statistics
from headway_runtime.metrics import Metrics
from hypothesis import given, settings
from hypothesis import strategies as st


def watched(*, inputs: tuple[str, ...] = ("x",), outputs: tuple[str, ...] = ("y",)) -> tuple[Drift, Metrics]:
    drift, metrics = Drift(inputs, outputs), Metrics()
    metrics.drift.shown = drift
    return drift, metrics


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(f"headway_{name}", labels)


NUMBERS = st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=40)


@settings(max_examples=200, deadline=None)
@given(NUMBERS, NUMBERS)
def test_statistics_of_parts_add_up_to_those_of_the_whole(some: list[float], others: list[float]) -> None:
    whole = torch.tensor(some + others)
    added = Statistics.of(torch.tensor(some)) + Statistics.of(torch.tensor(others))
    assert added.count == len(whole)
    assert added.mean == pytest.approx(float(whole.double().mean()), rel=1e-6, abs=1e-6)
    assert added.deviation == pytest.approx(float(whole.double().std(correction=0)), rel=1e-5, abs=1e-3)
    assert (added.least, added.most) == (float(whole.min()), float(whole.max()))


def test_an_input_that_moves_away_from_the_golden_samples_shows() -> None:
    drift, metrics = watched()
    drift.expect((torch.tensor([[-1.0, 1.0]]),), (torch.tensor([[0.5, 0.5]]),))
    drift.see((torch.tensor([[4.0, 6.0]]),), (torch.tensor([[0.5, 0.5]]),), 0.0)
    assert value(metrics, "drift_shift", role="input", tensor="x") == pytest.approx(5)
    assert value(metrics, "drift_shift", role="output", tensor="y") == 0
    assert value(metrics, "drift_seen", role="input", tensor="x", statistic="outside") == 1
    assert value(metrics, "drift_expected", role="input", tensor="x", statistic="max") == 1


def test_a_mask_of_ones_moves_by_its_mean_and_zeros_by_one() -> None:
    ones, zeros = Statistics.of(torch.full((4,), 10.0)), Statistics.of(torch.zeros(4))
    assert Statistics.of(torch.full((4,), 5.0)).shift(ones) == 0.5
    assert Statistics.of(torch.full((4,), 3.0)).shift(zeros) == 3


def test_ids_show_their_range_and_how_many_are_outside_of_it() -> None:
    drift, metrics = watched()
    drift.expect((torch.tensor([[5, 9]]),), ())
    drift.see((torch.tensor([[1, 7, 9, 100]]),), (), 0.0)
    assert value(metrics, "drift_seen", role="input", tensor="x", statistic="min") == 1
    assert value(metrics, "drift_seen", role="input", tensor="x", statistic="max") == 100
    assert value(metrics, "drift_seen", role="input", tensor="x", statistic="outside") == 0.5


def test_what_is_not_finite_is_counted_and_spoils_nothing() -> None:
    drift, metrics = watched()
    drift.see((torch.tensor([1.0, 3.0, float("nan"), float("inf")]),), (), 0.0)
    assert value(metrics, "drift_seen", role="input", tensor="x", statistic="not_finite") == 0.5
    assert value(metrics, "drift_seen", role="input", tensor="x", statistic="mean") == 2
    only_nan, metrics = watched()
    only_nan.see((torch.full((3,), float("nan")),), (), 0.0)
    assert value(metrics, "drift_seen", role="input", tensor="x", statistic="not_finite") == 1
    assert value(metrics, "drift_seen", role="input", tensor="x", statistic="mean") is None


@pytest.mark.parametrize(
    "dtype", [torch.bool, torch.uint8, torch.int64, torch.bfloat16, torch.float16, torch.complex64]
)
def test_every_datatype_can_be_looked_at(dtype: torch.dtype) -> None:
    drift, metrics = watched()
    drift.expect((torch.ones(2, 3, dtype=dtype),), (torch.ones(2, 3, dtype=dtype),))
    drift.see((torch.ones(2, 3, dtype=dtype),), (torch.ones(2, 3, dtype=dtype),), 0.0)
    shift = value(metrics, "drift_shift", role="input", tensor="x")
    assert shift == (None if dtype.is_complex else 0)


def test_empty_and_scalar_tensors_can_be_looked_at() -> None:
    drift, metrics = watched(inputs=("x", "n"))
    drift.see((torch.zeros(0, 4), torch.tensor(3)), (torch.zeros(0, 4),), 0.0)
    assert value(metrics, "drift_seen", role="input", tensor="x", statistic="mean") is None
    assert value(metrics, "drift_seen", role="input", tensor="n", statistic="mean") == 3


def test_predictions_are_counted_by_class() -> None:
    drift, metrics = watched()
    scores = torch.tensor([[0.1, 0.9, 0.0], [0.2, 0.7, 0.1], [0.9, 0.0, 0.1]])
    drift.see((), (scores,), 0.0)
    counts = [value(metrics, "predictions_total", **{"output": "y", "class": str(n)}) for n in range(3)]
    assert counts == [1, 2, 0]


def test_many_classes_are_counted_in_ranges_and_each_is_in_one() -> None:
    drift, metrics = watched()
    drift.see((), (torch.eye(1000)[:ELEMENTS],), 0.0)
    names = [watched.class_name(n) for watched in drift.watched if watched.classes for n in range(len(watched.classes))]
    assert (names[0], names[-1], len(names)) == ("0-31", "992-999", BINS)
    assert value(metrics, "predictions_total", **{"output": "y", "class": "0-31"}) == ELEMENTS // 1000


def test_an_axis_that_varies_is_not_taken_for_more_classes() -> None:
    drift, metrics = watched()
    drift.see((), (torch.eye(3),), 0.0)
    drift.see((), (torch.eye(7),), 0.0)
    drift.see((), (torch.zeros(2, 2000),), 0.0)
    assert value(metrics, "predictions_total", **{"output": "y", "class": "0"}) == 1
    assert value(metrics, "predictions_total", **{"output": "y", "class": "3"}) is None


def test_old_traffic_is_forgotten() -> None:
    drift, metrics = watched()
    for number in range(3 * EPOCH):
        drift.see((torch.full((4,), 100.0 if number < EPOCH else 1.0),), (), 0.0)
    assert value(metrics, "drift_seen", role="input", tensor="x", statistic="max") == 1
    assert value(metrics, "drift_samples_total") == 3 * EPOCH


def test_looking_takes_a_hundredth_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = itertools.count(step=0.004)  # each look takes 4 ms
    monkeypatch.setattr("headway_runtime.drift.perf_counter", lambda: next(ticks))
    drift, looks = watched()[0], 0
    for request in range(1000):  # one every 2 ms
        now = request * 0.002
        if drift.due(now):
            drift.see((torch.ones(4),), (), now)
            looks += 1
    assert looks == 5 == round(2.0 * SHARE / 0.004)


def test_of_a_large_tensor_only_some_elements_are_looked_at() -> None:
    image = torch.rand(8, 3, 224, 224)
    seen = Statistics.of(image)
    assert ELEMENTS / 2 < seen.count <= ELEMENTS
    assert seen.mean == pytest.approx(0.5, abs=0.02)


def test_a_program_with_many_inputs_does_not_flood_the_metrics() -> None:
    names = tuple(f"x{n}" for n in range(200))
    drift, metrics = watched(inputs=names, outputs=names)
    tensors = tuple(torch.ones(2) for _ in names)
    drift.expect(tensors, tensors)
    drift.see(tensors, tensors, 0.0)
    lines = [line for line in metrics.render().decode().splitlines() if line.startswith("headway_drift")]
    assert len(lines) <= 2 * TENSORS * (6 + 6 + 1) + 1


def test_without_drift_there_are_no_samples() -> None:
    assert b"\nheadway_drift" not in Metrics().render()
