"""Several instances on one line and the same weights: they run at a time, and live and end together."""

import asyncio
import gc
import resource
import threading
import tracemalloc
from collections.abc import Sequence

import pytest
import torch
from headway_runtime.errors import NotServingError, ProgramFailedError
from headway_runtime.processors import compute_threads
from headway_runtime.program import Program, load_program
from headway_runtime.serving.values import Reply

from tests.unit.serving_desk import Desk, desk
from tests.unit.small_models import Encoder, export, prepare

PADDED = {"padded": ("sequence",), "fills": (0, 0), "batch": [1, 8], "sequence": [16]}


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Program:
    folder = tmp_path_factory.mktemp("instances")
    return load_program(
        prepare(export(Encoder, folder / "encoder.pt2"), folder / "encoder"), dimension_names={"sequence": "ids.1"}
    )


class Watched:
    """The program; `before` is called in each run, on its thread."""

    def __init__(self, real: Program) -> None:
        self.real = real
        self.before = lambda: None

    def __getattr__(self, name: str) -> object:
        return getattr(self.real, name)

    def run(self, inputs: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        self.before()
        return self.real.run(inputs)


def text(length: int) -> dict[str, torch.Tensor]:
    ids = torch.randint(1, 50, (1, length))
    return {"ids": ids, "mask": torch.ones_like(ids)}


async def test_so_many_runs_are_made_at_a_time_as_there_are_instances(encoder: Program) -> None:
    program = Watched(encoder)
    meeting = threading.Barrier(3)
    program.before = lambda: meeting.wait(60)  # passes only when three runs are there at once
    async with desk(program, '{"maxWait": "0ms", "maxBatch": 1}', instances=3, **PADDED) as serving:  # type: ignore[arg-type]
        for length in range(1, 7):
            serving.send(text(length))
        results = await serving.all()
    assert all(isinstance(result, Reply) for result in results.values())
    assert len(serving.runs) == 6


async def test_an_instance_that_hangs_is_seen_while_the_others_go_on(encoder: Program) -> None:
    program = Watched(encoder)
    hangs, leave = threading.Event(), threading.Event()

    def hang_once() -> None:
        if not hangs.is_set():
            hangs.set()
            leave.wait(60)

    program.before = hang_once
    async with desk(program, '{"maxWait": "0ms", "maxBatch": 1}', instances=2, **PADDED) as serving:  # type: ignore[arg-type]
        serving.send(text(3))
        await asyncio.get_running_loop().run_in_executor(None, hangs.wait, 60)
        for _ in range(5):
            serving.send(text(4))
        await serving.all(but=1)
        assert 0 not in serving.results
        assert serving.engine.busy_for() > 0
        leave.set()
        await serving.all()
    assert serving.engine.busy_for() == 0


async def test_while_one_instance_runs_another_watches_the_clock_for_those_that_wait(encoder: Program) -> None:
    program = Watched(encoder)
    first, leave = threading.Event(), threading.Event()

    def hold_the_first() -> None:
        if not first.is_set():
            first.set()
            leave.wait(60)

    program.before = hold_the_first
    changes = {"batch": [1, 8], "sequence": [16]}  # not padded: other lengths are other groups
    async with desk(program, '{"maxWait": "60ms"}', instances=2, **changes) as serving:  # type: ignore[arg-type]
        serving.send(text(3))
        await asyncio.sleep(0.03)
        later = serving.send(text(4))
        await asyncio.get_running_loop().run_in_executor(None, first.wait, 60)
        await serving.all(but=1)
        assert list(serving.results) == [later], "it did not have to wait for the end of the first run"
        reply = serving.results[later]
        leave.set()
        await serving.all()
    assert isinstance(reply, Reply)
    assert reply.queue_seconds > 0.05, "but for as long as it may"


async def test_a_protocol_that_cannot_tell_whether_its_client_is_gone_ends_nothing(encoder: Program) -> None:
    def confused() -> bool:
        raise OSError("no such connection")

    async with desk(encoder, '{"maxWait": "0ms"}', **PADDED) as serving:  # type: ignore[arg-type]
        numbers = [serving.send(text(3), gone=confused), serving.send(text(3))]
        results = await serving.all()
    assert all(isinstance(results[number], Reply) for number in numbers)


async def test_when_one_instance_dies_all_end_and_every_request_is_answered(encoder: Program) -> None:
    class DeviceLost(BaseException):
        pass

    program = Watched(encoder)
    gone = threading.Event()

    def lost_once() -> None:
        if not gone.is_set():
            gone.set()
            raise DeviceLost

    program.before = lost_once
    async with desk(program, '{"maxWait": "0ms", "maxBatch": 1}', started=False, instances=2, **PADDED) as serving:  # type: ignore[arg-type]
        for _ in range(20):
            serving.send(text(3))
        running = asyncio.get_running_loop().run_in_executor(None, ends_with, serving, DeviceLost)
        results = await serving.all()
        async with asyncio.timeout(60):
            assert await running
        late = serving.send(text(3))
    kinds = [type(result) for result in results.values()]
    assert kinds.count(ProgramFailedError) == 1, "the one that was in the run"
    assert kinds.count(NotServingError) > 0, "those that waited; the other instance may have answered a few"
    assert isinstance(results[late], NotServingError)


def ends_with(serving: Desk, kind: type[BaseException]) -> bool:
    try:
        serving.engine.run()
    except kind:
        return True
    return False


async def test_memory_stays_flat_over_many_requests_of_all_sizes(encoder: Program) -> None:
    """Counted are Python's objects; tensors by the process's memory."""

    async def some(serving: Desk, rounds: int) -> None:
        for number in range(rounds):
            for turn in range(20):
                serving.send(
                    text(1 + (number * 7 + turn * 3) % 16), gone=(lambda: True) if turn == 7 else lambda: False
                )
            await serving.all()
            serving.results = dict.fromkeys(serving.results)  # the replies themselves must not be held here
            if number % 10 == 0:
                await asyncio.sleep(0)
        serving.results.clear()
        serving.sent = 0
        serving.runs.clear()
        gc.collect()

    async with desk(encoder, '{"maxWait": "0ms"}', instances=2, **PADDED) as serving:
        await some(serving, 60)
        tracemalloc.start()
        try:
            await some(serving, 20)
            objects, memory = tracemalloc.get_traced_memory()[0], peak()
            await some(serving, 150)
            grown = tracemalloc.get_traced_memory()[0] - objects
        finally:
            tracemalloc.stop()
        assert serving.engine.waiting_rows == 0
    assert grown < 100_000, f"3000 requests left {grown} bytes"
    assert peak() - memory < 32 << 20


def peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


@pytest.mark.parametrize(("limit", "instances", "threads"), [(8.0, 2, 4), (7.9, 2, 3), (2.0, 4, 1), (0.5, 1, 1)])
def test_the_cpu_limit_is_shared_among_the_instances(limit: float, instances: int, threads: int) -> None:
    assert compute_threads(limit, instances) == threads
