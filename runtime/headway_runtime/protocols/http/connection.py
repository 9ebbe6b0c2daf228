"""A connection: uvicorn's protocol, which leaves hot requests to us.

uvicorn makes a scope, a cycle and a task of every request. Here the head of a request is looked at first: a hot one
becomes a `Turn`, which stands where uvicorn's cycle would. Pipelined requests are answered in order, one at a time.

What a client may cost is bounded: a head by `MAX_HEAD` bytes and `HEAD_SECONDS`, a body by the front's limits and the
request's deadline, an answer that is not read by `STALL_SECONDS` (and none is begun before it was), requests that wait
behind one another by what is read at once, since nothing is read while there are any.

A client may close its sending half and wait for its answer. Whether it is there or has left for good shows only when
something is sent to it: it is told `100 Continue`, which every client of HTTP/1.1 passes over and to which only the
system of one that has left answers with a reset.
"""

import asyncio
import select
import time
from collections import deque
from typing import Any

import httptools
from headway_api.names import CHECK_HEADER
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from headway_runtime.errors import RequestError
from headway_runtime.protocols.http.front import Front
from headway_runtime.protocols.http.heads import Head, read_head, refused_head
from headway_runtime.protocols.http.inference import Inference
from headway_runtime.protocols.http.routes import Route, path_of
from headway_runtime.protocols.http.turns import Prompt, Short, Turn
from headway_runtime.protocols.oip import error_body
from headway_runtime.protocols.openai.answering import Answering

MAX_HEAD = 64 * 2**10
"""Bytes of a request line and its headers (Envoy admits 60 KiB). uvicorn with httptools has no bound of its own."""

KEEP_ALIVE_SECONDS = 4000.0
"""Longer than any client keeps an idle connection (Envoy: an hour): closing one as a request comes would lose it."""

HEAD_SECONDS = 60.0  # for a head, and for what nobody reads of a refused body
STALL_SECONDS = 60.0  # in which a client must read something of its answer
STEP, TURN_SECONDS = 16 * 2**10, 0.01  # bytes that are read at once, and for how long, before others have their turn
LINGER_SECONDS, LINGER_BYTES = 2.0, 16 * 2**20  # to read on after an early answer, so that no reset takes it away
LOOK_SECONDS = 20.0

_OF_UPGRADES = frozenset({b"upgrade", b"connection", b"http2-settings"})
_CHECK = CHECK_HEADER.encode()
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_NOT_HTTP = "Invalid HTTP request received."


