"""From a request to its reply, with a real program: rows map to requests exactly, whatever fails and whatever is
split.
"""

import asyncio
import random
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from headway_runtime.errors import (
    DeadlineExceededError,
    InvalidRequestError,
    NonFiniteError,
    ProgramFailedError,
    QueueFullError,
    RequestError,
    TooLargeError,
)
from headway_runtime.program import Program, load_program
from headway_runtime.serving.values import Call, Given, Reply
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.serving_desk import Desk, Result, desk
from tests.unit.small_models import WORDS, Encoder, Scaled, Summed, export, prepare

PADDED = {"padded": ("sequence",), "fills": (0, 0), "batch": [1, 4, 8], "sequence": [4, 16]}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("service")


@pytest.fixture(scope="module")
def encoder(folder: Path) -> Program:
    return load_program(
        prepare(export(Encoder, folder / "encoder.pt2"), folder / "encoder"), dimension_names={"sequence": "ids.1"}
    )


@pytest.fixture(scope="module")
def scaled(folder: Path) -> Program:
    return load_program(prepare(export(Scaled, folder / "scaled.pt2"), folder / "scaled"), dimension_names={})


def text(rows: int, length: int, seed: int = 0) -> dict[str, torch.Tensor]:
    ids = torch.randint(1, WORDS, (rows, length), generator=torch.Generator().manual_seed(seed))
    return {"ids": ids, "mask": torch.ones_like(ids)}


def right(result: Result, inputs: dict[str, torch.Tensor]) -> bool:
    assert isinstance(result, Reply), result
    with torch.no_grad():
        expected = Encoder().eval()(inputs["ids"], inputs["mask"])
    for output in result.outputs:
        assert isinstance(output.value, torch.Tensor)
        torch.testing.assert_close(output.value, expected[output.name], rtol=1e-4, atol=1e-5)
    return True


class Counting:
    """The program, with every call's number of rows; it fails when `fails` says so."""

    def __init__(self, real: Program, fails: object = None) -> None:
        self.real = real
        self.fails = fails
        self.calls: list[int] = []

    def __getattr__(self, name: str) -> object:
        return getattr(self.real, name)

    def run(self, inputs: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        self.calls.append(inputs[0].shape[0])
        if callable(self.fails):
            self.fails(inputs)
        return self.real.run(inputs)


@dataclass(frozen=True)
class Asked:
    """A request: well, poisonous in one of its rows, without patience, or abandoned before or after a while."""

    rows: int
    length: int
    fate: str


ASKED = st.builds(
    Asked,
    st.integers(0, 20),
    st.integers(1, 16),
    st.sampled_from(["well", "well", "well", "well", "poisonous", "late", "gone", "leaves"]),
)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(ASKED, min_size=1, max_size=16),
    st.integers(1, 9),
    st.integers(0, 3),
    st.sampled_from(["0ms", "2ms"]),
    st.booleans(),
)
def test_every_request_gets_its_own_rows_once_whatever_else_fails(
    encoder: Program, asked: list[Asked], max_batch: int, instances: int, max_wait: str, padded: bool
) -> None:
    changes = PADDED if padded else {"batch": [1, 4, 8], "sequence": [4, 16]}

    async def run() -> tuple[dict[int, Result], Desk, list[dict[str, torch.Tensor]]]:
        knobs = f'{{"maxBatch": {max_batch}, "maxWait": "{max_wait}", "queue": {{"capacity": 1000, "bytes": "9Mi"}}}}'
        inputs = [text(a.rows, a.length, seed) for seed, a in enumerate(asked)]
        left = [a.fate == "gone" for a in asked]
        inline = instances == 0  # on the event loop
        async with desk(encoder, knobs, instances=max(1, instances), inline=inline, **changes) as serving:
            for number, (a, tensors) in enumerate(zip(asked, inputs, strict=True)):
                if a.fate == "poisonous" and a.rows:
                    tensors["ids"][random.Random(number).randrange(a.rows), 0] = WORDS + 1
                serving.send(tensors, patience=-1.0 if a.fate == "late" else 60.0, gone=lambda n=number: left[n])
                if number % 3 == 0:
                    await asyncio.sleep(0.0005)
            for number, a in enumerate(asked):
                left[number] |= a.fate == "leaves"
            return dict(await serving.all()), serving, inputs

    results, serving, inputs = asyncio.run(run())
    for number, a in enumerate(asked):
        result = results[number]
        if a.rows == 0 or a.fate == "well":
            assert right(result, inputs[number])
        elif a.fate == "poisonous":
            assert isinstance(result, ProgramFailedError)
        elif a.fate == "late":
            assert isinstance(result, DeadlineExceededError)
        elif a.fate == "gone":
            assert result is None
        else:
            assert result is None or right(result, inputs[number])
    assert serving.engine.waiting_rows == 0
    assert all(run.rows <= min(max_batch, 8) for run in serving.runs), "larger ones are split"


