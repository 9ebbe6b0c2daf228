"""The life of a pod inside the test's own process: what no request and no file can bring about from outside."""

import asyncio
import contextlib
import json
import os
import signal
import threading
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import hpack
import httpx
import pytest
import torch
import uvloop
from headway_api.podconfig import ColdConfig, Phase, Termination
from headway_runtime import knobs, life
from headway_runtime.batching.engine import Engine
from headway_runtime.batching.layout import Layout
from headway_runtime.buckets import resolve_buckets
from headway_runtime.metrics import Metrics
from headway_runtime.origin import Origin
from headway_runtime.pod import Model, Pod
from headway_runtime.ports import listen
from headway_runtime.program import Program, load_program
from headway_runtime.program.load import read_document
from headway_runtime.protocols.grpc.proto import inference_pb2 as pb
from headway_runtime.serving.intake import Intake
from headway_runtime.serving.steps.opening import open_pipeline
from headway_runtime.serving.steps.stage import Stage
from hyperframe.frame import HeadersFrame

from tests.unit import steps_models
from tests.unit.grpc_raw import RawClient
from tests.unit.pod_process import question, until
from tests.unit.small_models import Encoder, export, prepare

LINGER = 0.3


class DeviceLost(BaseException):
    """What no handler of ordinary errors catches."""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Program:
    folder = tmp_path_factory.mktemp("life")
    return load_program(prepare(export(Encoder, folder / "model.pt2"), folder / "model"), dimension_names={})


@pytest.fixture
def pod() -> Pod:
    cold = {"model": "encoder", "namespace": "t", "revision": "0a1b2c3d", "artifact": {"uri": "file:///m.pt2"}}
    return Pod(ColdConfig.model_validate({**cold, "device": {"kind": "cpu"}}), Metrics(), Origin())


def model(program: Program, deliver: Any) -> Model:
    layout, buckets = Layout.of(program), resolve_buckets(program, {"batch": [8]})
    engine = Engine(program, layout, knobs.resolve(knobs.parse("{}"), knobs.Bounds(8)).limits, deliver)
    return Model(engine, layout, Intake(program, layout, buckets), buckets)


def with_steps(found: Model, program: Program, directory: Path, hand: Any) -> Model:
    name, document = read_document(directory)
    main = Stage(name, program, found)
    return replace(found, pipeline=open_pipeline(directory, document, main, lambda _: main, hand, hand, threads=1))


