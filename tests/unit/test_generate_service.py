"""Requests for text between their protocol and the engine: who is admitted, who is sent elsewhere, what counts."""

import asyncio
import time
from collections.abc import AsyncIterator

import pytest
from headway_api.podconfig import BucketCost, Phase
from headway_runtime.batching.tickets import Priority
from headway_runtime.errors import (
    DeadlineExceededError,
    InvalidRequestError,
    NotServingError,
    QueueFullError,
    RequestError,
    TooLargeError,
)
from headway_runtime.generation.opened import Opened
from headway_runtime.generation.values import FinishReason, Piece, Stream, Usage
from headway_runtime.metrics import Metrics
from headway_runtime.origin import Origin
from headway_runtime.pod import Pod
from headway_runtime.serving.generate import GenerateService
from headway_runtime.serving.service import Service

from tests.unit.generator_desk import Desk, config, desk, greedy, open_tiny, prepared


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Opened:
    return open_tiny(prepared(tmp_path_factory.mktemp("decoder")))


@pytest.fixture
async def running(found: Opened) -> AsyncIterator[Desk]:
    async with desk(found) as started:
        yield started


@pytest.fixture
async def asleep(found: Opened) -> AsyncIterator[Desk]:
    async with desk(found, '{"queue":{"capacity":3,"bytes":"1Ki"}}', started=False) as started:
        yield started


async def test_an_answer_is_what_the_exporter_recorded(running: Desk, found: Opened) -> None:
    golden = found.facts.decoder.golden[0]
    _, listener = running.start(greedy(*golden.prompt, tokens=len(golden.tokens)))
    usage = await listener.end()
    assert isinstance(usage, Usage)
    assert listener.tokens == list(golden.tokens)
    assert (usage.prompt, usage.completion) == (len(golden.prompt), len(golden.tokens))
    assert listener.pieces[-1].finish is FinishReason.LENGTH


def test_a_pod_that_is_not_ready_says_what_it_does_instead() -> None:
    service = GenerateService(Pod(config(), Metrics(), Origin()))
    for ask in (lambda: service.facts, lambda: service.start(greedy(1), None), service.allowed):  # type: ignore[arg-type]
        with pytest.raises(NotServingError, match="this pod is loading"):
            ask()


async def test_a_pod_that_ends_sends_requests_elsewhere(running: Desk) -> None:
    running.pod.refusing = True
    with pytest.raises(NotServingError) as raised:
        running.start(greedy(1))
    assert not raised.value.admitted, "another pod may have it"