async def test_a_request_beyond_the_largest_batch_is_split_evenly_and_joined_again(encoder: Program) -> None:
    inputs = text(21, 5)
    async with desk(encoder, '{"maxWait": "0ms"}', **PADDED) as serving:
        serving.send(inputs)
        (reply,) = (await serving.all()).values()
    assert right(reply, inputs)
    assert sorted(run.rows for run in serving.runs) == [7, 7, 7]
    assert isinstance(reply, Reply)
    assert reply.batch_rows == 7


async def test_parts_of_a_request_share_runs_with_others(encoder: Program) -> None:
    async with desk(encoder, '{"maxWait": "0ms", "maxBatch": 6}', started=False, **PADDED) as serving:
        inputs = [text(9, 5, 1), text(1, 3, 2), text(1, 16, 3)]
        for tensors in inputs:
            serving.send(tensors)
        running = asyncio.get_running_loop().run_in_executor(None, serving.engine.run)
        results = await serving.all()
        serving.engine.stop()
        await running
    assert all(right(results[n], tensors) for n, tensors in enumerate(inputs))
    assert len(serving.runs) == 2
    assert sum(run.requests for run in serving.runs) == 4


async def test_when_one_part_fails_the_request_fails_once_and_its_other_parts_have_left_the_line(
    encoder: Program,
) -> None:
    inputs = text(8, 5)
    inputs["ids"][0, 0] = WORDS + 1
    waiting: list[int] = []
    async with desk(encoder, '{"maxWait": "0ms", "maxBatch": 1}', **PADDED) as serving:

        def failed(result: Result) -> None:
            assert isinstance(result, ProgramFailedError)
            waiting.append(serving.engine.waiting_rows)

        serving.service.call(Given(inputs), Call(float("inf"), lambda: False, failed))
        well = serving.send(text(1, 5, 1))
        results = await serving.all()
    assert right(results[well], text(1, 5, 1))
    assert len(waiting) == 1
    assert waiting[0] <= 1, "no part of it, at most the other request"


async def test_parts_that_end_in_another_order_are_joined_in_their_own(encoder: Program) -> None:
    first, second = threading.Event(), threading.Event()

    def hold_the_first(_: Sequence[torch.Tensor]) -> None:
        if not first.is_set():
            first.set()
            second.wait(60)
        else:
            second.set()

    inputs = text(2, 5)
    program = Counting(encoder, hold_the_first)
    knobs = '{"maxWait": "0ms", "maxBatch": 1}'
    async with desk(program, knobs, instances=2, **PADDED) as serving:  # type: ignore[arg-type]
        serving.send(inputs)
        (reply,) = (await serving.all()).values()
    assert right(reply, inputs)


