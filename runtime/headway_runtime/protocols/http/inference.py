"""One inference request: its body, its deadline, its call of the model, its answer. No task, no future.

head ─► start ─► feed … complete ─► oip.decode ─► Service.call ─► done ─► answer
          └─ refused: answered at once; a body that still comes is thrown away
"""

import asyncio
import time
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from headway_runtime.errors import MalformedError, RequestError, SlowBodyError, TooLargeError
from headway_runtime.knobs import BODY_FIELD as LIMIT_FIELD
from headway_runtime.logs import log
from headway_runtime.protocols import oip
from headway_runtime.protocols.http.answers import headers_of
from headway_runtime.protocols.http.bodies import is_large, is_long, read, write
from headway_runtime.protocols.http.front import Front
from headway_runtime.protocols.http.heads import Head
from headway_runtime.protocols.http.turns import Turn, Wire
from headway_runtime.serving.values import Call, Reply

T = TypeVar("T")


class Inference(Turn):
    """`refusal` is an error that its head has, or its path."""

    __slots__ = (
        *("_allowed", "_began", "_body", "_called", "_counted", "_front", "_head", "_held", "_question"),
        *("_refusal", "_size", "_started", "_timer", "_wire"),
    )

    def __init__(
        self,
        wire: Wire,
        front: Front,
        head: Head,
        keep_alive: bool,
        refusal: RequestError | None,
    ) -> None:
        super().__init__(keep_alive)
        self._began = front.service.begin()  # the request's own deadline counts from here
        self._wire = wire
        self._front = front
        self._head = head
        self._refusal = refusal
        self._allowed = 0.0  # seconds it may wait
        self._body: bytes | bytearray = b""
        self._size = 0
        self._held = 0  # bytes of it that the front counts
        self._counted = False
        self._started = False
        self._called = False
        self._timer: asyncio.TimerHandle | None = None
        self._question: oip.Question | None = None

    def queued(self) -> None:
        """What comes meanwhile is held, and counts."""
        self._counted = True

    def start(self) -> None:
        """Its turn has come."""
        self._started = True
        try:
            if self._refusal is not None:
                raise self._refusal
            self._allowed = self._admissible()
        except RequestError as error:
            self._fail(error)
            return
        if self.received:
            self._call()
            return
        if self._head.expects:
            self._wire.proceed()
        if self._counted:
            self.settle()

    def feed(self, part: bytes) -> None:
        """A part of the body."""
        if self.response_complete or self._refusal is not None:
            return
        if not self._size:
            self._body = part
        elif isinstance(self._body, bytearray):
            self._body += part
        else:
            self._body = bytearray(self._body) + part
        self._size += len(part)
        try:
            if self._size > self._front.max_body:
                raise TooLargeError(
                    f"more than {self._front.max_body} bytes; that is the most that is read ({LIMIT_FIELD})"
                )
            if self._counted:
                self._hold(len(part))
        except RequestError as error:
            self._refuse(error)

    def settle(self) -> None:
        """The rest of the body is waited for: until the deadline; and what has come counts."""
        if self.response_complete or self._refusal is not None:
            return
        if not self._counted:
            self._counted = True
            try:
                self._hold(self._size)
            except RequestError as error:
                self._refuse(error)
                return
        if self._started and self._timer is None:
            left = self._began + self._allowed - time.monotonic()
            self._timer = self._wire.loop.call_later(max(0.0, left), self._expire)

    def complete(self) -> None:
        """The body is whole."""
        self.received = True
        self._stop_timer()
        if self._started and not self.response_complete:
            self._call()

    def malformed(self) -> None:
        """The stream is not HTTP, in this request's body."""
        self.keep_alive = False
        if not self.response_complete:
            self._refuse(MalformedError("the body is not framed as its head says (HTTP/1.1, RFC 9112)"))

    def lost(self) -> None:
        """The connection is gone; what the model has is dropped by way of `gone`."""
        self.disconnected = True
        if not self._called and not self.response_complete:
            self._end(None, "client_gone")

    def gone(self) -> bool:
        """Whether nobody waits for the answer any more. Asked from the engine's thread too."""
        return self.disconnected or (self._wire.half_closed and self._wire.hung_up())

    def done(self, result: Reply | RequestError | None) -> None:
        """What became of it; once, on the event loop."""
        if self.disconnected or result is None:
            self._end(None, "client_gone")
            self._wire.drop()
        elif isinstance(result, RequestError):
            self._fail(result)
        else:
            self._reply(result)

    def _admissible(self) -> float:
        """Seconds that it may wait. Raises RequestError for what its head shows."""
        allowed = self._front.service.allowed()
        head = self._head
        if head.length is not None and head.length > self._front.max_body:
            raise TooLargeError(f"{head.length} bytes; at most {self._front.max_body} are read ({LIMIT_FIELD})")
        return allowed if head.wait is None else min(allowed, head.wait)

    def _call(self) -> None:
        body, head, limit = self._body, self._head, self._front.max_body
        self._called = True
        if is_large(body, head):
            self._elsewhere(partial(read, body, head, limit), self._ask)
            return
        try:
            question = read(body, head, limit)
        except Exception as error:
            self._fail(_error(error))
        else:
            self._ask(question)

    def _ask(self, question: oip.Question) -> None:
        self._question = question
        self._release()
        call = Call(self._began + self._allowed, self.gone, self.done, self._head.priority)
        try:
            self._front.check(question)
            self._front.service.call(question.given, call)
        except Exception as error:
            self._fail(_error(error))

    def _reply(self, reply: Reply) -> None:
        assert self._question is not None
        head = self._head
        if is_long(reply, head):
            work = partial(write, self._question, reply, self._front.identity, head.accepts)
            self._elsewhere(work, partial(self._answer, reply))
            return
        try:
            written = write(self._question, reply, self._front.identity, head.accepts)
        except Exception as error:
            self._fail(_error(error))
        else:
            self._answer(reply, written)

    def _answer(self, reply: Reply, content: tuple[oip.Written, bool]) -> None:
        written, compressed = content
        self._close_if_ending()
        head = self._front.answers.good(
            self._wire.server_state,
            reply,
            written,
            closes=not self.keep_alive,
            coding=self._head.accepts if compressed else None,
        )
        self._end(200, None)
        self._wire.put(self, head, *written.parts)

    def _elsewhere(self, work: Callable[[], T], then: Callable[[T], None]) -> None:
        """Do in a thread what would keep other requests waiting."""

        def done(future: asyncio.Future[T]) -> None:
            error = future.exception()
            if self.disconnected:
                self._end(None, "client_gone")
            elif error is not None:
                self._fail(_error(error))
            else:
                then(future.result())

        self._wire.loop.run_in_executor(self._front.workers, work).add_done_callback(done)

    def _fail(self, error: RequestError) -> None:
        if error.closes or (self._head.expects and not self.received):  # the body may come, or never
            self.keep_alive = False
        self._close_if_ending()
        body = oip.error_body(str(error))
        head = self._front.answers.plain(
            self._wire.server_state, error.status, len(body), headers_of(error), closes=not self.keep_alive
        )
        self._end(error.status, error)
        self._wire.put(self, head, body)

    def _close_if_ending(self) -> None:
        if self._front.pod.closing:
            self.keep_alive = False

    def _expire(self) -> None:
        self._timer = None
        self._fail(
            SlowBodyError(
                f"the deadline passed before the body had arrived ({self._size} bytes in {self._allowed:g} s); no model"
                " has seen it"
            )
        )

    def _refuse(self, error: RequestError) -> None:
        """Answer with an error as soon as it is its turn."""
        self._release()
        if self._started:
            self._fail(error)
        else:
            self._refusal = error

    def _end(self, status: int | None, refused: RequestError | str | None) -> None:
        """Account for it, once."""
        assert not self.response_complete
        self.response_complete = True
        self._release()
        self._stop_timer()
        self._front.service.end(self._began, status, refused)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _hold(self, size: int) -> None:
        self._held += size
        self._front.hold(size)

    def _release(self) -> None:
        self._body = b""
        if self._held:
            self._front.hold(-self._held)
            self._held = 0


def _error(error: BaseException) -> RequestError:
    if isinstance(error, RequestError):
        return error
    log("request_failed", level="error", error=error)
    return RequestError(f"internal error: {type(error).__name__}; the pod's log has more")
