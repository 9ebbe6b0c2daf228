"""A pod that ends: what its gRPC clients see, and that no call is lost."""

import asyncio
import contextlib
import queue
import signal
import socket
import threading
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import grpc
import h2.events
import pytest
from headway_api.podconfig import ColdConfig
from headway_runtime.metrics import Metrics
from headway_runtime.origin import Origin
from headway_runtime.pod import Pod
from headway_runtime.ports import listen
from headway_runtime.protocols.grpc import bounds, server
from headway_runtime.protocols.grpc.proto import health_pb2
from headway_runtime.protocols.grpc.proto import inference_pb2 as pb
from hyperframe.frame import Frame, GoAwayFrame, PingFrame, SettingsFrame

from tests.unit.grpc_raw import RawClient
from tests.unit.pod_process import MODEL, PodProcess, pod, until
from tests.unit.small_models import Encoder, export, prepare

SERVICE = "/inference.GRPCInferenceService"
LINGER = 3.0  # seconds that a pod serves on at least


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("drain")
    return prepare(export(Encoder, folder / "model.pt2"), folder / "model")


@pytest.fixture
def encoder(model: Path, tmp_path: Path) -> Iterator[PodProcess]:
    with pod(tmp_path, model, drainTimeout="12s") as found:
        found.wait_for_phase()
        yield found


def request(identifier: str = "") -> bytes:
    found = pb.ModelInferRequest(model_name=MODEL, id=identifier)
    for name in ("ids", "mask"):
        found.inputs.add(name=name, datatype="INT64", shape=[1, 3]).contents.int64_contents.extend([1, 2, 3])
    return bytes(found.SerializeToString())


def health(channel: grpc.Channel) -> int:
    check = channel.unary_unary("/grpc.health.v1.Health/Check")
    return int(health_pb2.HealthCheckResponse.FromString(check(b"", timeout=60)).status)


class Loader(threading.Thread):
    """Calls one after the other on a channel of its own until the pod cannot be reached; what they got is counted."""

    def __init__(self, target: str) -> None:
        super().__init__()
        self.target = target
        self.answered = 0
        self.not_admitted = 0
        self.lost: list[grpc.RpcError] = []

    def run(self) -> None:
        with grpc.insecure_channel(self.target) as channel:  # it repeats by itself only what has never left it
            infer = channel.unary_unary(f"{SERVICE}/ModelInfer")
            while True:
                try:
                    infer(request(), timeout=60)
                    self.answered += 1
                except grpc.RpcError as error:
                    if dict(error.trailing_metadata() or ()).get("x-headway-not-admitted") == "1":
                        self.not_admitted += 1
                        time.sleep(0.05)
                    elif "onnect" in error.details() and "efused" in error.details():
                        return
                    else:
                        self.lost.append(error)
                        return


def test_no_call_is_lost_when_a_pod_ends_under_load(encoder: PodProcess) -> None:
    loaders = [Loader(encoder.grpc) for _ in range(6)]
    for loader in loaders:
        loader.start()
    until(lambda: sum(loader.answered for loader in loaders) > 50, "load")
    before = sum(loader.answered for loader in loaders)
    encoder.process.send_signal(signal.SIGTERM)
    assert encoder.process.wait(60) == 0
    for loader in loaders:
        loader.join(60)
    assert [loader.lost for loader in loaders] == [[]] * 6
    assert sum(loader.answered for loader in loaders) > before, "a draining pod goes on answering"
    assert sum(loader.not_admitted for loader in loaders) > 0, "and says at last that it does not any more"


def test_health_changes_at_once_and_calls_on_their_way_are_answered(encoder: PodProcess) -> None:
    messages: queue.Queue[bytes | None] = queue.Queue()
    with grpc.insecure_channel(encoder.grpc) as channel:
        watching = channel.unary_stream("/grpc.health.v1.Health/Watch")(b"", timeout=60)
        assert health_pb2.HealthCheckResponse.FromString(next(watching)).status == 1
        assert health(channel) == 1
        stream = channel.stream_stream(f"{SERVICE}/ModelStreamInfer")(iter(messages.get, None), timeout=60)
        messages.put(request("before"))
        assert _identifier(next(stream)) == "before"

        began = time.monotonic()
        encoder.process.send_signal(signal.SIGTERM)
        assert health_pb2.HealthCheckResponse.FromString(next(watching)).status == 2
        assert health(channel) == 2, "it still answers: it has said so before it ended"
        messages.put(request("after"))
        assert _identifier(next(stream)) == "after"
        messages.put(None)
        assert list(stream) == []
        assert stream.code() is grpc.StatusCode.OK
        with pytest.raises(grpc.RpcError) as ended:
            next(watching)
        assert ended.value.code() is grpc.StatusCode.UNAVAILABLE
        assert time.monotonic() - began > LINGER - 0.2
    assert encoder.process.wait(60) == 0


