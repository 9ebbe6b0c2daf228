"""One client's connection: h2 reads and writes its frames; here is what h2 leaves to its user.

Every abuse of HTTP/2 that costs a server more than its client has a bound (`bounds`); who exceeds one is disconnected
with ENHANCE_YOUR_CALM. What h2 itself bounds: the size of frames and headers, CONTINUATION frames, streams, windows.

*Drain*: GOAWAY with the highest stream number says "begin no more calls here"; calls that were on their way arrive
before the answer to the PING that follows it, or soon after it (gRPC's C core sends that answer before the calls it has
in hand); then a second GOAWAY names the last call that is answered, and the connection ends with it. No call is lost
between the two. h2 takes a connection for closed once it has sent GOAWAY, so both are written beside it.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol, cast

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    Event,
    PingAckReceived,
    PingReceived,
    PriorityUpdated,
    RemoteSettingsChanged,
    RequestReceived,
    StreamEnded,
    StreamReset,
    TrailersReceived,
    UnknownFrameReceived,
    WindowUpdated,
)
from h2.exceptions import H2Error, ProtocolError
from h2.settings import SettingCodes, Settings
from hyperframe.frame import GoAwayFrame

from headway_runtime.errors import CutShortError
from headway_runtime.logs import log_seldom
from headway_runtime.protocols.grpc import bounds
from headway_runtime.protocols.grpc.exchange import Exchange, Header, T

_HIGHEST = 2**31 - 1
_DRAINING = b"draining"  # the PING that follows the first GOAWAY
_CONFIG = H2Configuration(
    client_side=False,
    header_encoding=None,
    validate_outbound_headers=False,  # ours are right, and each check costs
    normalize_outbound_headers=False,
)
_SETTINGS = {
    SettingCodes.MAX_CONCURRENT_STREAMS: bounds.MAX_STREAMS,
    SettingCodes.MAX_HEADER_LIST_SIZE: bounds.MAX_HEADER_LIST,
    SettingCodes.MAX_FRAME_SIZE: bounds.MAX_FRAME,
    SettingCodes.INITIAL_WINDOW_SIZE: bounds.STREAM_WINDOW,
    SettingCodes.ENABLE_PUSH: 0,
}


class Host(Protocol):
    """What a connection needs of its server."""

    draining: bool
    revision: Header

    def connected(self, connection: "Connection") -> None:
        """A client has come."""

    def disconnected(self, connection: "Connection") -> None:
        """It has left."""

    def limit(self) -> int:
        """Bytes of a message."""

    def call(self, exchange: Exchange) -> None:
        """A call begins. Raises RequestError or WireError to refuse it."""

    def hold(self, size: int) -> None:
        """Bytes that wait for the rest of their message. Raises RequestError when they are too many."""

    def refuse(self, exchange: Exchange, error: Exception) -> None:
        """Answer a call with an error."""


class Connection(asyncio.Protocol):
    """One connection. `calls` are those that are not over."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._h2 = H2Connection(_CONFIG)
        self._h2.local_settings = Settings(client=False, initial_values=_SETTINGS)
        self._h2.max_inbound_frame_size = bounds.MAX_FRAME  # h2 takes neither from settings that it was given
        self._h2.decoder.max_header_list_size = bounds.MAX_HEADER_LIST
        self._transport: asyncio.Transport
        self._loop = asyncio.get_running_loop()
        self._flushing = False  # a flush is due
        self._unread = memoryview(b"")  # what has come and waits for its turn
        self._wider = False  # windows are: what waited for that may be sent
        self._silent = 0  # bytes since the last event
        self._paused = False  # the client does not take what is sent
        self._draining = False
        self._farewell: asyncio.TimerHandle | None = None
        self._last: int | None = None  # the last call that is answered, once that is said
        self._seen = 0  # the last call
        self._idle = bounds.idle_frames(now := time.monotonic())
        self._windows = bounds.windows(now)
        self._cancelled = bounds.cancellations(now)
        self.calls: dict[int, Exchange] = {}
        self.progress = now  # time.monotonic() when the client last took a part of an answer
        self.opened = now
        self.greeted = False  # a call came

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Say what may be sent here."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=bounds.MAX_UNSENT)
        self._h2.initiate_connection()
        self._h2.increment_flow_control_window(bounds.CONNECTION_WINDOW - self._h2.inbound_flow_control_window)
        self._host.connected(self)
        self._flush()

    def connection_lost(self, _: Exception | None) -> None:
        """Nobody waits for what is left."""
        self._unread = memoryview(b"")
        self._host.disconnected(self)
        if self._farewell is not None:
            self._farewell.cancel()
        for exchange in list(self.calls.values()):
            exchange.lose()
        self.calls.clear()

    def data_received(self, data: bytes) -> None:
        """A part of the stream."""
        self._unread = memoryview(data)
        self._read_on()

    def _read_on(self) -> None:
        """Read what has come while others can wait. Reading rests until all of it is done."""
        until = time.monotonic() + bounds.TURN_SECONDS
        while self._unread and not self._transport.is_closing() and time.monotonic() < until:
            part, self._unread = self._unread[: bounds.STEP], self._unread[bounds.STEP :]
            self._receive(bytes(part))
        if not self._transport.is_closing():
            if self._unread:
                self._transport.pause_reading()
                self._loop.call_soon(self._read_on)
            elif not self._paused:
                self._transport.resume_reading()
        self._flush()

    def _receive(self, data: bytes) -> None:
        try:
            events = self._h2.receive_data(data)
        except H2Error as error:
            self._give_up(f"{type(error).__name__}: {error}")
            return
        self._silent = 0 if events else self._silent + len(data)
        if self._silent > bounds.MAX_SILENT:
            self._give_up(f"{self._silent} bytes without an event: a frame or headers that do not end")
            return
        for event in events:
            handle = _HANDLERS.get(type(event))
            if handle is not None and not self._transport.is_closing():
                handle(self, event)
        if self._wider:
            self._wider = False
            self._pump_all()

    def pause_writing(self) -> None:
        """The client does not read: nothing more is sent, and nothing more is read that would have to be answered."""
        self._paused = True
        self._transport.pause_reading()

    def resume_writing(self) -> None:
        """It reads again."""
        self._paused = False
        self.progress = time.monotonic()
        if not self._transport.is_closing():
            if not self._unread:
                self._transport.resume_reading()
            self._pump_all()

    def drain(self) -> None:
        """Ask the client to take its further calls elsewhere; those on their way are answered."""
        if self._draining or self._transport.is_closing():
            return
        self._draining = True
        self._flush()
        self._transport.write(_goaway(_HIGHEST))
        try:
            self._h2.ping(_DRAINING)
        except H2Error:  # the client has said goodbye
            return
        self._flush()

    def close(self) -> None:
        """End it once what is written is sent; calls that are not answered end with an error."""
        for exchange in list(self.calls.values()):
            self._host.refuse(exchange, CutShortError())
        self._last_words()
        if not self._transport.is_closing():
            self._flush()
            self._transport.close()

    def abort(self) -> None:
        """End it now."""
        self._transport.abort()

    def hurry(self, now: float) -> None:
        """End the calls whose message does not come."""
        for exchange in list(self.calls.values()):
            self._guarded(exchange, exchange.hurry, now)

    def stuck(self, now: float) -> bool:
        """Whether it waits in vain: for a first call, or for the client to take an answer."""
        if not self.greeted:
            return now - self.opened > bounds.HANDSHAKE_SECONDS
        waits = self._paused or any(exchange.stalled for exchange in self.calls.values())
        return waits and now - self.progress > bounds.STALLED_SECONDS

    # What a call needs (`exchange.Wire`).

    def headers(self, stream: int, headers: Sequence[Header], *, end: bool) -> None:
        """Send headers."""
        with contextlib.suppress(ProtocolError):  # taken back in what is being read just now
            if not self._transport.is_closing():
                self._h2.send_headers(stream, headers, end_stream=end)
                self._soon()

    def room(self, stream: int) -> int:
        """Bytes of data that may be sent now, in one frame."""
        if self._paused or self._transport.is_closing():
            return 0
        try:
            return min(self._h2.local_flow_control_window(stream), self._h2.max_outbound_frame_size)
        except ProtocolError:  # taken back in what is being read just now
            return 0

    def data(self, stream: int, data: memoryview) -> None:
        """Send data."""
        with contextlib.suppress(ProtocolError):  # likewise
            self._h2.send_data(stream, data)
        self.progress = time.monotonic()
        if len(data) > bounds.MAX_FRAME // 16:
            self._flush()  # so that the transport can say when its buffer is full
        else:
            self._soon()

    def over(self, exchange: Exchange, *, unread: bool) -> None:
        """The call is answered in full."""
        self.calls.pop(exchange.id, None)
        if unread and not self._transport.is_closing():
            with contextlib.suppress(ProtocolError):
                self._h2.reset_stream(exchange.id, ErrorCodes.NO_ERROR)
        self._soon()

    def hold(self, size: int) -> None:
        """Bytes that wait for the rest of their message."""
        self._host.hold(size)

    def revision(self) -> Header:
        """A header of every answer."""
        return self._host.revision

    def aside(self, exchange: Exchange, work: Callable[[], T], then: Callable[[T], None]) -> None:
        """Work in a thread, then go on."""

        def done(future: asyncio.Future[T]) -> None:
            if future.exception() is not None or not exchange.gone:
                self._guarded(exchange, lambda: then(future.result()))

        self._loop.run_in_executor(None, work).add_done_callback(done)

    # Events, in the order of `_HANDLERS`.

    def _requested(self, event: RequestReceived) -> None:
        self.greeted = True
        if self._last is not None and event.stream_id > self._last:
            with contextlib.suppress(ProtocolError):
                self._h2.reset_stream(event.stream_id, ErrorCodes.REFUSED_STREAM)
            return
        self._seen = event.stream_id
        exchange = Exchange(self, event.stream_id, dict(event.headers), self._host.limit())
        self.calls[event.stream_id] = exchange
        self._guarded(exchange, self._host.call, exchange)
        if self._host.draining:
            self.drain()

    def _data(self, event: DataReceived) -> None:
        exchange = self.calls.get(event.stream_id)
        if event.data and exchange is not None:
            self._guarded(exchange, exchange.data, event.data)
        elif not event.data and event.stream_ended is None:
            self._spend(self._idle, "frames that carry nothing")
        self._h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)

    def _ended(self, event: StreamEnded) -> None:
        exchange = self.calls.get(event.stream_id)
        if exchange is not None:
            self._guarded(exchange, exchange.end)

    def _reset(self, event: StreamReset) -> None:
        exchange = self.calls.pop(event.stream_id, None)
        if exchange is not None:
            exchange.lose()
            self._maybe_close()
            self._spend(self._cancelled, "calls begun and taken back")

    def _window(self, event: WindowUpdated) -> None:
        self._spend(self._windows, "windows opened")
        if event.stream_id == 0:
            self._wider = True
        elif (exchange := self.calls.get(event.stream_id)) is not None:
            exchange.pump()

    def _settings(self, _: Event) -> None:
        self._spend(self._idle, "settings")
        self._wider = True

    def _nothing(self, _: Event) -> None:
        self._spend(self._idle, "frames that carry nothing")

    def _ponged(self, event: PingAckReceived) -> None:
        if event.ping_data == _DRAINING and self._draining and self._farewell is None:
            self._farewell = self._loop.call_later(bounds.FAREWELL_SECONDS, self._last_words)

    def _last_words(self) -> None:
        """Name the last call that is answered."""
        if self._last is None and not self._transport.is_closing():
            self._flush()
            self._last = self._seen
            self._transport.write(_goaway(self._last))
            self._maybe_close()

    def _goodbye(self, _: Event) -> None:
        """The client ends the connection; h2 can send nothing on it any more."""
        self._transport.close()

    def _guarded(self, exchange: Exchange, act: Callable[..., None], *arguments: Any) -> None:
        try:
            act(*arguments)
        except Exception as error:
            self._host.refuse(exchange, error)

    def _spend(self, allowance: bounds.Allowance, what: str) -> None:
        if not allowance.use(time.monotonic()):
            self._give_up(f"too many {what}", ErrorCodes.ENHANCE_YOUR_CALM)

    def _give_up(self, why: str, code: ErrorCodes | None = None) -> None:
        """Disconnect who breaks the protocol, or makes too much work."""
        log_seldom("grpc_client_disconnected", reason=why)
        self._transport.write(self._h2.data_to_send())
        if code is not None:
            self._transport.write(_goaway(self._seen, code))
        self._transport.close()

    def _pump_all(self) -> None:
        for exchange in list(self.calls.values()):
            exchange.pump()

    def _maybe_close(self) -> None:
        if self._last is not None and not self.calls:
            self._flush()

    def _soon(self) -> None:
        """Write once for all that is sent in this turn of the loop: a batch's answers share a system call."""
        if not self._flushing:
            self._flushing = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flushing = False
        if not self._transport.is_closing():
            data = self._h2.data_to_send()
            if data:
                self._transport.write(data)
            if self._last is not None and not self.calls:
                self._transport.close()


def _goaway(last: int, code: ErrorCodes = ErrorCodes.NO_ERROR) -> bytes:
    return GoAwayFrame(0, last_stream_id=last, error_code=code).serialize()


_HANDLERS: dict[type[Event], Any] = {
    RequestReceived: Connection._requested,
    DataReceived: Connection._data,
    StreamEnded: Connection._ended,
    TrailersReceived: Connection._nothing,
    StreamReset: Connection._reset,
    WindowUpdated: Connection._window,
    RemoteSettingsChanged: Connection._settings,
    PingReceived: Connection._nothing,
    PriorityUpdated: Connection._nothing,
    UnknownFrameReceived: Connection._nothing,
    PingAckReceived: Connection._ponged,
    ConnectionTerminated: Connection._goodbye,
}
