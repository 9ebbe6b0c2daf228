"""What one client sends must not keep the others waiting: each attack against a real pod, while another client asks
how the pod is, again and again.
"""

import gzip
import json
import multiprocessing
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from multiprocessing.connection import Connection

import pytest
from headway_runtime.protocols.grpc.proto import inference_pb2 as pb
from hyperframe.frame import Frame, SettingsFrame, WindowUpdateFrame

from tests.unit.grpc_raw import RawClient, framed
from tests.unit.http_server import INFER, Stream, post
from tests.unit.pod_process import MODEL, PodProcess, pod
from tests.unit.small_models import Encoder, export, prepare

LONGEST = 0.9
"""Seconds that the pod may compute while the others wait. It is a tenth; the faults found by these tests took 1 to 112.
Time in which other programs had the processor does not count, unless it is more than `ENDLESS`: then the pod sleeps.
"""
ENDLESS = 30.0

MIB = 2**20
STREAM = "/inference.GRPCInferenceService/ModelStreamInfer"
WATCH = "/grpc.health.v1.Health/Watch"


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PodProcess]:
    folder = tmp_path_factory.mktemp("patience")
    with pod(folder, prepare(export(Encoder, folder / "model.pt2"), folder / "model")) as found:
        found.wait_for_phase()
        yield found


@pytest.fixture
def others(encoder: PodProcess) -> Iterator[None]:
    """Another client, in a process of its own, which must not wait."""
    here, there = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(
        target=ask_health, args=(encoder.port, encoder.process.pid, there), daemon=True
    )
    process.start()
    try:
        assert here.recv() == "begun"
        yield
        here.send("end")
        assert here.recv() < LONGEST
    finally:
        process.kill()
        process.join()


def ask_health(port: int, pid: int, end: Connection) -> None:
    """Until told to end; then say how long the pod computed at most before it answered."""
    worst, clock = 0.0, clock_of(pid)
    with Stream(socket.create_connection(("127.0.0.1", port), timeout=300)) as stream:
        end.send("begun")
        while not end.poll(0.01):
            began, spent = time.monotonic(), time.clock_gettime(clock)
            stream.socket.sendall(b"GET /v2/health/live HTTP/1.1\r\n\r\n")
            assert stream.answer().status == 200
            waited = time.monotonic() - began
            worst = max(worst, min(waited, time.clock_gettime(clock) - spent), waited - ENDLESS)
    end.send(worst)


def clock_of(pid: int) -> int:
    """The clock of the time that a process computes, as `clock_getcpuclockid(3)` makes it."""
    return ~pid << 3 | 2


def document(data: bytes, shape: list[int], datatype: str = "INT64") -> bytes:
    return b'{"inputs":[{"name":"ids","datatype":"%b","shape":%b,"data":%b}]}' % (
        datatype.encode(),
        json.dumps(shape).encode(),
        data,
    )


def texts_in_binary(count: int) -> bytes:
    parameters = {"binary_data_size": 4 * count}
    entry = {"name": "ids", "datatype": "BYTES", "shape": [count], "parameters": parameters}
    head = json.dumps({"inputs": [entry]}).encode()
    return post(head + bytes(4 * count), f"inference-header-content-length: {len(head)}")


ROW = b"[0,0,0,0,0,0,0,0,0,0]"
HTTP: dict[str, Callable[[], bytes]] = {
    "nested": lambda: post(document(b"[" + b",".join([ROW] * 2 * MIB) + b"]", [2 * MIB, 10])),
    "not finite": lambda: post(document(b"[" + b'"NaN",' * 5 * MIB + b"0]", [5 * MIB + 1], "FP32")),
    "elsewhere": lambda: post(b'{"x":[' + b"{}," * 15 * MIB + b"0]}"),
    "embeddings": lambda: post(b'{"x":[' + b"{}," * 15 * MIB + b"0]}", path="/v1/embeddings"),
    "texts": lambda: texts_in_binary(12 * MIB),
    "bomb": lambda: post(gzip.compress(document(b"[" + b"0," * 8 * MIB + b"0]", [1])), "content-encoding: gzip"),
    "members": lambda: post(gzip.compress(b"") * MIB, "content-encoding: gzip"),
    "chunks": lambda: f"POST {INFER} HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n".encode() + b"1\r\nx\r\n" * MIB,
    "headers": lambda: f"POST {INFER} HTTP/1.1\r\n".encode() + b"a:\r\n" * MIB,
}