@pytest.mark.parametrize("answers", [True, False], ids=["ping", "no-ping"])
def test_connections_are_ended_by_two_goaways_of_which_the_second_names_the_last_call(
    encoder: PodProcess, answers: bool
) -> None:
    with RawClient(encoder.grpc_port) as client:
        assert client.status(client.call(request())) == (0, "")
        began = time.monotonic()
        encoder.process.send_signal(signal.SIGTERM)
        frames: list[Frame] = []
        for frame in client.frames():
            frames.append(frame)
            if isinstance(frame, PingFrame) and answers:
                client.send([PingFrame(0, opaque_data=frame.opaque_data, flags=["ACK"])])
    goodbyes = [(frame.last_stream_id, frame.error_code) for frame in frames if isinstance(frame, GoAwayFrame)]
    assert goodbyes == [(2**31 - 1, 0), (1, 0)]
    if answers:
        assert encoder.process.poll() is None, "who answers does not stay until the pod has ended"
    else:
        assert time.monotonic() - began > LINGER
    assert encoder.process.wait(60) == 0


def test_a_pod_that_still_loads_says_what_it_does_and_that_no_model_has_seen_the_call(
    model: Path, tmp_path: Path
) -> None:
    with pod(tmp_path, model) as encoder, grpc.insecure_channel(encoder.grpc) as channel:
        infer = channel.unary_unary(f"{SERVICE}/ModelInfer")
        error = infer.future(request(), timeout=120, wait_for_ready=True).exception()
        if error is not None:  # the pod was not faster than the channel
            assert isinstance(error, grpc.RpcError)
            assert error.code() is grpc.StatusCode.UNAVAILABLE
            assert "this pod is" in error.details()
            assert dict(error.trailing_metadata())["x-headway-not-admitted"] == "1"
            assert health(channel) == 2
        encoder.wait_for_phase()
        infer(request(), timeout=60)
        assert health(channel) == 1


def _identifier(answer: bytes) -> str:
    found = pb.ModelStreamInferResponse.FromString(answer)
    assert not found.error_message
    return found.infer_response.id


# Bounds that take long, made short: a server in the test's own process, whose pod never loads.


@contextlib.asynccontextmanager
async def serving(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[server.GrpcServer, int]]:
    cold = {"model": MODEL, "namespace": "t", "revision": "0a1b2c3d", "artifact": {"uri": "file:///m.pt2"}}
    monkeypatch.setattr(server, "LOOK_SECONDS", 0.05)
    found = server.GrpcServer(Pod(ColdConfig.model_validate({**cold, "device": {"kind": "cpu"}}), Metrics(), Origin()))
    listener = listen("127.0.0.1", 0)
    port = listener.getsockname()[1]
    await found.start(listener)
    try:
        yield found, port
    finally:
        await found.close()


async def test_who_says_nothing_is_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "HANDSHAKE_SECONDS", 0.3)

    def silent(port: int) -> float:
        began = time.monotonic()
        with socket.create_connection(("127.0.0.1", port), timeout=60) as client:
            while client.recv(4096):
                pass
            return time.monotonic() - began

    async with serving(monkeypatch) as (_, port):
        assert 0.25 < await asyncio.to_thread(silent, port) < 9, "the bound is 10 s elsewhere"


async def test_who_never_takes_an_answer_is_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "STALLED_SECONDS", 0.3)

    def closed_window(port: int) -> float:
        with RawClient(port) as client:
            client.http.update_settings({SettingsFrame.INITIAL_WINDOW_SIZE: 0})  # type: ignore[dict-item]
            client.flush()
            began = time.monotonic()
            client.call(b"", f"{SERVICE}/ServerMetadata")
            client.read_until(lambda: bool(client.heard(h2.events.ResponseReceived)))
            assert client.ended()
            assert not client.heard(h2.events.DataReceived)
            return time.monotonic() - began

    async with serving(monkeypatch) as (_, port):
        assert 0.25 < await asyncio.to_thread(closed_window, port) < 20, "the bound is 30 s elsewhere"


async def test_an_idle_client_that_has_its_answer_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "STALLED_SECONDS", 0.6)
    monkeypatch.setattr(bounds, "HANDSHAKE_SECONDS", 0.6)

    def idle(port: int) -> list[Any]:
        with RawClient(port) as client:
            statuses: list[Any] = []
            for _ in range(2):
                statuses.append(client.status(client.call(b"", f"{SERVICE}/ServerLive")))
                time.sleep(1)
            return statuses

    async with serving(monkeypatch) as (_, port):
        assert await asyncio.to_thread(idle, port) == [(0, ""), (0, "")]


async def test_closing_ends_within_its_time_whoever_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "CLOSING_SECONDS", 0.3)
    async with serving(monkeypatch) as (found, port):
        with RawClient(port) as client:
            assert (await asyncio.to_thread(lambda: client.status(client.call(b"", f"{SERVICE}/ServerLive"))))[0] == 0
            began = time.monotonic()
            await found.close()
            assert time.monotonic() - began < 10
            assert await asyncio.to_thread(client.ended)
