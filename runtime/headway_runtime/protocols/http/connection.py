"""A connection: uvicorn's protocol, which leaves hot requests to us. Its story is the order of answers; what a client
may cost of time and bytes is `patience`'s.

uvicorn makes a scope, a cycle and a task of every request. Here the head of a request is looked at first: a hot one
becomes a `Turn`, which stands where uvicorn's cycle would. Pipelined requests are answered in order, one at a time, and
wait behind one another in bounds, since nothing is read while there are any. None is begun before the answer before it
was read.
"""

from collections import deque
from typing import Any

import httptools
import orjson
from headway_api.names import CHECK_HEADER
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from headway_runtime.errors import CutShortError, RequestError
from headway_runtime.protocols.http.answers import headers_of
from headway_runtime.protocols.http.front import Front
from headway_runtime.protocols.http.heads import Head, read_head, refused_head
from headway_runtime.protocols.http.inference import Inference
from headway_runtime.protocols.http.patience import Patient
from headway_runtime.protocols.http.routes import Route, path_of
from headway_runtime.protocols.http.turns import Prompt, Short, Turn
from headway_runtime.protocols.oip import error_body
from headway_runtime.protocols.openai.answering import Answering
from headway_runtime.protocols.openai.errors import said

MAX_HEAD = 64 * 2**10
"""Bytes of a request line and its headers (Envoy admits 60 KiB). uvicorn with httptools has no bound of its own."""

_OF_UPGRADES = frozenset({b"upgrade", b"connection", b"http2-settings"})
_CHECK = CHECK_HEADER.encode()
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_NOT_HTTP = "Invalid HTTP request received."


class Connection(Patient):
    """With a front, its hot routes are answered here; without one (the admin port), only the bounds are added."""

    cycle: Any  # of uvicorn: its RequestResponseCycle, or a Turn
    pipeline: deque[tuple[Any, Any]]

    def __init__(self, *args: Any, front: Front | None = None, **named: Any) -> None:
        super().__init__(*args, **named)
        self._front = front
        self._head_bytes: int | None = 0  # of the head that is being read; None between a head and the next
        self._trailers = 0  # bytes after the body
        self._begun = False  # the head began in this part of the stream, after the end of another request perhaps
        self._open: Turn | None = None  # whose body is being read
        self._active: Turn | RequestResponseCycle | None = None  # whose turn it is
        self._advancing = False
        self._malformed: str | None = None  # what is answered after everything before it

    # What is told by the transport (`patience`)

    def _lost(self) -> None:
        for turn in (self._active, *(cycle for cycle, _ in self.pipeline)):
            if isinstance(turn, Turn) and not turn.response_complete:
                turn.lost()
        self.pipeline.clear()
        self._open = None

    def _parse(self, data: bytes) -> None:
        """The part in which a head begins is not counted."""
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

    def _owes(self) -> bool:
        if self._open is not None and not self._open.response_complete:
            if self._open is self._active:
                return False
            self.pipeline.popleft()  # it will never be whole
            self._open.lost()
            self._open = None
        return self._busy() or bool(self.pipeline)

    def _half_close(self) -> None:
        turn = self._active
        if self.parser.get_http_version() != "1.0" and not (
            turn is not None and self._busy() and turn.response_started
        ):
            self.transport.write(_CONTINUE)
        if isinstance(turn, Turn):
            turn.half_closed()

    def _busy(self) -> bool:
        return self._active is not None and not self._active.response_complete

    def _unfinished(self) -> bool:
        return self._open is not None or (self._head_bytes is not None and self.url != b"")

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
            received = turn.received and not self.pipeline
            self._lost()  # nothing is answered after it
            self._malformed = None
            self._close(received=received)
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
        elif self._active is not None and not (self._active.response_started or self.transport.is_closing()):
            self._cut_cycle(self._active)

    def drop(self) -> None:
        """Close: nobody is there."""
        self._deaf = True
        self.transport.close()

    # The order of answers

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

    def _cut_cycle(self, cycle: RequestResponseCycle) -> None:
        """The same for what uvicorn has: its application may say no more."""
        if self._front is None:
            return
        error = CutShortError()
        body = orjson.dumps(said(error, cycle.scope["path"]))
        head = self._front.answers.plain(self.server_state, error.status, len(body), headers_of(error), closes=True)
        cycle.disconnected = True
        cycle.message_event.set()
        self.transport.write(head + body)
        self._close(received=not cycle.more_body)

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

    # Hot requests

    def _turn(self, route: Route, keep_alive: bool) -> Turn:
        assert self._front is not None
        front = self._front
        if route is Route.INFER or route is Route.UNKNOWN_MODEL:
            refusal = None if route is Route.INFER else front.unknown(path_of(self.url))
            head, refusal = self._read_head(refusal)
            return Inference(self, front, head, refusal, keep_alive)
        if route is Route.GENERATE:
            chunked = self.parser.get_http_version() != "1.0"
            return Answering(self, front, *self._read_head(None), keep_alive, path_of(self.url), chunked=chunked)
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

    def _read_head(self, refusal: RequestError | None) -> tuple[Head, RequestError | None]:
        """The head of a request, and why it is refused, if it is."""
        try:
            head = refused_head(self.headers) if refusal is not None else read_head(self.headers)
        except RequestError as error:
            head, refusal = refused_head(self.headers), error
        return head, refusal
