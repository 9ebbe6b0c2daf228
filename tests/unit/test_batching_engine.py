"""The engine thread with a real program: rows map to requests exactly, whatever shares a run and whatever fails."""

import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import pytest
import torch
from headway_runtime.batching.assembly import Joint
from headway_runtime.batching.engine import Answer, Engine, Outcome, RunRecord, Work
from headway_runtime.batching.layout import Layout
from headway_runtime.batching.policy import Limits, Ticket
from headway_runtime.errors import DeadlineExceededError, NotServingError, ProgramFailedError, QueueFullError
from headway_runtime.program import Program, load_program
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit.small_models import WORDS, Encoder, Scaled, Summed, export, prepare

LIMITS = Limits(max_batch=8, max_wait=0.05, capacity=64, bytes=10**6)
Result = Answer | Exception | None


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="module")
def encoder(folder: Path) -> Program:
    return load_program(
        prepare(export(Encoder, folder / "encoder.pt2"), folder / "encoder"), dimension_names={"sequence": "ids.1"}
    )


@pytest.fixture(scope="module")
def scaled(folder: Path) -> Program:
    return load_program(prepare(export(Scaled, folder / "scaled.pt2"), folder / "scaled"), dimension_names={})


@dataclass
class Desk:
    """Sends work to an engine and collects what comes back, by request number."""

    program: Program
    limits: Limits = LIMITS
    results: "queue.Queue[tuple[int, Result]]" = field(default_factory=queue.Queue)
    runs: list[RunRecord] = field(default_factory=list)
    wakeups: int = 0
    sent: int = 0

    def __post_init__(self) -> None:
        self.layout = Layout.of(self.program)
        self.engine = Engine(self.program, self.layout, self.limits, self.deliver)
        self.thread = threading.Thread(target=self.engine.run, daemon=True)

    def __enter__(self) -> Self:
        torch.set_num_threads(1)
        return self

    def __exit__(self, *_: object) -> None:
        self.engine.stop()
        if self.thread.is_alive():
            self.thread.join(10)

    def deliver(self, outcomes: Sequence[Outcome], record: RunRecord | None) -> None:
        self.wakeups += bool(outcomes)
        if record is not None:
            self.runs.append(record)
        for outcome in outcomes:
            self.results.put((outcome.slot, outcome.result))

    def send(
        self, *inputs: torch.Tensor, patience: float = 60, gone: Callable[[], bool] = lambda: False, size: int = 1
    ) -> int:
        number = self.sent
        self.sent += 1
        sizes = self.program.bind([tuple(tensor.shape) for tensor in inputs])
        now = time.monotonic()
        group = self.layout.group_key(sizes, inputs)
        ticket = Ticket(number, group, self.layout.rows(sizes), size, now, now + patience)
        self.engine.submit(Work(ticket, inputs, sizes, number, gone))
        return number

    def collect(self) -> dict[int, Result]:
        """Start the thread if need be, and wait for the result of everything that was sent."""
        if not self.thread.is_alive():
            self.thread.start()
        found: dict[int, Result] = {}
        while len(found) < self.sent:
            number, result = self.results.get(timeout=60)
            assert number not in found, "answered twice"
            found[number] = result
        return found


def ids(rows: int, length: int, seed: int = 0) -> torch.Tensor:
    return torch.randint(0, WORDS, (rows, length), generator=torch.Generator().manual_seed(seed))