class Connection(HttpToolsProtocol):
    """With a front, its hot routes are answered here; without one (the admin port), only the bounds are added."""

    cycle: Any  # of uvicorn: its RequestResponseCycle, or a Turn
    pipeline: deque[tuple[Any, Any]]

    def __init__(self, *args: Any, front: Front | None = None, **named: Any) -> None:
        super().__init__(*args, **named)
        self.half_closed = False
        self._front = front
        self._head_bytes: int | None = 0  # of the head that is being read; None between a head and the next
        self._trailers = 0  # bytes after the body
        self._unread = memoryview(b"")  # what has come and waits for its turn
        self._begun = False  # the head began in this part of the stream, after the end of another request perhaps
        self._open: Turn | None = None  # whose body is being read
        self._active: Turn | RequestResponseCycle | None = None  # whose turn it is
        self._advancing = False
        self._deaf = False  # what still comes is thrown away
        self._unheard = 0  # bytes of it
        self._malformed: str | None = None  # what is answered after everything before it
        self._fd = -1
        self._since = 0.0  # loop.time() of the first byte of a head, or of the last answer
        self._looking: asyncio.TimerHandle | None = None
        self._stall: asyncio.TimerHandle | None = None

    # The transport

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client has come."""
        super().connection_made(transport)
        self._since = self.loop.time()
        self._looking = self.loop.call_later(LOOK_SECONDS, self._look)

    def connection_lost(self, exc: Exception | None) -> None:
        """It is gone, or was told to go."""
        self._deaf = True
        self._unread = memoryview(b"")
        for timer in (self._looking, self._stall):
            if timer is not None:
                timer.cancel()
        for turn in (self._active, *(cycle for cycle, _ in self.pipeline)):
            if isinstance(turn, Turn) and not turn.response_complete:
                turn.lost()
        self.pipeline.clear()
        self._open = None
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """A part of the stream (at most 256 KiB)."""
        if self._unread:
            self._unread = memoryview(b"".join((self._unread, data)))
        elif len(data) <= STEP:
            self._receive(data)
        else:
            self._unread = memoryview(data)
            self._read_on()

    def _read_on(self) -> None:
        """Read what has come while others can wait: a request may have twenty bytes, and a part of a body six."""
        until = time.monotonic() + TURN_SECONDS
        while self._unread and time.monotonic() < until:
            part, self._unread = self._unread[:STEP], self._unread[STEP:]
            self._receive(bytes(part))
        if self.transport.is_closing():
            self._unread = memoryview(b"")
        elif self._unread:
            self.transport.pause_reading()
            self.loop.call_soon(self._read_on)
        elif not self.flow.read_paused:
            self.transport.resume_reading()

    def _receive(self, data: bytes) -> None:
        """The part in which a head begins is not counted."""
        if self._deaf:
            self._unheard += len(data)
            if self._unheard > LINGER_BYTES:
                self.transport.abort()
            return
        self._begun = False
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._feed_without(upgrade, data)
        except httptools.HttpParserError:
            self.send_400_response(_NOT_HTTP)
        if self._open is not None:
            self._open.settle()
        elif self._head_bytes is not None and not self._begun and not self.transport.is_closing():
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEAD:
                self.send_400_response(f"The head of the request has more than {MAX_HEAD} bytes.")

    def _feed_without(self, upgrade: httptools.HttpParserUpgrade, data: bytes) -> None:
        """Go on after a head that asks for another protocol."""
        while data := self._without_upgrade(data[upgrade.args[0] :]):
            try:
                self.parser.feed_data(data)
                return
            except httptools.HttpParserUpgrade as another:
                upgrade = another
            except httptools.HttpParserError:
                self.send_400_response(_NOT_HTTP)
                return

    def eof_received(self) -> bool | None:  # type: ignore[override]
        """The client has sent its last byte. True: it still gets what it has asked for."""
        if self._unread:
            last, self._unread = bytes(self._unread), memoryview(b"")
            self._receive(last)
        if self.half_closed or self._deaf:
            return self.half_closed and self._busy()
        if self._open is not None and not self._open.response_complete:
            if self._open is self._active:
                return None
            self.pipeline.popleft()  # it will never be whole
            self._open.lost()
            self._open = None
        if not self._busy() and not self.pipeline:
            return None
        self._fd = self.transport.get_extra_info("socket").fileno()
        self.half_closed = True  # from now on other threads ask whether it has hung up
        turn = self._active
        if self.parser.get_http_version() != "1.0" and not (
            turn is not None and self._busy() and turn.response_started
        ):
            self.transport.write(_CONTINUE)
        if isinstance(turn, Turn):
            turn.half_closed()
        return True

    def hung_up(self) -> bool:
        """Whether a half-closed client is gone. From any thread."""
        if self._fd < 0:  # closed already
            return True
        poll = select.poll()
        poll.register(self._fd, 0)  # errors and hang-ups are always reported
        return bool(poll.poll(0))

    def pause_writing(self) -> None:
        """The client reads slower than it is answered."""
        super().pause_writing()
        self._stall = self.loop.call_later(STALL_SECONDS, self._stalled, self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        """It has caught up."""
        super().resume_writing()
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None
        self._advance()

    # The parser

    def on_message_begin(self) -> None:
        """The first byte of a request."""
        self._head_bytes, self._begun = 0, True
        self._since = self.loop.time()
        self.url = b""
        self.headers = []

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header, or after the body a trailer, which is not read."""
        if self._head_bytes is not None:
            self.headers.append((name.lower(), value))
        else:
            self._trailers += len(name) + len(value)
            if self._trailers > MAX_HEAD:
                raise httptools.HttpParserError("the trailers are too long")  # which ends in `send_400_response`

    def on_headers_complete(self) -> None:
        """The head is whole."""
        self._head_bytes = None
        self._trailers = 0
        if self._deaf or self.transport.is_closing():
            self._deaf = True
        elif not self.parser.should_upgrade():
            self._begin_turn()

    def _begin_turn(self) -> None:
        route = None if self._front is None else self._front.routes.find(self.parser.get_method(), self.url)
        if route is None:
            self._leave_to_uvicorn()
            return
        keep = self.parser.should_keep_alive() and self.parser.get_http_version() != "1.0"
        self._open = turn = self._turn(route, keep)
        previous, self.cycle = self._active, turn
        if (previous is None or previous.response_complete) and not self.pipeline and not self.flow.write_paused:
            self._active = turn
            turn.start()
        else:
            self._queue(turn)

    def on_body(self, body: bytes) -> None:
        """A part of a body."""
        if self._open is not None:
            self._open.feed(body)
        elif not self._deaf:
            super().on_body(body)

    def on_message_complete(self) -> None:
        """A request is whole."""
        if self._open is not None:
            turn, self._open = self._open, None
            turn.complete()
        elif not self._deaf and not self.parser.should_upgrade():
            super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """The stream is not HTTP: answer what came before, then say so and close."""
        if self._front is None:
            super().send_400_response(msg)
            return
        self._deaf = True
        turn, self._open = self._open, None
        if turn is None:
            self._give_up_cycle()
            self._malformed = msg
            self._advance()
        elif turn.response_complete:
            self.transport.close()
        else:
            turn.malformed()

    # What turns need

    def proceed(self) -> None:
        """Tell the client to send the body that it announced."""
        if self.parser.get_http_version() != "1.0":
            self.transport.write(_CONTINUE)

    def put(self, turn: Turn, *parts: bytes) -> None:
        """Write an answer, which is complete, and go on with what comes after it, or close."""
        if len(parts) == 2 and len(parts[1]) < 2**14:
            self.transport.write(parts[0] + parts[1])
        else:
            self.transport.writelines(parts)
        if not turn.keep_alive:
            self._close(turn.received and not self.pipeline)
        self.on_response_complete()

    def add(self, part: bytes) -> int:
        """Write a part of an answer, which is not complete; returns the bytes that its client has not read yet, beside
        those that the system holds.
        """
        self.transport.write(part)
        return self.transport.get_write_buffer_size()

    def cut(self) -> None:
        """The pod ends now: tell whoever waits for an answer."""
        if isinstance(self._active, Turn):
            self._active.cut()

    def drop(self) -> None:
        """Close: nobody is there."""
        self._deaf = True
        self.transport.close()

    # The order of answers

    def _busy(self) -> bool:
        return self._active is not None and not self._active.response_complete

    def on_response_complete(self) -> None:
        """An answer was written."""
        self.server_state.total_requests += 1
        self._since = self.loop.time()
        if self.pipeline or self.flow.read_paused or self.half_closed or self._malformed is not None:
            self._advance()  # else there is nothing to begin, to resume or to end

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        if self.pipeline or self.flow.write_paused or self._busy():
            self._queue(cycle)
        else:
            self._active = cycle
            super()._start_asgi_task(cycle, app)

    def _leave_to_uvicorn(self) -> None:
        """Everything that is not hot."""
        target, headers = self.url, self.headers
        super().on_message_begin()
        self.url = target
        for name, value in headers:
            super().on_header(name, value)
        super().on_headers_complete()
        if self._front is not None and self._front.pod.closing:
            self.cycle.keep_alive = False

    def _without_upgrade(self, rest: bytes) -> bytes:
        """A request as if it did not ask for another protocol, which a server may ignore (RFC 9110, 7.8), and the rest.

        The parser takes what follows such a head for that protocol: a body, of Java's client for one, would be lost.
        """
        method = self.parser.get_method()
        if method == b"CONNECT":
            self.send_400_response("CONNECT is not served here.")
            return b""
        kept = [(name, value) for name, value in self.headers if name not in _OF_UPGRADES]
        if any(name == b"connection" and b"close" in value.lower() for name, value in self.headers):
            kept.append((b"connection", b"close"))
        head = b"%b %b HTTP/1.1\r\n" % (method, self.url) + b"".join(b"%b: %b\r\n" % pair for pair in kept)
        self.parser = httptools.HttpRequestParser(self)
        return head + b"\r\n" + rest

    def _give_up_cycle(self) -> None:
        """The body of a request that uvicorn reads is malformed: its application is told that the client is gone."""
        cycle = self.cycle
        if cycle is None or isinstance(cycle, Turn) or cycle.response_complete or not cycle.more_body:
            return
        cycle.disconnected = True
        cycle.message_event.set()
        if self.pipeline:
            self.pipeline.popleft()
        elif cycle.response_started:
            self.transport.close()
        else:
            self._active = None

    def _queue(self, turn: Turn | RequestResponseCycle) -> None:
        self.flow.pause_reading()
        if isinstance(turn, Turn):
            turn.queued()
        self.pipeline.appendleft((turn, self.app))

    def _advance(self) -> None:
        """Begin what comes next, unless something is being answered. Does not recurse, however many there are."""
        if self._advancing or self._busy() or self.transport.is_closing():
            return
        self._advancing = True
        try:
            while self.pipeline and not self._busy() and not self.flow.write_paused and not self.transport.is_closing():
                cycle, app = self.pipeline.pop()
                self._active = cycle
                if isinstance(cycle, Turn):
                    cycle.start()
                else:
                    super()._start_asgi_task(cycle, app)
        finally:
            self._advancing = False
        if self._busy():
            if not self.pipeline:
                self.flow.resume_reading()  # the rest of its body
        elif not self.pipeline and not self.transport.is_closing():
            self._rest()

    def _rest(self) -> None:
        """Nothing is left to be answered."""
        if self._malformed is not None:
            assert self._front is not None
            body = error_body(self._malformed)
            head = self._front.answers.plain(self.server_state, 400, len(body), [], closes=True)
            self._malformed = None
            self.transport.write(head + body)
            self._close(received=False)
        elif self.half_closed:
            self.transport.close()
        elif not self.flow.write_paused:
            self.flow.resume_reading()

    def _close(self, received: bool) -> None:
        """End the connection after the answer; if more may come, not before the client has read the answer."""
        self._deaf = True
        if received or self.half_closed:
            self.transport.close()
            return
        self.flow.resume_reading()
        self.transport.write_eof()
        self.loop.call_later(LINGER_SECONDS, self.transport.close)

    # Patience

    def _look(self) -> None:
        """Now and then: has the client begun what it does not end, or been idle for too long?"""
        self._looking = self.loop.call_later(LOOK_SECONDS, self._look)
        if self._busy() or self.pipeline or self.flow.write_paused:
            return
        unfinished = self._open is not None or (self._head_bytes is not None and self.url != b"")
        if self.loop.time() - self._since > (HEAD_SECONDS if unfinished else KEEP_ALIVE_SECONDS):
            self.transport.close()

    def _stalled(self, before: int) -> None:
        left = self.transport.get_write_buffer_size()
        if left >= before:
            self.transport.abort()
        else:
            self._stall = self.loop.call_later(STALL_SECONDS, self._stalled, left)

    # Hot requests

    def _turn(self, route: Route, keep_alive: bool) -> Turn:
        assert self._front is not None
        front = self._front
        if route is Route.GENERATE:
            chunked = self.parser.get_http_version() != "1.0"
            return Answering(self, front, *self._read_head(None), keep_alive, path_of(self.url), chunked=chunked)
        if route is Route.INFER:
            return self._inference(front, keep_alive, None)
        if route is Route.UNKNOWN_MODEL:
            return self._inference(front, keep_alive, front.unknown(path_of(self.url)))
        method, path = self.parser.get_method(), path_of(self.url)
        to_router = any(name == _CHECK for name, _ in self.headers)

        def answer() -> Short:
            match route:
                case Route.LIVE:
                    return front.live()
                case Route.READY:
                    return front.ready(to_router=to_router)
                case _:
                    return front.refused_method(
                        method.decode(), path, "POST" if route is Route.NOT_POST else "GET, HEAD"
                    )

        return Prompt(
            self, front.answers, answer, keep_alive=keep_alive and not front.pod.closing, bodiless=method == b"HEAD"
        )

    def _inference(self, front: Front, keep_alive: bool, refusal: RequestError | None) -> Inference:
        return Inference(self, front, *self._read_head(refusal), keep_alive)

    def _read_head(self, refusal: RequestError | None) -> tuple[Head, RequestError | None]:
        """The head of a request, and why it is refused, if it is."""
        try:
            head = refused_head(self.headers) if refusal is not None else read_head(self.headers)
        except RequestError as error:
            head, refusal = refused_head(self.headers), error
        return head, refusal
