"""What clients must not be able to do to a pod over HTTP/2, each against a real pod; it serves after each as before."""

import contextlib
import time
from collections.abc import Iterator

import h2.events
import pytest
from h2.errors import ErrorCodes
from h2.exceptions import StreamClosedError
from headway_runtime.protocols.grpc import bounds
from headway_runtime.protocols.grpc.proto import inference_pb2 as pb
from hyperframe.frame import (
    ContinuationFrame,
    DataFrame,
    Frame,
    GoAwayFrame,
    HeadersFrame,
    PingFrame,
    PriorityFrame,
    RstStreamFrame,
    SettingsFrame,
)

from tests.unit.grpc_raw import RawClient, framed
from tests.unit.pod_process import MODEL, PodProcess, pod, until
from tests.unit.small_models import Encoder, export, prepare

READY = "/inference.GRPCInferenceService/ServerReady"
STREAM = "/inference.GRPCInferenceService/ModelStreamInfer"
ENOUGH = 6000  # frames of one kind: more than any allowance


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PodProcess]:
    folder = tmp_path_factory.mktemp("abuse")
    with pod(folder, prepare(export(Encoder, folder / "model.pt2"), folder / "model")) as found:
        found.wait_for_phase()
        yield found


@pytest.fixture
def client(encoder: PodProcess) -> Iterator[RawClient]:
    with RawClient(encoder.grpc_port) as found:
        yield found
    with RawClient(encoder.grpc_port) as other:  # whatever was done before: the pod serves
        assert other.status(other.call(request())) == (0, "")
    until(
        lambda: "headway_requests_in_flight 0.0" in encoder.admin("/metrics").text, "that every call is accounted for"
    )


def request(rows: int = 1, length: int = 3) -> bytes:
    found = pb.ModelInferRequest(model_name=MODEL)
    for name in ("ids", "mask"):
        entry = found.inputs.add(name=name, datatype="INT64", shape=[rows, length])
        entry.contents.int64_contents.extend([1] * rows * length)
    return bytes(found.SerializeToString())


def calm(client: RawClient) -> bool:
    """Whether the server hangs up, and says why, unless its words are lost because the client still sends."""
    assert client.ended(), "the server goes on"
    codes = {event.error_code for event in client.heard(h2.events.ConnectionTerminated)}
    return codes <= {ErrorCodes.ENHANCE_YOUR_CALM}


@pytest.mark.parametrize(
    "frame",
    [
        PingFrame(0, opaque_data=b"12345678"),
        SettingsFrame(0, settings={SettingsFrame.INITIAL_WINDOW_SIZE: 65535}),
        PriorityFrame(1, depends_on=0, stream_weight=1),
    ],
    ids=["pings", "settings", "priorities"],
)
def test_a_flood_of_frames_that_carry_nothing_is_cut_off(client: RawClient, frame: Frame) -> None:
    client.send([frame] * ENOUGH)
    assert calm(client)


def test_a_flood_of_empty_data_is_cut_off(client: RawClient) -> None:
    stream = client.headers()
    client.flush()
    client.send([DataFrame(stream)] * ENOUGH)
    assert calm(client)


def test_calls_begun_and_taken_back_without_end_are_cut_off(client: RawClient) -> None:
    for _ in range(ENOUGH):
        stream = client.headers()
        client.http.reset_stream(stream)
    client.flush()
    assert calm(client)


def test_an_honest_client_may_ping_and_take_back_calls(client: RawClient) -> None:
    for at in range(200):
        client.http.ping(at.to_bytes(8, "big"))
        client.http.reset_stream(client.headers())
    assert client.status(client.call(request())) == (0, "")
    client.read_until(lambda: len(client.heard(h2.events.PingAckReceived)) == 200)


def test_headers_that_never_end_are_cut_off(client: RawClient) -> None:
    head = HeadersFrame(1, data=b"\x00\x01a\x01b" * 10)
    client.send([head, *(ContinuationFrame(1, data=b"\x00\x01a\x01b" * 10) for _ in range(200))])
    assert client.ended()