async def test_a_request_is_admitted_with_all_its_parts_or_not_at_all(encoder: Program) -> None:
    knobs = '{"maxWait": "10s", "maxBatch": 4, "queue": {"capacity": 16}}'
    async with desk(encoder, knobs, started=False, **PADDED) as serving:
        serving.send(text(3, 5))
        refused = serving.send(text(14, 5))
        assert isinstance(serving.results[refused], QueueFullError)
        assert serving.engine.waiting_rows == 3, "no part stays in line"
        impossible = serving.send(text(17, 5))
        assert isinstance(serving.results[impossible], TooLargeError)


async def test_a_program_whose_rows_cannot_be_told_apart_runs_large_requests_whole(folder: Path) -> None:
    program = load_program(prepare(export(Summed, folder / "summed.pt2"), folder / "summed"), dimension_names={})
    async with desk(program, '{"maxWait": "0ms"}', **{"x.0": [4, 8]}) as serving:
        well = serving.send({"x": torch.ones(8, 3)})
        refused = serving.send({"x": torch.ones(9, 3)})
        results = await serving.all()
    reply = results[well]
    assert isinstance(reply, Reply)
    assert isinstance(reply.outputs[0].value, torch.Tensor)
    assert reply.outputs[0].value.tolist() == [8.0, 8.0, 8.0]
    assert isinstance(results[refused], InvalidRequestError)
    assert "at most 8 is admitted" in str(results[refused])
    assert [run.requests for run in serving.runs] == [1]


async def test_no_rows_are_answered_without_a_run(encoder: Program) -> None:
    async with desk(encoder, **PADDED) as serving:
        serving.send(text(0, 5))
        (reply,) = serving.results.values()
    assert right(reply, text(0, 5))
    assert serving.runs == []


async def test_what_is_late_or_gone_costs_nothing(encoder: Program) -> None:
    async with desk(encoder, '{"maxWait": "0ms"}', started=False, **PADDED) as serving:
        for number in range(40):
            serving.send(text(2, 5, number), patience=-1.0 if number % 2 else 60.0, gone=lambda: True)
        running = asyncio.get_running_loop().run_in_executor(None, serving.engine.run)
        results = await serving.all()
        serving.engine.stop()
        await running
    assert serving.runs == []
    assert sum(isinstance(result, DeadlineExceededError) for result in results.values()) == 20


async def answered(serving: Desk) -> dict[int, Result]:
    """Start the engine on what waits, and let it end."""
    running = asyncio.get_running_loop().run_in_executor(None, serving.engine.run)
    results = await serving.all()
    serving.engine.stop()
    await running
    return results


@pytest.mark.parametrize("odd", [WORDS, -1])
async def test_numbers_beyond_a_table_are_the_clients_mistake(encoder: Program, odd: int) -> None:
    async with desk(encoder, '{"maxBatch": 4}', tables={"ids": WORDS, "mask": 9}, **PADDED) as served:
        good, bad = text(1, 4), text(3, 4)
        bad["ids"][2, 1] = odd
        many = {name: tensor.repeat(3, 1) for name, tensor in bad.items()}  # which is split
        for inputs in (good, bad, many):
            served.send(inputs)
        results = await served.all()
    assert right(results[0], good)
    for number in (1, 2):
        error = results[number]
        assert isinstance(error, InvalidRequestError)
        assert str(error) == f"input 'ids' holds {odd}; the model knows 0 to {WORDS - 1}"


async def test_a_program_that_fails_on_numbers_that_it_knows_is_to_blame(encoder: Program) -> None:
    async with desk(encoder, tables={"ids": WORDS + 5}, **PADDED) as served:
        inputs = text(1, 4)
        inputs["ids"][0, 0] = WORDS + 1
        served.send(inputs)
        results = await served.all()
    assert isinstance(results[0], ProgramFailedError)


