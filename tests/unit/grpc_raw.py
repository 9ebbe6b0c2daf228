"""A client of HTTP/2 that does as it is told, right or wrong, over a plain socket."""

import socket
import time
from collections.abc import Iterator, Sequence
from typing import Any, Self

import h2.events
from h2.config import H2Configuration
from h2.connection import H2Connection
from hyperframe.frame import Frame

INFER = "/inference.GRPCInferenceService/ModelInfer"


def framed(message: bytes) -> bytes:
    """A gRPC message, uncompressed."""
    return b"\0" + len(message).to_bytes(4, "big") + message


class RawClient:
    """One connection. What the server says is kept in `events`; `closed` once it has ended the connection."""

    def __init__(self, port: int, *, greet: bool = True) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self.http = H2Connection(H2Configuration(client_side=True, header_encoding="utf-8"))
        self.events: list[Any] = []
        self.closed = False
        if greet:
            self.http.initiate_connection()
            self.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def headers(self, path: str = INFER, *, end: bool = False, **metadata: str) -> int:
        """Begin a call; returns its stream's number. Underscores in names become dashes."""
        stream = self.http.get_next_available_stream_id()
        head = [(":method", "POST"), (":scheme", "http"), (":path", path), (":authority", "test"), ("te", "trailers")]
        head += [("content-type", metadata.pop("content_type", "application/grpc"))]
        head += [(name.replace("_", "-"), value) for name, value in metadata.items()]
        self.http.send_headers(stream, head, end_stream=end)
        return stream

    def call(self, message: bytes, path: str = INFER, **metadata: str) -> int:
        """A whole call with one message."""
        stream = self.headers(path, **metadata)
        self.http.send_data(stream, framed(message), end_stream=True)
        self.flush()
        return stream

    def flush(self) -> None:
        """Send what h2 has written."""
        self.send(self.http.data_to_send())

    def send(self, data: bytes | Sequence[Frame]) -> None:
        """Send anything. A server that has hung up is no failure of the test."""
        raw = data if isinstance(data, bytes) else b"".join(frame.serialize() for frame in data)
        try:
            self.socket.sendall(raw)
        except (BrokenPipeError, ConnectionResetError):
            self.closed = True

    def read(self, seconds: float = 5.0) -> None:
        """Take what comes next, or learn that the connection has ended."""
        self.socket.settimeout(seconds)
        try:
            data = self.socket.recv(65536)
        except TimeoutError:
            return
        except ConnectionResetError:
            data = b""
        if not data:
            self.closed = True
            return
        for event in self.http.receive_data(data):
            self.events.append(event)
            if isinstance(event, h2.events.DataReceived):
                self.http.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
        self.flush()

    def frames(self) -> Iterator[Frame]:
        """What comes until the connection ends in order. (h2 hears nothing after a GOAWAY.)"""
        raw = bytearray()
        self.socket.settimeout(60)
        while data := self.socket.recv(65536):
            raw += data
            while len(raw) >= 9 and len(raw) >= 9 + int.from_bytes(raw[:3], "big"):
                frame, length = Frame.parse_frame_header(memoryview(bytes(raw[:9])))
                frame.parse_body(memoryview(bytes(raw[9 : 9 + length])))
                del raw[: 9 + length]
                yield frame

    def read_until(self, done: Any, seconds: float = 60.0) -> None:
        """Read until `done()`; fails after that time."""
        end = time.monotonic() + seconds
        while not done():
            assert time.monotonic() < end, f"it did not come about; heard {self.events}"
            self.read(0.2)
            if self.closed and not done():
                raise AssertionError(f"the connection ended; heard {self.events}")

    def status(self, stream: int) -> tuple[int, str]:
        """The gRPC status and message that end a call."""
        kinds = (h2.events.TrailersReceived, h2.events.ResponseReceived)

        def found() -> dict[str, str] | None:
            for event in self.events:
                if isinstance(event, kinds) and event.stream_id == stream:
                    headers = dict(event.headers)
                    if "grpc-status" in headers:
                        return headers
            return None

        self.read_until(lambda: found() is not None)
        headers = found()
        assert headers is not None
        return int(headers["grpc-status"]), headers.get("grpc-message", "")

    def heard(self, kind: type) -> list[Any]:
        """Events of a kind."""
        return [event for event in self.events if isinstance(event, kind)]

    def ended(self, seconds: float = 60.0) -> bool:
        """Whether the server ends the connection."""
        end = time.monotonic() + seconds
        while not self.closed and time.monotonic() < end:
            self.read(0.2)
        return self.closed