def test_headers_that_are_small_on_the_wire_and_large_in_memory_are_cut_off(client: RawClient) -> None:
    name = b"\x40\x01a\x7f\x81\x1e" + b"v" * 4000  # into the table: 127 + 3841 + 32... bytes of a value
    client.send([HeadersFrame(1, data=name + b"\xbe" * 5000, flags=["END_HEADERS"])])
    assert client.ended()


def test_more_calls_at_once_than_are_allowed_are_cut_off(encoder: PodProcess, client: RawClient) -> None:
    client.read()
    allowed = client.http.remote_settings.max_concurrent_streams
    assert allowed == bounds.MAX_STREAMS
    streams = [client.headers() for _ in range(allowed)]
    client.flush()
    client.http.remote_settings.acknowledge()
    client.http.remote_settings.max_concurrent_streams = allowed + 10
    client.http.remote_settings.acknowledge()
    assert len(streams) == allowed
    client.headers()
    client.flush()
    assert client.ended()


def test_a_frame_beyond_the_allowed_size_is_cut_off_long_before_its_end(client: RawClient) -> None:
    stream = client.headers()
    client.flush()
    client.send((2**24 - 1).to_bytes(3, "big") + b"\x00\x00" + stream.to_bytes(4, "big"))
    sent = 0
    while not client.closed and sent < 2**24:
        client.send(bytes(65536))
        sent += 65536
    assert client.ended()
    assert sent < 2**23, "most of it was still to come"


