"""What a pod counts."""

import prometheus_client
import pytest
import torch
from headway_runtime.batching.policy import Priority
from headway_runtime.batching.work import RunRecord
from headway_runtime.histogram import Histogram
from headway_runtime.metrics import Metrics
from prometheus_client import CollectorRegistry


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(name, labels)


def test_a_run_tells_its_waste_its_bucket_and_the_time_of_the_device() -> None:
    metrics = Metrics()
    record = RunRecord({"batch": 3, "sequence": 40}, 2, 3, 0.25, real_cells=90, run_cells=120)
    metrics.ran(record, {"batch": 4, "sequence": 64})
    metrics.ran(record, {"batch": 4, "sequence": 64})
    assert value(metrics, "headway_bucket_runs_total", bucket="batch=4,sequence=64") == 2
    assert value(metrics, "headway_cells_total", kind="real") == 180
    assert value(metrics, "headway_cells_total", kind="padding") == 60
    assert value(metrics, "headway_busy_seconds_total") == pytest.approx(0.5)
    assert value(metrics, "headway_run_requests_total") == 4
    assert value(metrics, "headway_batch_rows_sum") == 6


def test_repetitions_are_counted_by_reason_and_a_single_failure_is_none() -> None:
    metrics = Metrics()
    metrics.ran(RunRecord({}, 4, 4, 0.1, retried=3, out_of_memory=1, non_finite=2), {})
    metrics.ran(RunRecord({}, 1, 1, 0.1, retried=0, out_of_memory=1), {})
    metrics.ran(RunRecord({}, 2, 2, 0.1, retried=1, out_of_memory=2), {})
    assert value(metrics, "headway_retries_total", reason="failed") == 2
    assert value(metrics, "headway_retries_total", reason="out_of_memory") == 2
    assert value(metrics, "headway_non_finite_total") == 2


def test_only_good_answers_count_for_the_latency() -> None:
    metrics = Metrics()
    metrics.answered(200, 0.02)
    metrics.answered(500, 9.0)
    metrics.left()
    assert value(metrics, "headway_request_seconds_count") == 1
    assert value(metrics, "headway_requests_total", code="200") == 1
    assert value(metrics, "headway_requests_total", code="500") == 1
    assert value(metrics, "headway_cancelled_total") == 1


def test_waiting_is_seen_by_priority() -> None:
    metrics = Metrics()
    metrics.queued(Priority.LOW, 0.5)
    metrics.queued(Priority.HIGH, 0.001)
    assert value(metrics, "headway_queue_seconds_sum", priority="low") == 0.5
    assert value(metrics, "headway_queue_seconds_bucket", priority="high", le="0.001") == 1


def test_a_histogram_says_what_the_librarys_own_says() -> None:
    bounds, registry = (0.001, 0.5, 2.0, 10.0), CollectorRegistry()
    ours = Histogram("ours", "text", bounds=bounds, registry=registry, label="who")
    theirs = prometheus_client.Histogram("theirs", "text", ["who"], buckets=bounds, registry=registry)
    for value in (0.0, 0.001, 0.0011, 0.5, 1.0, 10.0, 10.1, 1e9):
        ours.series("a").observe(value)
        theirs.labels("a").observe(value)
    text = prometheus_client.generate_latest(registry).decode().splitlines()
    said = [[line.split("_", 1)[1] for line in text if line.startswith(f"{name}_")] for name in ("ours", "theirs")]
    assert said[0] == [line for line in said[1] if not line.startswith("created")]
    assert len(said[0]) == len(bounds) + 3


def test_a_gpus_memory_is_read_when_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """What torch says of a GPU, in its place: there was none to try it on."""
    said = {"is_available": True, "is_initialized": True, "mem_get_info": (3, 10), "memory_allocated": 1}
    for name, value_ in {**said, "memory_reserved": 2}.items():
        monkeypatch.setattr(torch.cuda, name, lambda value_=value_: value_)
    metrics = Metrics()
    kinds = ("allocated", "reserved", "free", "total")
    assert [value(metrics, "headway_gpu_memory_bytes", kind=kind) for kind in kinds] == [1, 2, 3, 10]


def test_without_a_gpu_its_memory_has_no_samples() -> None:
    assert b"\nheadway_gpu_memory_bytes{" not in Metrics().render()
