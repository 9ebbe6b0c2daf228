"""Before the engine runs: every bucket with realistic inputs, each step named, and none of them for ever."""

import asyncio
import signal
import threading
from pathlib import Path

import pytest
import torch
from headway_api.podconfig import BucketCost, Termination
from headway_runtime import life, warmup
from headway_runtime.batching.line import Line
from headway_runtime.batching.policy import Limits
from headway_runtime.batching.runner import Runner
from headway_runtime.buckets import resolve_buckets
from headway_runtime.errors import FatalError
from headway_runtime.metrics import Metrics
from headway_runtime.origin import Origin
from headway_runtime.pod import LONGEST_STEP, Pod
from headway_runtime.ports import listen
from headway_runtime.program import Program, load_program
from headway_runtime.warmup import warm

from tests.unit.serving_desk import COLD
from tests.unit.small_models import Encoder, export, prepare

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Program:
    folder = tmp_path_factory.mktemp("warm")
    return load_program(
        prepare(export(Encoder, folder / "encoder.pt2"), folder / "encoder"), dimension_names={"sequence": "ids.1"}
    )


def test_every_bucket_is_run_with_the_inputs_that_were_made_for_it_and_named_before(encoder: Program) -> None:
    buckets = resolve_buckets(encoder, {"batch": [1, 2], "sequence": [4]})
    seen: list[str] = []
    costs: list[BucketCost] = []

    def inputs_of(sizes: object) -> list[torch.Tensor]:
        seen.append(f"inputs of {dict(sizes)}")  # type: ignore[call-overload]
        return [torch.ones(shape, dtype=torch.int64) for shape in encoder.input_shapes(sizes)]  # type: ignore[arg-type]

    warm(encoder, buckets, costs.append, inputs_of=inputs_of, begins=seen.append)
    assert seen == [
        "running bucket batch=2,sequence=4",
        "inputs of {'batch': 2, 'sequence': 4}",
        "running bucket batch=1,sequence=4",
        "inputs of {'batch': 1, 'sequence': 4}",
    ]
    assert [cost.sizes for cost in costs] == [{"batch": 2, "sequence": 4}, {"batch": 1, "sequence": 4}]


def test_a_bucket_that_fails_is_named(encoder: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(inputs: object) -> tuple[torch.Tensor, ...]:
        raise ValueError("no such kernel")

    monkeypatch.setattr(encoder, "run", fail)
    buckets = resolve_buckets(encoder, {"batch": [1], "sequence": [4]})
    with pytest.raises(FatalError, match="running bucket batch=1,sequence=4: ValueError: no such kernel") as refusal:
        warm(encoder, buckets, lambda cost: None)
    assert refusal.value.reason == "WarmUpFailed"


async def test_a_step_before_the_pod_is_ready_that_does_not_end_fails_the_pod_with_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def hang(pod: Pod, folder: Path, deliver: object, hand: object) -> None:
        hand(pod.begins, "running bucket batch=8")  # type: ignore[operator]
        threads.append(threading.current_thread())
        released.wait(20)
        raise FatalError("LoadFailed", "the test ends")

    loop, released, threads = asyncio.get_running_loop(), threading.Event(), list[threading.Thread]()
    monkeypatch.setattr(life, "load", hang)
    monkeypatch.setattr("headway_runtime.pod.LONGEST_STEP", 0.2)
    (tmp_path / "knobs.json").write_text("{}")
    options = life.Options(tmp_path, tmp_path / "knobs.json", listen("127.0.0.1", 0), listen("127.0.0.1", 0))
    try:
        async with asyncio.timeout(20):
            failure = await life.Life(Pod(COLD, Metrics(), Origin()), options).run()
    finally:
        released.set()
        await loop.run_in_executor(None, threads[0].join, 10)
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
    assert isinstance(failure, Termination)
    assert (failure.reason, failure.condition) == ("WarmUpFailed", "Ready")
    assert failure.message.startswith("running bucket batch=8: not done after")


def test_a_step_that_goes_on_is_not_overdue() -> None:
    pod = Pod(COLD, Metrics(), Origin())
    assert pod.overdue() is None
    pod.begins("running bucket batch=8")
    assert pod.overdue() is None


def test_what_to_do_about_a_step_that_does_not_end_is_said_with_the_field(monkeypatch: pytest.MonkeyPatch) -> None:
    pod = Pod(COLD, Metrics(), Origin())
    pod.begins("continuing the golden prompts", ("give the pods more CPUs", "spec.template.resources"))
    monkeypatch.setattr("headway_runtime.pod.LONGEST_STEP", 0.0)
    failure = pod.overdue()
    assert failure is not None
    assert failure.field == "spec.template.resources"
    assert failure.message.endswith("give the pods more CPUs")


def test_the_page_says_the_same_limits() -> None:
    page = " ".join((ROOT / "docs/batching.md").read_text().split())
    assert LONGEST_STEP == 600
    assert "more than ten minutes to warm" in page


def test_several_compute_threads_are_kept_for_a_short_run_only_where_they_halve_its_time(
    encoder: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    def threads_after(seconds: dict[int, float]) -> tuple[int, float]:
        monkeypatch.setattr(warmup, "_timed", lambda program, inputs: seconds[torch.get_num_threads()])
        costs: list[BucketCost] = []
        with warmup.threads_restored():
            torch.set_num_threads(4)
            warm(encoder, resolve_buckets(encoder, {"batch": [1, 2], "sequence": [4]}), costs.append)
            runner = Runner(Line(Limits(1, 0.0, 1, 1), lambda o, r: None), None, None, lambda o, r: None)  # type: ignore[arg-type]
            found = torch.get_num_threads()
        torch.set_num_threads(before)
        runner.enter()
        assert torch.get_num_threads() == found
        return found, costs[0].seconds

    with warmup.threads_restored():
        before = torch.get_num_threads()
        assert threads_after({4: 0.0004, 1: 0.0002}) == (1, 0.0002)
        assert threads_after({4: 0.0003, 1: 0.0004}) == (1, 0.0004)
        assert threads_after({4: 0.0001, 1: 0.0004}) == (4, 0.0001)
        assert threads_after({4: 0.003, 1: 0.004}) == (4, 0.003)
