"""One call on one connection: request messages are put together as they arrive, answers leave as windows admit them.

    client: HEADERS, DATA…, END_STREAM        HEADERS, DATA…, HEADERS with the status :pod

The `Receiver` of a call gets its messages, and hears when it is over; it answers by `send` and `finish`, at once or
later, on the event loop. A call that is refused before its end is answered, then reset: its rest is not read.
"""

import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol, TypeVar

from hpack import NeverIndexedHeaderTuple

from headway_runtime.errors import RequestError, SlowBodyError
from headway_runtime.protocols.grpc import wire
from headway_runtime.protocols.grpc.bounds import MAX_UNSENT, MESSAGE_SECONDS
from headway_runtime.protocols.grpc.wire import PREFIX, Status, WireError

Header = tuple[bytes, bytes]
T = TypeVar("T")

TO_PACK = range(2**10, 2**18)  # bytes of an answer; fewer are not worth compressing, more would hold up all others
LARGE_PACKED = 2**14  # bytes of a compressed message, which may be a thousand times as many: a thread unpacks it


class Receiver(Protocol):
    """What a method makes of a call. `refused` is why it ends, when that is an error of the request."""

    refused: RequestError | None

    def message(self, message: bytes | memoryview) -> None:
        """A request message. Raises WireError or RequestError to refuse the call."""

    def half_closed(self) -> None:
        """The client has sent its last message."""

    def over(self, status: Status | None) -> None:
        """The call has ended, with this status, or because its client has gone (None). Called once."""


class Wire(Protocol):
    """What a call needs of its connection."""

    def headers(self, stream: int, headers: Sequence[Header], *, end: bool) -> None:
        """Send headers."""

    def room(self, stream: int) -> int:
        """Bytes of data that may be sent now, in one frame."""

    def data(self, stream: int, data: memoryview) -> None:
        """Send data; no more than there is room for."""

    def over(self, exchange: "Exchange", *, unread: bool) -> None:
        """The call is answered in full; `unread`: its client still sends."""

    def hold(self, size: int) -> None:
        """So many more bytes wait for the rest of their message. Raises RequestError when that is too much."""

    def revision(self) -> Header:
        """A header of every answer."""

    def aside(self, exchange: "Exchange", work: Callable[[], T], then: Callable[[T], None]) -> None:
        """Work in a thread, then go on; what either raises refuses the call."""