async def test_one_poisonous_request_among_many_costs_few_repetitions(encoder: Program) -> None:
    program = Counting(encoder)
    async with desk(program, '{"maxWait": "0ms"}', started=False, **PADDED) as serving:  # type: ignore[arg-type]
        inputs = [text(1, 5, seed) for seed in range(8)]
        inputs[5]["ids"][0, 3] = WORDS + 7
        for tensors in inputs:
            serving.send(tensors)
        results = await answered(serving)
    assert isinstance(results[5], ProgramFailedError)
    assert all(right(results[n], tensors) for n, tensors in enumerate(inputs) if n != 5)
    assert program.calls == [8, 4, 4, 2, 1, 1, 2]
    assert serving.runs[0].retried == 3


async def test_when_memory_lacks_for_a_run_smaller_ones_are_tried_and_nobody_fails(encoder: Program) -> None:
    def lacks(inputs: Sequence[torch.Tensor]) -> None:
        if inputs[0].shape[0] > 3:
            raise RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 TB")

    program = Counting(encoder, lacks)
    async with desk(program, '{"maxWait": "0ms"}', started=False, **PADDED) as serving:  # type: ignore[arg-type]
        inputs = [text(1, 5, seed) for seed in range(8)]
        for tensors in inputs:
            serving.send(tensors)
        results = await answered(serving)
    assert all(right(results[n], tensors) for n, tensors in enumerate(inputs))
    assert program.calls == [8, 4, 2, 2, 4, 2, 2]
    assert (serving.runs[0].retried, serving.runs[0].out_of_memory) == (3, 3)


@pytest.mark.parametrize(("policy", "fails"), [("Reject", True), ("Allow", False)])
async def test_an_answer_that_is_not_finite_is_counted_and_rejected_alone(
    scaled: Program, policy: str, fails: bool
) -> None:
    knobs = f'{{"maxWait": "0ms", "nonFinite": "{policy}"}}'
    async with desk(scaled, knobs, started=False) as serving:
        factor = torch.ones(3)
        for value in (1.0, -1.0, 2.0, 0.0):
            serving.send({"x": torch.full((1, 3), value), "factor": factor})
        results = await answered(serving)
    assert [run.rows for run in serving.runs] == [4]
    assert serving.runs[0].non_finite == 2
    for number in (1, 3):
        assert isinstance(results[number], NonFiniteError) is fails
    for number in (0, 2):
        assert isinstance(results[number], Reply)
    if fails:
        error = results[1]
        assert isinstance(error, RequestError)
        assert (error.status, error.kind) == (500, "non_finite")


async def test_numbers_whose_sum_is_not_finite_are(scaled: Program) -> None:
    async with desk(scaled, '{"nonFinite": "Reject", "maxWait": "0ms"}') as serving:
        serving.send({"x": torch.full((4, 3), 3.0), "factor": torch.full((3,), 3e38)})
        (reply,) = (await serving.all()).values()
    assert isinstance(reply, Reply)