def expected(given: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    with torch.no_grad():
        answers = Encoder().eval()(given, torch.ones_like(given))
    return answers["pooled"], answers["tokens"]


def right(result: Result, given: torch.Tensor) -> bool:
    assert isinstance(result, Answer), result
    return all(torch.allclose(a, b, rtol=1e-4, atol=1e-5) for a, b in zip(result.outputs, expected(given), strict=True))


REQUESTS = st.lists(st.tuples(st.integers(1, 5), st.sampled_from([2, 3, 7]), st.booleans()), min_size=1, max_size=14)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(REQUESTS, st.integers(1, 9))
def test_every_request_gets_its_own_rows_and_only_the_poisonous_fail(
    encoder: Program, requests: list[tuple[int, int, bool]], max_batch: int
) -> None:
    with Desk(encoder, Limits(max_batch, 0.0, 1000, 10**9)) as desk:
        asked = [ids(rows, length, seed) for seed, (rows, length, _) in enumerate(requests)]
        for given_ids, (_, _, poisonous) in zip(asked, requests, strict=True):
            if poisonous:
                given_ids[0, 0] = WORDS + 1
            desk.send(given_ids, torch.ones_like(given_ids))
        results = desk.collect()
    for number, (_, _, poisonous) in enumerate(requests):
        if poisonous:
            assert isinstance(results[number], ProgramFailedError)
        else:
            assert right(results[number], asked[number])
    assert all(run.rows <= max_batch or run.requests == 1 for run in desk.runs)


def test_requests_that_wait_together_share_one_run_and_one_wake_up(encoder: Program) -> None:
    with Desk(encoder) as desk:
        asked = [ids(1, 4, seed) for seed in range(5)]
        for given_ids in asked:
            desk.send(given_ids, torch.ones_like(given_ids))
        results = desk.collect()
    assert [run.rows for run in desk.runs] == [5]
    assert desk.runs[0].sizes == {"batch": 5, "sequence": 4}
    assert desk.wakeups == 1
    assert all(right(results[n], given_ids) for n, given_ids in enumerate(asked))
    assert {r.batch_rows for r in results.values() if isinstance(r, Answer)} == {5}


def test_a_full_batch_does_not_wait_for_the_clock(encoder: Program) -> None:
    with Desk(encoder, Limits(4, 60.0, 64, 10**6)) as desk:
        desk.thread.start()
        for seed in range(4):
            desk.send(ids(1, 4, seed), torch.ones(1, 4, dtype=torch.int64))
        assert len(desk.collect()) == 4


def test_inputs_without_rows_must_be_equal_for_a_shared_run(scaled: Program) -> None:
    with Desk(scaled) as desk:
        x, twice, thrice = torch.ones(1, 3) * 2, torch.ones(3) * 2, torch.ones(3) * 3
        for factor in (twice, thrice, twice.clone()):
            desk.send(x, factor)
        results = desk.collect()
    assert sorted(run.rows for run in desk.runs) == [1, 2]
    for number, factor in enumerate((2, 3, 2)):
        result = results[number]
        assert isinstance(result, Answer)
        torch.testing.assert_close(result.outputs[0], torch.log(x) * factor)


def test_a_program_without_rows_runs_its_requests_one_at_a_time(folder: Path) -> None:
    program = load_program(prepare(export(Summed, folder / "summed.pt2"), folder / "summed"), dimension_names={})
    with Desk(program, Limits(1, 60.0, 64, 10**6)) as desk:
        assert desk.layout.batch is None
        assert desk.layout.reason
        for n in (2, 3):
            desk.send(torch.ones(n, 3))
        results = desk.collect()
    sums = [r.outputs[0].tolist() for r in results.values() if isinstance(r, Answer)]
    assert sums == [[2, 2, 2], [3, 3, 3]]


def test_an_answer_that_cannot_be_looked_at_fails_its_request_and_not_the_engine(encoder: Program) -> None:
    desk = Desk(encoder)

    def compute(inputs: list[torch.Tensor], joint: Joint) -> list[torch.Tensor]:
        """Without memory: nobody can say whether it is finite, as when memory lacks for the look."""
        return [torch.empty(inputs[0].shape[0], *rest, device="meta") for rest in ((8,), (inputs[0].shape[1], 8))]

    desk.engine = Engine(encoder, desk.layout, LIMITS, desk.deliver, compute=lambda: compute)
    desk.thread = threading.Thread(target=desk.engine.run, daemon=True)
    with desk:
        for length in (2, 2, 5):
            desk.send(ids(1, length), torch.ones(1, length, dtype=torch.int64))
        assert {type(result) for result in desk.collect().values()} == {ProgramFailedError}
        assert desk.thread.is_alive()


def test_expired_and_abandoned_requests_never_run(encoder: Program) -> None:
    with Desk(encoder) as desk:
        one = torch.ones(1, 4, dtype=torch.int64)
        late = desk.send(one, one, patience=0)
        left = desk.send(one, one, gone=lambda: True)
        stays = desk.send(one, one)
        results = desk.collect()
    assert isinstance(results[late], DeadlineExceededError)
    assert results[left] is None
    assert isinstance(results[stays], Answer)
    assert [run.requests for run in desk.runs] == [1]


def test_a_sweep_answers_what_waits_in_vain_while_the_thread_is_busy(encoder: Program) -> None:
    with Desk(encoder) as desk:  # the thread is not started: it is as busy as can be
        one = torch.ones(1, 4, dtype=torch.int64)
        desk.send(one, one, patience=0)
        desk.send(one, one, gone=lambda: True)
        desk.engine.sweep()
        assert isinstance(desk.results.get(timeout=60)[1], DeadlineExceededError)
        assert desk.results.get(timeout=60)[1] is None
        assert desk.engine.waiting_rows == 0


def test_a_full_line_refuses_with_a_time_to_come_back(encoder: Program) -> None:
    with Desk(encoder, Limits(8, 1.0, capacity=2, bytes=10)) as desk:
        one = torch.ones(1, 4, dtype=torch.int64)
        desk.send(one, one, size=6)
        with pytest.raises(QueueFullError, match=r"queue\.bytes") as refusal:
            desk.send(one, one, size=6)
        assert refusal.value.retry_after >= 1
        desk.send(one, one, size=1)
        with pytest.raises(QueueFullError, match=r"queue\.capacity"):
            desk.send(one, one, size=1)


def test_stopping_answers_what_still_waits_and_admits_nothing_more(encoder: Program) -> None:
    with Desk(encoder, Limits(8, 60.0, 64, 10**6)) as desk:
        one = torch.ones(1, 4, dtype=torch.int64)
        desk.send(one, one)
        desk.thread.start()
        desk.engine.stop()
        assert isinstance(desk.collect()[0], NotServingError)
        with pytest.raises(NotServingError):
            desk.send(one, one)


def test_new_limits_wake_a_waiting_engine(encoder: Program) -> None:
    with Desk(encoder, Limits(8, 60.0, 64, 10**6)) as desk:
        one = torch.ones(1, 4, dtype=torch.int64)
        desk.thread.start()
        desk.send(one, one)
        desk.engine.apply(Limits(8, 0.0, 64, 10**6))
        assert isinstance(desk.collect()[0], Answer)


@dataclass
class FewestTwo:
    """The encoder, as if it took no batch of one, and answered wrongly at five rows, which its guards forbid."""

    real: Program

    def __getattr__(self, name: str) -> object:
        return getattr(self.real, name)

    def run(self, inputs: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        rows = inputs[0].shape[0]
        assert rows != 1
        return tuple(output * (rows != 5) for output in self.real.run(inputs))

    def check(self, sizes: dict[str, int]) -> str | None:
        return "not five" if sizes["batch"] == 5 else None


@pytest.fixture
def fussy(encoder: Program) -> Iterator[Desk]:
    desk = Desk(FewestTwo(encoder), Limits(5, 0.0, 64, 10**6))  # type: ignore[arg-type]
    layout = Layout(desk.layout.batch, None, desk.layout.inputs, desk.layout.outputs, fewest=2)
    desk.layout = layout
    desk.engine = Engine(desk.program, layout, desk.limits, desk.deliver)
    desk.thread = threading.Thread(target=desk.engine.run, daemon=True)
    with desk:
        yield desk


def test_too_few_rows_are_filled_up_with_copies_that_no_answer_shows(fussy: Desk) -> None:
    given_ids = ids(1, 3)
    fussy.send(given_ids, torch.ones_like(given_ids))
    assert right(fussy.collect()[0], given_ids)


def test_a_batch_that_the_guards_forbid_is_run_one_by_one(fussy: Desk) -> None:
    asked = [ids(2, 3, 1), ids(3, 3, 2)]
    for given_ids in asked:
        fussy.send(given_ids, torch.ones_like(given_ids))
    results = fussy.collect()
    assert all(right(results[n], given_ids) for n, given_ids in enumerate(asked))


def test_an_engine_knows_how_long_its_run_takes(encoder: Program) -> None:
    entered, leave = threading.Event(), threading.Event()

    class Slow(FewestTwo):
        def run(self, inputs: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
            entered.set()
            leave.wait(10)
            return self.real.run(inputs)

    with Desk(Slow(encoder), Limits(8, 0.0, 64, 10**6)) as desk:  # type: ignore[arg-type]
        assert desk.engine.busy_for() == 0
        one = torch.ones(1, 4, dtype=torch.int64)
        desk.send(one, one)
        desk.thread.start()
        assert entered.wait(10)
        assert desk.engine.busy_for() > 0
        leave.set()
        desk.collect()
        assert desk.engine.busy_for() == 0