@pytest.mark.parametrize("attack", HTTP)
@pytest.mark.usefixtures("others")
def test_a_request_over_http_keeps_nobody_waiting(encoder: PodProcess, attack: str) -> None:
    with Stream(socket.create_connection(("127.0.0.1", encoder.port), timeout=300)) as stream:
        with suppress(ConnectionError):  # it may be refused before all was sent
            stream.socket.sendall(HTTP[attack]())
        if attack != "chunks":  # which never end
            with suppress(EOFError):
                assert stream.answer().status in {400, 404, 413}


@pytest.mark.usefixtures("others")
def test_many_requests_in_one_part_of_the_stream_keep_nobody_waiting_and_are_all_answered(encoder: PodProcess) -> None:
    many = 3000
    plain, upgrade = b"GET /v2/health/live HTTP/1.1\r\n", b"connection: upgrade\r\nupgrade: h2c\r\n"
    for one in (plain + b"\r\n", plain + upgrade + b"\r\n"):
        with Stream(socket.create_connection(("127.0.0.1", encoder.port), timeout=300)) as stream:
            stream.socket.sendall(one * many)
            assert all(stream.answer().status == 200 for _ in range(many))


def varint(number: int) -> bytes:
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    return bytes([*found, number])


def contents(count: int) -> bytes:
    """A request with so many numbers of one byte each in its `int64_contents`."""
    head = pb.ModelInferRequest.InferInputTensor(name="ids", datatype="INT64", shape=[count]).SerializeToString()
    numbers = b"\x1a" + varint(count) + bytes(count)
    entry = head + b"\x2a" + varint(len(numbers)) + numbers
    return bytes(pb.ModelInferRequest(model_name=MODEL).SerializeToString()) + b"\x2a" + varint(len(entry)) + entry


def texts_in_raw(count: int) -> bytes:
    message = pb.ModelInferRequest(model_name=MODEL, raw_input_contents=[bytes(4 * count)])
    message.inputs.add(name="ids", datatype="BYTES", shape=[count])
    return bytes(message.SerializeToString())


@pytest.mark.parametrize(
    ("message", "status", "says"),
    [
        (contents(50 * MIB), 8, "beside raw_input_contents"),
        (contents(7 * MIB), 3, "is missing"),
        (b"\x3a\0" * 20 * MIB, 8, "more than 1000 fields"),
        (texts_in_raw(12 * MIB), 3, "elements of BYTES"),
    ],
    ids=["numbers", "fewer numbers", "fields", "texts"],
)
@pytest.mark.usefixtures("others")
def test_a_long_message_keeps_nobody_waiting(encoder: PodProcess, message: bytes, status: int, says: str) -> None:
    with RawClient(encoder.grpc_port) as client:
        stream = client.headers()
        left = memoryview(framed(message))
        while left:
            room = min(client.http.local_flow_control_window(stream), client.http.max_outbound_frame_size)
            if room:
                client.http.send_data(stream, left[:room].tobytes(), end_stream=room >= len(left))
                left = left[room:]
                client.flush()
            else:
                client.read(1)
        found = client.status(stream)
        assert (found[0], says in found[1]) == (status, True), found


@pytest.mark.usefixtures("others")
def test_many_messages_of_a_stream_keep_nobody_waiting(encoder: PodProcess) -> None:
    with RawClient(encoder.grpc_port) as client:
        stream = client.headers(STREAM)
        client.read()
        for _ in range(20):
            client.http.send_data(stream, framed(b"") * 3000)
        client.flush()
        client.read_until(lambda: len(client.events) > 100)


@pytest.mark.parametrize(
    "frame",
    [WindowUpdateFrame(0, window_increment=1), SettingsFrame(0, settings={SettingsFrame.INITIAL_WINDOW_SIZE: 65535})],
    ids=["windows", "settings"],
)
@pytest.mark.usefixtures("others")
def test_frames_that_move_every_call_keep_nobody_waiting(encoder: PodProcess, frame: Frame) -> None:
    with RawClient(encoder.grpc_port) as client:
        for _ in range(250):
            client.http.send_data(client.headers(WATCH), framed(b""))
        client.flush()
        client.send([frame] * 50_000)
        assert client.ended()
