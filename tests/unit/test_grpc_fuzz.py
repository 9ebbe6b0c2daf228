"""Whatever a client sends, a connection answers it or ends; it never raises, and never keeps what it was sent."""

import asyncio
import random
from typing import Any

import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from headway_api.podconfig import ColdConfig
from headway_runtime.metrics import Metrics
from headway_runtime.origin import Origin
from headway_runtime.pod import Pod
from headway_runtime.protocols.grpc import server
from headway_runtime.protocols.grpc.connection import Connection
from headway_runtime.protocols.grpc.proto import inference_pb2 as pb
from hyperframe.frame import PingFrame, PriorityFrame, RstStreamFrame, SettingsFrame, WindowUpdateFrame

from tests.unit.grpc_raw import framed

SERVICE = "/inference.GRPCInferenceService"
PATHS = [f"{SERVICE}/{name}" for name in ("ModelInfer", "ModelStreamInfer", "ServerLive", "ModelMetadata", "Nothing")]
ROUNDS = 400


class Transport(asyncio.Transport):
    """Takes everything, as one that a client reads."""

    def __init__(self) -> None:
        super().__init__()
        self.written = 0
        self.closed = False

    def write(self, data: Any) -> None:
        self.written += len(data)

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    abort = close

    def pause_reading(self) -> None:
        """What was read waits."""

    def resume_reading(self) -> None:
        """It was taken."""

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Nothing waits."""


@pytest.fixture
def pod() -> Pod:
    cold = {"model": "encoder", "namespace": "t", "revision": "0a1b2c3d", "artifact": {"uri": "file:///m.pt2"}}
    return Pod(ColdConfig.model_validate({**cold, "device": {"kind": "cpu"}}), Metrics(), Origin())


def conversation(chance: random.Random) -> bytes:
    """What an honest client could send: some calls, whole, in pieces, or taken back."""
    client = H2Connection(H2Configuration(client_side=True))
    client.initiate_connection()
    for _ in range(chance.randint(1, 6)):
        stream = client.get_next_available_stream_id()
        head = [(":method", "POST"), (":scheme", "http"), (":path", chance.choice(PATHS)), (":authority", "a")]
        head += [("content-type", "application/grpc"), ("te", "trailers"), ("grpc-timeout", "1S")]
        if chance.random() < 0.3:
            head.append(("grpc-encoding", chance.choice(["gzip", "deflate", "identity", "br"])))
        client.send_headers(stream, head)
        message = framed(pb.ModelInferRequest(model_name="encoder").SerializeToString())
        cut = chance.randint(0, len(message))
        client.send_data(stream, message[:cut])
        if chance.random() < 0.2:
            client.reset_stream(stream)
        else:
            client.send_data(stream, message[cut:], end_stream=True)
    return client.data_to_send()


def mutated(chance: random.Random, data: bytes) -> bytes:
    """The same with bytes changed, left out, repeated or put in."""
    raw = bytearray(data)
    for _ in range(chance.randint(0, 6)):
        at = chance.randrange(24, len(raw))  # after the greeting, in most cases
        match chance.randrange(5):
            case 0:
                raw[at] = chance.randrange(256)
            case 1:
                del raw[at : at + chance.randint(1, 20)]
            case 2:
                raw[at:at] = raw[at : at + chance.randint(1, 200)]
            case 3:
                frames = [
                    PingFrame(0, opaque_data=b"12345678"),
                    SettingsFrame(0, settings={chance.randrange(10): chance.randrange(2**32)}),
                    RstStreamFrame(chance.randrange(1, 12), error_code=chance.randrange(20)),
                    WindowUpdateFrame(chance.randrange(12), window_increment=chance.randrange(1, 2**31)),
                    PriorityFrame(chance.randrange(1, 12), depends_on=chance.randrange(12), stream_weight=3),
                ]
                raw[at:at] = chance.choice(frames).serialize()
            case 4:
                raw[at:at] = chance.randbytes(chance.randint(1, 40))
    return bytes(raw)


@pytest.mark.parametrize("seed", range(4))
async def test_a_connection_survives_whatever_it_is_sent(pod: Pod, seed: int) -> None:
    chance = random.Random(seed)
    host = server.GrpcServer(pod)
    answered = 0
    for _ in range(ROUNDS):
        connection, transport = Connection(host), Transport()
        connection.connection_made(transport)
        data = mutated(chance, conversation(chance))
        while data and not transport.closed:
            size = chance.choice([1, 9, 100, 10_000])
            connection.data_received(data[:size])
            data = data[size:]
        await asyncio.sleep(0)
        answered += transport.written > 200
        assert len(connection.calls) <= 12
        connection.connection_lost(None)
        assert not connection.calls
    assert pod.in_flight == 0, "a call was not accounted for"
    assert host._held == 0, "bytes of a message are kept"
    assert answered > ROUNDS / 10, "the mutations leave something to answer"