@pytest.mark.parametrize(
    "greeting",
    [b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01", b"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n"],
    ids=["http1", "tls", "almost"],
)
def test_who_speaks_another_language_is_cut_off(encoder: PodProcess, greeting: bytes) -> None:
    with RawClient(encoder.grpc_port, greet=False) as client:
        client.send(greeting)
        client.socket.settimeout(60)
        while client.socket.recv(4096):
            pass


def test_garbage_after_the_greeting_is_cut_off(client: RawClient) -> None:
    client.send(bytes(range(256)) * 40)
    assert client.ended()


def test_a_length_beyond_the_limit_is_refused_before_it_arrives(client: RawClient) -> None:
    stream = client.headers()
    client.http.send_data(stream, b"\0" + (2**32 - 1).to_bytes(4, "big"))
    client.flush()
    status, message = client.status(stream)
    assert (status, "4294967295 bytes; at most 67108864 are read" in message) == (8, True)
    client.read_until(lambda: bool(client.heard(h2.events.StreamReset)))
    assert client.status(client.call(request())) == (0, "")


def test_more_unfinished_messages_than_are_held_are_refused(encoder: PodProcess, client: RawClient) -> None:
    encoder.apply_knobs({"maxWait": "0ms", "queue": {"timeout": "20s"}})
    size = 60 * 2**20
    try:
        client.read()
        streams = []
        for _ in range(6):
            stream = client.headers()
            streams.append(stream)
            _fill(client, stream, size)
            if client.heard(h2.events.ResponseReceived):
                break
        status, message = client.status(streams[-1])
        assert status == 8
        assert "bytes of messages are being read" in message
        assert len(streams) == bounds.MAX_HELD // size + 1
    finally:
        encoder.apply_knobs({"maxWait": "0ms"})


def _fill(client: RawClient, stream: int, size: int) -> None:
    """All but the last byte of a message, as windows admit it, or until it is refused."""
    left = memoryview(framed(bytes(size)))[:-1]
    while left:
        if any(e.stream_id == stream for e in client.heard(h2.events.ResponseReceived)):
            return
        room = min(client.http.local_flow_control_window(stream), client.http.max_outbound_frame_size, len(left))
        if room == 0:
            client.read(5)
            continue
        client.http.send_data(stream, bytes(left[:room]))
        client.flush()
        left = left[room:]


def test_a_message_that_arrives_too_slowly_misses_its_deadline(client: RawClient) -> None:
    began = time.monotonic()
    stream = client.headers(grpc_timeout="300m")
    client.http.send_data(stream, framed(request())[:10])
    client.flush()
    status, message = client.status(stream)
    assert status == 4
    assert "before the message had arrived" in message
    assert 0.25 < time.monotonic() - began < 30, "not that of every message, which is a minute"


def test_a_stream_whose_answers_nobody_reads_is_ended(encoder: PodProcess, client: RawClient) -> None:
    encoder.apply_knobs(
        {"maxWait": "0ms", "queue": {"capacity": 100_000, "timeout": "30s"}}
    )  # so that all are answered
    client.http.update_settings({SettingsFrame.INITIAL_WINDOW_SIZE: 0})  # type: ignore[dict-item]
    client.flush()
    stream = client.headers(STREAM)
    client.flush()
    message = framed(request(rows=8, length=128))  # an answer of 8 * 128 * 8 floats
    each = 8 * 128 * 8 * 4
    for _ in range(3 * bounds.MAX_UNSENT // each):
        _send_all(client, stream, message)
    client.read_until(
        lambda: (
            any(e.stream_id == stream for e in client.heard(h2.events.TrailersReceived))
            or bool(client.heard(h2.events.StreamReset))
        )
    )
    encoder.apply_knobs({"maxWait": "0ms"})


def _send_all(client: RawClient, stream: int, message: bytes) -> None:
    """A message, as windows admit it, or until the call is ended."""
    left = memoryview(message)
    with contextlib.suppress(StreamClosedError):
        while left:
            room = min(client.http.local_flow_control_window(stream), client.http.max_outbound_frame_size, len(left))
            if room == 0:
                client.read(1)
                continue
            client.http.send_data(stream, bytes(left[:room]))
            client.flush()
            left = left[room:]


@pytest.mark.parametrize(
    ("head", "status"),
    [
        ({"content_type": "application/json"}, 12),
        ({"content_type": "application/grpc+json"}, 12),
        ({"grpc_encoding": "snappy"}, 12),
        ({"grpc_timeout": "soon"}, 3),
    ],
)
def test_a_head_that_is_not_understood_is_refused(client: RawClient, head: dict[str, str], status: int) -> None:
    assert client.status(client.call(request(), **head))[0] == status


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"", "without a message"),
        (framed(b"")[:3], "within a message"),
        (framed(request())[:-1], "within a message"),
        (framed(request()) * 2, "a second message"),
        (framed(b"\xff\xff\xff"), "is no ModelInferRequest"),
        (b"\1\0\0\0\1x", "there is no grpc-encoding"),
        (b"\7\0\0\0\1x", "byte 7"),
    ],
)
@pytest.mark.parametrize("piece", [1, 7, 100_000])
def test_a_body_that_is_no_call_is_refused_however_it_arrives(
    client: RawClient, body: bytes, says: str, piece: int
) -> None:
    stream = client.headers()
    for at in range(0, len(body), piece):
        client.http.send_data(stream, body[at : at + piece])
    client.http.end_stream(stream)
    client.flush()
    status, message = client.status(stream)
    assert (status, says in message) == (3, True), message


@pytest.mark.parametrize("path", ["/", "/inference.GRPCInferenceService/Nothing", "/other.Service/ModelInfer", "/%00"])
def test_a_method_that_is_not_there_is_unimplemented(client: RawClient, path: str) -> None:
    assert client.status(client.call(b"", path))[0] == 12


def test_a_message_in_single_bytes_is_a_message(client: RawClient) -> None:
    stream = client.headers()
    for byte in framed(request()):
        client.http.send_data(stream, bytes([byte]), pad_length=3)
    client.http.end_stream(stream)
    client.flush()
    assert client.status(stream) == (0, "")


def test_who_says_goodbye_is_let_go(client: RawClient) -> None:
    assert client.status(client.call(request(), READY)) == (0, "")
    client.send([GoAwayFrame(0)])
    assert client.ended()


def test_an_end_in_the_middle_of_everything_is_accounted_for(encoder: PodProcess, client: RawClient) -> None:
    encoder.apply_knobs({"maxWait": "1s", "maxBatch": 8})
    try:
        for _ in range(3):
            client.call(request())
        client.headers()
        client.flush()
        client.send([RstStreamFrame(1)])
        client.socket.close()
    finally:
        encoder.apply_knobs({"maxWait": "0ms"})