async def test_when_the_engine_thread_dies_every_request_is_answered_and_the_pod_ends_with_a_reason(
    pod: Pod, program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(inputs: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        raise DeviceLost("the device is gone")

    monkeypatch.setattr(program, "run", fail)
    monkeypatch.setattr(life, "load", lambda pod, folder, to, hand: model(program, partial(to, pod.served)))
    (tmp_path / "knobs.json").write_text('{"maxWait": "5s", "maxBatch": 2}')
    inference, admin = listen("127.0.0.1", 0), listen("127.0.0.1", 0)
    port = inference.getsockname()[1]
    alive = asyncio.create_task(life.Life(pod, life.Options(tmp_path, tmp_path / "knobs.json", inference, admin)).run())
    try:
        async with asyncio.timeout(60), httpx.AsyncClient(timeout=60) as http:
            for _ in range(1000):
                if (await http.get(f"http://127.0.0.1:{port}/v2/health/ready")).status_code == 200:
                    break
                await asyncio.sleep(0.01)
            url = f"http://127.0.0.1:{port}/v2/models/encoder/infer"
            answers = await asyncio.gather(*(http.post(url, json=question([[1, 2]])) for _ in range(3)))
            failure = await alive
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().remove_signal_handler(number)
    assert sorted(a.status_code for a in answers) == [500, 500, 503], "two were in the run, one waited"
    assert [a.headers.get("x-headway-not-admitted") for a in answers if a.status_code == 503] == ["1"]
    assert not any("x-headway-not-admitted" in a.headers for a in answers if a.status_code == 500)
    assert failure is not None
    assert (failure.reason, failure.condition) == ("EngineFailed", "Ready")
    assert "the device is gone" in failure.message
    assert pod.phase is Phase.FAILED


@dataclass
class Running:
    """A pod that lives in the test's process: its base URL, its gRPC port, and the task that ends with it."""

    url: str
    grpc_port: int
    life: life.Life
    end: "asyncio.Task[Termination | None]"

    async def ask(self, http: httpx.AsyncClient) -> httpx.Response:
        return await http.post(f"{self.url}/v2/models/encoder/infer", json=question([[1, 2]]))


@asynccontextmanager
async def running(
    pod: Pod,
    program: Program,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    steps: Path | None = None,
    reason: str | None = None,
) -> AsyncIterator[Running]:
    """A ready pod with a short linger. It is told to end on the way out, if it has not ended by then. `steps`: where
    the program was prepared, whose steps are taken. `reason`: for which it ends.
    """

    def load(pod: Pod, _: Path, to: Any, hand: Any) -> Model:
        found = model(program, partial(to, pod.served))
        return found if steps is None else with_steps(found, program, steps, hand)

    monkeypatch.setattr(life, "LINGER", LINGER)
    monkeypatch.setattr(life, "FAREWELL", 0.0)
    monkeypatch.setattr(life, "load", load)
    (folder / "knobs.json").write_text('{"maxWait": "0ms", "maxBatch": 1}')
    inference, admin, third = (listen("127.0.0.1", 0) for _ in range(3))
    options = life.Options(folder, folder / "knobs.json", inference, admin, third)
    url = f"http://127.0.0.1:{inference.getsockname()[1]}"
    found = life.Life(pod, options)
    end = asyncio.create_task(found.run())
    try:
        async with asyncio.timeout(60):
            for _ in range(2000):
                if pod.ready:
                    break
                await asyncio.sleep(0.01)
            yield Running(url, third.getsockname()[1], found, end)
            if not end.done():
                terminate()
                terminate()
            failure = await end
            assert (failure and failure.reason) == reason
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().remove_signal_handler(number)


def terminate() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


async def test_a_part_of_the_server_that_ends_by_itself_ends_the_pod_with_a_reason(
    pod: Pod, program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its listener is closed by then."""
    async with running(pod, program, tmp_path, monkeypatch, reason="InternalError") as alive:
        alive.life._inference.should_exit = True
        await alive.end


async def test_a_pod_that_nobody_asks_ends_after_its_linger(
    pod: Pod, program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(pod, program, tmp_path, monkeypatch) as alive:
        began = time.monotonic()
        terminate()
        await alive.end
        assert LINGER <= time.monotonic() - began < LINGER + 10


async def test_a_draining_pod_serves_while_requests_come_as_seldom_as_before_and_ends_when_they_cease(
    pod: Pod, program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pause = 3 * LINGER
    async with running(pod, program, tmp_path, monkeypatch) as alive, httpx.AsyncClient(timeout=60) as http:
        await alive.ask(http)
        await asyncio.sleep(pause)
        await alive.ask(http)
        terminate()
        for _ in range(4):
            await asyncio.sleep(pause)
            answer = await alive.ask(http)
            assert (answer.status_code, answer.headers["connection"]) == (200, "close")
            assert (await http.get(f"{alive.url}/v2/health/ready")).status_code == 503
        last = time.monotonic()
        await alive.end
        assert pause < time.monotonic() - last < 2 * pause + 10


async def test_a_second_sigterm_ends_the_drain_at_once(
    pod: Pod, program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(pod, program, tmp_path, monkeypatch) as alive, httpx.AsyncClient(timeout=60) as http:
        await alive.ask(http)
        pod.arrivals.appendleft(pod.arrivals[0] - 20)  # so that this drain would last
        terminate()
        await asyncio.sleep(2 * LINGER)
        assert (await alive.ask(http)).status_code == 200, "it lasts"
        began = time.monotonic()
        terminate()
        await alive.end
        assert time.monotonic() - began < 15


async def test_who_still_waits_when_the_drain_has_taken_its_time_is_told_to_come_again(
    pod: Pod, program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, leave = threading.Event(), threading.Event()

    def hang(inputs: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        begun.set()
        leave.wait(60)
        raise RuntimeError("too late")

    monkeypatch.setattr(program, "run", hang)
    try:
        async with running(pod, program, tmp_path, monkeypatch) as alive, httpx.AsyncClient(timeout=30) as http:
            in_run = asyncio.create_task(alive.ask(http))
            assert await asyncio.to_thread(begun.wait, 20)
            async with grpc.aio.insecure_channel(f"127.0.0.1:{alive.grpc_port}") as channel:
                call = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")(infer_request())
                in_line = asyncio.ensure_future(call)
                await asyncio.to_thread(until, lambda: pod.in_flight == 2)
                terminate()
                terminate()
                with pytest.raises(grpc.aio.AioRpcError, match="before this answer was complete") as cut:
                    await in_line
            assert cut.value.code() is grpc.StatusCode.UNAVAILABLE
            assert dict(cut.value.trailing_metadata() or ())["retry-after"] == "1"
            answer = await in_run
            assert (answer.status_code, answer.headers["connection"]) == (503, "close")
            assert answer.headers["retry-after"] == "1"
            assert "x-headway-not-admitted" not in answer.headers, "the model has seen it"
            assert "spec.template.drainTimeout" in answer.json()["error"]
            assert await alive.end is None
        assert pod.failures == 0, "it is not the model that failed"
    finally:
        leave.set()
    await ended(alive)


async def ended(alive: Running) -> None:
    """The engine's thread has: nothing of it meets a loop that is closed."""
    await asyncio.to_thread(alive.life._thread.join, 60)


class Hanging:
    """Runs that begin, and end when `leave` is set: as they would have."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun, self.leave = threading.Event(), threading.Event()
        run = Program.run

        def hang(program: Program, *args: Any, **named: Any) -> tuple[torch.Tensor, ...]:
            self.begun.set()
            self.leave.wait(60)
            return run(program, *args, **named)

        monkeypatch.setattr(Program, "run", hang)


async def test_what_is_computed_when_the_engine_stops_is_answered_over_grpc_too(
    pod: Pod, program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(life, "PATIENCE", 60.0)
    async with running(pod, program, tmp_path, monkeypatch) as alive:
        hanging = Hanging(monkeypatch)
        async with grpc.aio.insecure_channel(f"127.0.0.1:{alive.grpc_port}") as channel:
            call = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")(infer_request())
            answer = asyncio.ensure_future(call)
            assert await asyncio.to_thread(hanging.begun.wait, 20)
            terminate()
            terminate()
            await asyncio.to_thread(until, lambda: alive.life._inference.should_exit)
            await asyncio.sleep(0.2)  # in which it was cut
            hanging.leave.set()
            assert pb.ModelInferResponse.FromString(await answer).outputs
    await ended(alive)


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_whoever_connects_as_the_pod_closes_its_ports_is_told_so(
    pod: Pod, program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, protocol: str
) -> None:
    """Each time they come while the loop, which is uvloop's as a pod's, stands still: just before the pod stops
    listening, and just before it disconnects everybody, when nobody may listen any more.
    """
    came: list[RawClient] = []
    body = json.dumps(question([[1, 2]])).encode()
    ask = b"POST /v2/models/encoder/infer HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)

    def come(alive: Running) -> None:
        for _ in range(5):
            if protocol == "http":
                came.append(RawClient(int(alive.url.rpartition(":")[2]), greet=False))
                came[-1].send(ask)
            else:
                came.append(RawClient(alive.grpc_port))
                came[-1].call(infer_request())

    async def story() -> None:
        async with running(pod, program, tmp_path, monkeypatch) as alive:
            stop_listening, close = life.Life._stop_listening, life.GrpcServer.close

            async def first(self: life.Life) -> None:
                come(alive)
                await stop_listening(self)

            async def then(self: life.GrpcServer) -> None:
                with contextlib.suppress(ConnectionRefusedError):
                    come(alive)
                await close(self)

            monkeypatch.setattr(life, "FAREWELL", 0.5)
            monkeypatch.setattr(life.Life, "_stop_listening", first)
            monkeypatch.setattr(life.GrpcServer, "close", then)
            terminate()
            await alive.end
        await ended(alive)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(story())
    assert len(came) == 5
    for client in came:
        with client:
            if protocol == "http":
                assert client.socket.recv(65536).startswith(b"HTTP/1.1 503 ")
            else:
                heard = [frame for frame in client.frames() if isinstance(frame, HeadersFrame)]
                assert dict(hpack.Decoder().decode(heard[0].data))["grpc-status"] == "14", "UNAVAILABLE"


@pytest.fixture(scope="module")
def embedder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return steps_models.prepared(steps_models.encoder(tmp_path_factory.mktemp("embedder")))


async def embed(http: httpx.AsyncClient, alive: Running, texts: list[str]) -> httpx.Response:
    return await http.post(f"{alive.url}/v1/embeddings", json={"model": "encoder", "input": texts})


async def test_embeddings_that_still_wait_when_the_drain_has_taken_its_time_are_told_to_come_again(
    pod: Pod, embedder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = load_program(embedder, dimension_names={})
    started = running(pod, program, tmp_path, monkeypatch, steps=embedder)
    async with started as alive, httpx.AsyncClient(timeout=60) as http:
        hanging = Hanging(monkeypatch)
        try:
            waiting = asyncio.create_task(embed(http, alive, ["the cat"]))
            assert await asyncio.to_thread(hanging.begun.wait, 20)
            terminate()
            terminate()
            answer = await waiting
        finally:
            hanging.leave.set()
    await ended(alive)
    assert (answer.status_code, answer.headers["connection"]) == (503, "close")
    assert answer.headers["retry-after"] == "1"
    assert "x-headway-not-admitted" not in answer.headers, "the model has seen it"
    error = answer.json()["error"]
    assert error["type"] == "server_error"
    assert "spec.template.drainTimeout" in error["message"]


async def test_embeddings_that_were_admitted_are_answered_whole_though_others_are_refused_meanwhile(
    pod: Pod, embedder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = 12 * ["the cat"]  # each in a run of its own, four of which wait at a time
    program = load_program(embedder, dimension_names={})
    started = running(pod, program, tmp_path, monkeypatch, steps=embedder)
    async with started as alive, httpx.AsyncClient(timeout=60) as http:
        hanging = Hanging(monkeypatch)
        try:
            waiting = asyncio.create_task(embed(http, alive, texts))
            assert await asyncio.to_thread(hanging.begun.wait, 20)
            pod.refusing = True
            assert (await embed(http, alive, texts)).status_code == 503
        finally:
            hanging.leave.set()
        answer = await waiting
        assert answer.status_code == 200, answer.text
        assert len(answer.json()["data"]) == len(texts)
    await ended(alive)


def infer_request() -> bytes:
    found = pb.ModelInferRequest(model_name="encoder")
    for name in ("ids", "mask"):
        found.inputs.add(name=name, datatype="INT64", shape=[1, 3]).contents.int64_contents.extend([1, 2, 3])
    return bytes(found.SerializeToString())


def test_the_longest_pause_is_that_of_the_last_minute_and_lasts_until_now(pod: Pod) -> None:
    assert pod.longest_gap(1000) == 0
    pod.arrivals.extend([100, 950, 960, 962])
    assert pod.longest_gap(963) == 10
    assert pod.longest_gap(990) == 28
    assert pod.longest_gap(2000) == 0


def test_a_pod_that_is_told_to_end_while_it_loads_is_never_ready(pod: Pod, program: Program) -> None:
    pod.phase = Phase.DRAINING
    pod.warming(3)
    assert pod.phase is Phase.DRAINING
    pod.install(model(program, lambda outcomes, record: None))
    assert pod.phase is Phase.DRAINING


def test_bad_knobs_at_the_start_leave_the_defaults_and_are_reported(pod: Pod, program: Program) -> None:
    pod.knobs_changed("{", "abc")
    pod.install(model(program, lambda outcomes, record: None))
    report = pod.report()
    assert report.phase is Phase.READY
    assert report.knobs.effective["maxBatch"] == 8
    assert report.knobs.hash is None
    assert report.knobs.error