async def test_nothing_comes_after_the_end_of_a_cancelled_stream(
    running: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[Stream] = []
    engine = running.pod.generating()[0].engine
    monkeypatch.setattr(engine, "submit", lambda generate, stream: kept.append(stream) or 7)
    _, listener = running.start(greedy(1))
    (stream,) = kept
    stream.ended(None)
    stream.pieces((Piece(0, "late", (5,), finish=FinishReason.LENGTH),))  # of a step that ended before the cancel
    assert listener.pieces == []
    assert running.pod.metrics.registry.get_sample_value("headway_answers_total", {"reason": "length"}) is None


async def test_tensors_are_not_taken_where_text_is_generated(running: Desk) -> None:
    with pytest.raises(InvalidRequestError, match="POST /v1/completions"):
        Service(running.pod).call(None, None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("prompt", "n", "error", "says"),
    [
        ((), 1, InvalidRequestError, "the prompt is empty"),
        ((384,), 1, InvalidRequestError, "token 384 of the prompt is not from 0 to 383"),
        ((5, -1), 1, InvalidRequestError, "token -1"),
        ((5,) * 512, 1, InvalidRequestError, "room for 512"),
        ((5,), 4, TooLargeError, "4 answers; at most 3 are ever admitted"),
        ((5,) * 129, 1, TooLargeError, "1032 bytes of prompts; at most 1024"),
    ],
)
async def test_what_can_never_be_answered_here_is_refused_with_the_limit(
    asleep: Desk, prompt: tuple[int, ...], n: int, error: type[RequestError], says: str
) -> None:
    if len(prompt) == 512:
        asleep.pod.knobs_changed("{}", "wide")
    with pytest.raises(error, match=says):
        asleep.start(greedy(*prompt, n=n))


async def test_a_full_line_says_when_to_come_back_and_a_place_that_is_left_can_be_had(asleep: Desk) -> None:
    numbers = [asleep.start(greedy(5))[0] for _ in range(3)]
    with pytest.raises(QueueFullError, match=r"at most 3 answers wait \(spec.batching.queue.capacity\)") as raised:
        asleep.start(greedy(5))
    assert raised.value.retry_after >= 1
    assert asleep.generator.waiting == 3
    asleep.service.cancel(numbers[1])
    asleep.start(greedy(5))


async def test_who_leaves_is_ended_without_a_word_and_counted(running: Desk) -> None:
    number, listener = running.start(greedy(5, tokens=400, n=2))
    await listener.begun.wait()
    running.service.cancel(number)
    assert await listener.end() is None
    made = len(listener.pieces)
    await asyncio.sleep(0.05)
    assert len(listener.pieces) == made, "nothing comes after the end"
    assert running.metric("headway_answers_total", reason="cancelled") == 2
    running.service.cancel(number)  # once more, in vain


async def test_who_waits_beyond_its_deadline_costs_nothing_and_is_told(asleep: Desk) -> None:
    _, listener = asleep.start(greedy(5), first_by=0.01)
    await asyncio.sleep(0.02)
    asleep.generator.sweep()
    assert isinstance(await listener.end(), DeadlineExceededError)
    assert asleep.metric("headway_answers_total", reason="error") == 1


async def test_a_request_of_high_priority_goes_first(found: Opened) -> None:
    async with desk(found, '{"maxBatch":1}', started=False) as asleep:
        _, low = asleep.start(greedy(5, tokens=30), priority=Priority.LOW)
        _, high = asleep.start(greedy(6, tokens=30), priority=Priority.HIGH)
        asleep.thread.start()
        await high.end()
        assert not low.over.is_set()
        await low.end()


async def test_streams_that_have_not_ended_when_the_engine_stops_get_an_error(found: Opened) -> None:
    async with desk(found) as running:
        _, listener = running.start(greedy(5, tokens=500, n=8))
        await listener.begun.wait()
        running.generator.stop()
        error = await listener.end()
    assert isinstance(error, RequestError)
    assert "ended before this answer was complete" in str(error)


async def test_requests_count_as_in_flight_until_they_end_and_as_what_they_ended_with(running: Desk) -> None:
    pod, service = running.pod, running.service
    began = service.begin()
    assert pod.in_flight == 1
    service.end(began, 200)
    service.end(service.begin(), None, "client_gone")
    service.end(service.begin(), 504, DeadlineExceededError("late"))
    assert (pod.in_flight, pod.requests, pod.failures) == (0, 2, 1)
    assert running.metric("headway_requests_total", code="200") == 1
    assert running.metric("headway_rejections_total", reason="deadline") == 1
    assert running.metric("headway_cancelled_total") == 1


async def test_the_report_has_room_for_sequences_and_the_knobs_in_force(running: Desk, found: Opened) -> None:
    running.pod.knobs_changed('{"maxBatch":5,"stepTokens":100000}', "n2")
    report = running.pod.report()
    assert report.phase is Phase.READY
    assert report.generation is not None
    assert report.generation.kernels == found.kept.kernels != ""
    assert report.generation.weights_bytes == found.decoder.weights_bytes
    assert (report.knobs.hash, report.knobs.effective["maxBatch"]) == ("n2", 5)
    assert [clamp.field for clamp in report.knobs.clamped] == ["spec.generation.stepTokens"]
    assert report.recommendation is None


async def test_a_step_that_does_not_come_back_is_found_by_the_liveness_check(
    running: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not running.pod.stuck()
    monkeypatch.setattr(running.generator.engine, "_running_since", time.monotonic() - 40)
    assert running.pod.stuck()
    running.pod.warmed(BucketCost(sizes={"tokens": 256, "sequences": 1}, seconds=0.5))
    assert running.pod.stuck(), "twenty times as long as that are 10 s"
    running.pod.knobs_changed('{"stepTokens":2560}', "large")
    assert not running.pod.stuck(), "a step may have ten times as many tokens now"