async def test_a_request_that_breaks_its_own_answer_leaves_its_neighbours_alone(encoder: Program) -> None:
    async with desk(encoder, '{"maxWait": "0ms"}', started=False, **PADDED) as serving:
        serving.service.call(Given(text(1, 5, 1)), Call(float("inf"), lambda: False, lambda result: print(1 // 0)))
        well = serving.send(text(1, 5, 2))
        results = await answered(serving)
    assert right(results[well], text(1, 5, 2))


async def test_equal_requests_are_computed_once_and_kept_while_the_cache_has_room(encoder: Program) -> None:
    async with desk(encoder, '{"maxWait": "0ms", "cacheBytes": "1Mi"}', started=False, **PADDED) as serving:
        for _ in range(4):
            serving.send(text(2, 5, 1))
        serving.send(text(2, 5, 2))
        running = asyncio.get_running_loop().run_in_executor(None, serving.engine.run)
        results = await serving.all()
        again = serving.send(text(2, 5, 1))
        assert [run.requests for run in serving.runs] == [2]
        reply = results[again]
        assert right(reply, text(2, 5, 1))
        assert isinstance(reply, Reply)
        assert reply.cached
        serving.pod.knobs_changed('{"maxWait": "0ms"}', "off")
        serving.send(text(2, 5, 1))
        await serving.all()
        serving.engine.stop()
        await running
    assert len(serving.runs) == 2, "without a cache it is computed again"
    assert all(right(results[n], text(2, 5, 1)) for n in range(4))


async def test_the_report_says_what_the_load_means_and_costs_follow_the_real_runs(
    encoder: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headway_runtime.watch.RECOST_SECONDS", 0.0)
    monkeypatch.setattr("headway_runtime.advice.ENOUGH_SECONDS", 0.0)
    async with desk(encoder, '{"maxWait": "0ms"}', cost=1.0, **PADDED) as serving:
        for seed in range(60):
            serving.send(text(1, 5, seed))
            await serving.all()
        found = serving.pod.report().recommendation
    assert found is not None
    assert found.reason.value == "Balanced"
    assert serving.pod.watch is not None
    assert serving.pod.watch.cost is not None
    assert serving.pod.watch.cost(1, (4,)) < 0.1, "it was said to take a second"


async def test_quick_programs_run_on_the_event_loop_what_was_read_together(encoder: Program) -> None:
    async with desk(encoder, '{"maxWait": "0ms"}', inline=True, **PADDED) as serving:
        inputs = [text(1, 5, seed) for seed in range(12)]
        for tensors in inputs:
            serving.send(tensors)
        assert serving.runs == []
        results = await serving.all()
        assert serving.engine.inline
    assert all(right(results[n], tensors) for n, tensors in enumerate(inputs))
    assert [run.rows for run in serving.runs] == [8, 4]


async def test_on_the_event_loop_too_a_request_waits_for_company_no_longer_than_max_wait(encoder: Program) -> None:
    async with desk(encoder, '{"maxWait": "500ms"}', inline=True, **PADDED) as serving:
        serving.send(text(1, 5, 1))
        await asyncio.sleep(0.005)
        serving.send(text(1, 5, 2))
        assert serving.runs == []
        results = await serving.all()
    assert [run.rows for run in serving.runs] == [2]
    first = results[0]
    assert isinstance(first, Reply)
    assert 0.45 <= first.queue_seconds < 10


async def test_a_run_that_is_not_quick_ends_the_turns_and_a_thread_takes_over(encoder: Program) -> None:
    paused, slow = threading.Event(), threading.Event()

    def hold(_: Sequence[torch.Tensor]) -> None:
        if not paused.is_set():  # as when the processor is taken away
            paused.set()
            time.sleep(0.06)
        elif not slow.is_set():
            slow.set()
            until = time.thread_time() + 0.06
            while time.thread_time() < until:
                pass

    program = Counting(encoder, hold)
    async with desk(program, '{"maxWait": "0ms"}', inline=True, **PADDED) as serving:  # type: ignore[arg-type]
        serving.send(text(1, 5, 1))
        await serving.all()
        assert serving.engine.inline
        serving.send(text(1, 5, 2))
        await serving.all()
        assert not serving.engine.inline
        for seed in range(20):
            serving.send(text(1, 5, seed))
        results = await serving.all()
    assert all(isinstance(reply, Reply) for reply in results.values())


async def test_a_request_beyond_the_largest_bucket_runs_alone_at_its_own_size_where_that_is_allowed(
    encoder: Program,
) -> None:
    async with desk(encoder, '{"maxWait": "0ms"}', started=False, ceilings={"sequence": 40}, **PADDED) as serving:
        inputs = [text(1, 5, 1), text(2, 30, 2), text(1, 30, 3), text(1, 9, 4)]
        for tensors in inputs:
            serving.send(tensors)
        beyond = serving.send(text(1, 41))
        results = await answered(serving)
    assert all(right(results[n], tensors) for n, tensors in enumerate(inputs))
    assert "at most 40 is admitted" in str(results[beyond])
    assert sorted((run.sizes["sequence"], run.requests) for run in serving.runs) == [(9, 2), (30, 1), (30, 1)]