class Exchange:
    """One call. `id` is the number of its stream, `metadata` its headers."""

    __slots__ = (
        "_body",
        "_encoding",
        "_limit",
        "_open",
        "_out",
        "_since",
        "_size",
        "_trailers",
        "_unpacking",
        "_unsent",
        "_wire",
        "ended",
        "gone",
        "id",
        "metadata",
        "receiver",
    )

    def __init__(self, wire_: Wire, stream: int, metadata: dict[bytes, bytes], limit: int) -> None:
        """`limit`: bytes of a message, uncompressed."""
        self.id = stream
        self.metadata = metadata
        self.receiver: Receiver | None = None
        self.gone = False  # over: answered, or left by its client
        self.ended = False  # the client has sent all of it
        self._wire = wire_
        self._limit = limit
        self._encoding: bytes | None = None
        self._body = bytearray()  # of the message that is arriving
        self._size = 0  # bytes of it, with its prefix; 0 while that is not known
        self._since: float | None = None  # time.monotonic() when it began
        self._unpacking = False  # a thread does; what comes meanwhile waits in the body
        self._open = False  # the answer's first headers are sent
        self._out: deque[memoryview] = deque()
        self._unsent = 0  # bytes of it
        self._trailers: list[Header] | None = None

    def is_gone(self) -> bool:
        """The same as `gone`, for the engine's thread."""
        return self.gone

    def begin(self, receiver: Receiver) -> None:
        """Hand what arrives to a receiver. Raises WireError."""
        self.receiver = receiver
        self._encoding = wire.encoding(self.metadata.get(b"grpc-encoding"))

    def data(self, data: bytes) -> None:
        """A part of the call's stream of messages. Raises WireError or RequestError."""
        if self._trailers is not None or self.receiver is None:
            return
        if (
            not self._unpacking
            and not self._body
            and len(data) >= PREFIX
            and len(data) == PREFIX + wire.length(data[:PREFIX], self._limit)
        ):
            self._arrived(memoryview(data))  # a whole message in one frame, as most are
            return
        self._wire.hold(len(data))
        if self._since is None:
            self._since = time.monotonic()
        self._body += data
        self._read_on()

    def _read_on(self) -> None:
        """Take the messages that have arrived in full."""
        while len(self._body) >= PREFIX and self._trailers is None and not self._unpacking:
            if not self._size:
                self._size = PREFIX + wire.length(self._body[:PREFIX], self._limit)
            if len(self._body) < self._size:
                return
            message = bytes(self._body[: self._size])
            del self._body[: self._size]
            self._wire.hold(-self._size)
            self._size = 0
            self._since = time.monotonic() if self._body else None
            self._arrived(memoryview(message))

    def end(self) -> None:
        """The client has sent all of it. Raises WireError or RequestError."""
        self.ended = True
        if self._trailers is not None or self.receiver is None or self._unpacking:
            return
        if self._body:
            raise WireError(
                Status.INVALID_ARGUMENT, f"the call ended within a message, after {len(self._body)} bytes of it"
            )
        self.receiver.half_closed()

    def send(self, message: bytes, metadata: Sequence[Header] = ()) -> None:
        """Answer with a message; compressed, if the client compresses and it is worth it."""
        if self.gone or self._trailers is not None:
            return
        if self._unsent > MAX_UNSENT:
            self._forget()
            self.finish(Status.RESOURCE_EXHAUSTED, f"{MAX_UNSENT} bytes of answers wait to be read by the client")
            return
        if not self._open:
            self._open = True
            self._wire.headers(self.id, [*self._head(), *metadata], end=False)
        packed = self._encoding if len(message) in TO_PACK else None
        framed = wire.framed(message, packed)
        self._out.append(memoryview(framed))
        self._unsent += len(framed)
        self.pump()

    def finish(self, status: Status, message: str = "", metadata: Sequence[Header] = ()) -> None:
        """End the call. Without a message sent before, it is one frame, which a router can read as a whole."""
        if self.gone or self._trailers is not None:
            return
        self._trailers = [(b"grpc-status", b"%d" % status)]
        if message:
            self._trailers.append(NeverIndexedHeaderTuple(b"grpc-message", wire.escaped(message)))
        self._trailers += metadata
        self._told(status)
        self.pump()

    @property
    def stalled(self) -> bool:
        """Whether something waits until the client takes it."""
        return bool(self._out)

    def pump(self) -> None:
        """Send what the client's windows admit."""
        while self._out:
            room = self._wire.room(self.id)
            if room <= 0:
                return
            part = self._out[0]
            self._unsent -= min(room, len(part))
            self._wire.data(self.id, part[:room])
            if len(part) > room:
                self._out[0] = part[room:]
            else:
                self._out.popleft()
        if self._trailers is not None and not self.gone:
            headers = self._trailers if self._open else [*self._head(), *self._trailers]
            self.gone = True
            self._wire.headers(self.id, headers, end=True)
            self._release()
            self._wire.over(self, unread=not self.ended)

    def lose(self) -> None:
        """The client has taken the call back, or its connection has ended."""
        if self.gone:
            return
        self.gone = True
        self._release()
        self._forget()
        if self._trailers is None:
            self._told(None)

    def hurry(self, now: float) -> None:
        """Raises SlowBodyError when a message has taken too long: it counts among what all clients may hold."""
        if self._since is not None and not self._unpacking and now - self._since > MESSAGE_SECONDS:
            raise SlowBodyError(f"a message had not arrived in full after {MESSAGE_SECONDS:g} s")

    def aside(self, work: Callable[[], T], then: Callable[[T], None]) -> None:
        """Work in a thread, then go on, unless the call is over. What either raises refuses the call."""
        self._wire.aside(self, work, then)

    def _arrived(self, framed: memoryview) -> None:
        message = framed[PREFIX:]
        assert self.receiver is not None
        if not framed[0]:
            self.receiver.message(message)
        elif len(message) <= LARGE_PACKED:
            self.receiver.message(wire.unpacked(message, self._encoding, self._limit))
        else:
            self._unpacking = True
            self._wire.aside(self, partial(wire.unpacked, message, self._encoding, self._limit), self._unpacked)

    def _unpacked(self, message: bytes) -> None:
        self._unpacking = False
        if self.receiver is not None and self._trailers is None:
            self.receiver.message(message)
            self._read_on()
            if self.ended:
                self.end()

    def _head(self) -> list[Header]:
        head = [(b":status", b"200"), (b"content-type", b"application/grpc"), self._wire.revision()]
        if self._encoding is not None:
            head += [(b"grpc-encoding", self._encoding), (b"grpc-accept-encoding", wire.ENCODINGS)]
        return head

    def _forget(self) -> None:
        self._out.clear()
        self._unsent = 0

    def _release(self) -> None:
        self._since = None
        if self._body:
            self._wire.hold(-len(self._body))
            self._body.clear()

    def _told(self, status: Status | None) -> None:
        receiver, self.receiver = self.receiver, None
        if receiver is not None:
            receiver.over(status)
