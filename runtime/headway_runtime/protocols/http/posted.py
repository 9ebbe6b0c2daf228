"""One POST on a connection: its body as it comes, its deadline, its refusal. No task, no future.

head ─► start ─► feed … complete ─► call, of who answers (`inference`, `openai.answering`)
          └─ refused: answered at once; a body that still comes is thrown away
"""

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

from headway_runtime.errors import (
    CutShortError,
    MalformedError,
    NotServingError,
    RequestError,
    SlowBodyError,
    TooLargeError,
)
from headway_runtime.knobs import BODY_FIELD as LIMIT_FIELD
from headway_runtime.logs import log
from headway_runtime.protocols.http.answers import headers_of
from headway_runtime.protocols.http.front import Front
from headway_runtime.protocols.http.heads import Head
from headway_runtime.protocols.http.turns import Turn, Wire

T = TypeVar("T")


class Posted(Turn):
    """`refusal` is an error that its head has, or its path. Who answers says how, by `call` and `error_document`."""

    __slots__ = (
        *("_allowed", "_began", "_body", "_called", "_counted", "_deadline", "_front", "_head", "_held"),
        *("_most", "_refusal", "_size", "_started", "_timer", "_wire"),
    )

    def __init__(
        self,
        wire: Wire,
        front: Front,
        head: Head,
        refusal: RequestError | None,
        keep_alive: bool,
    ) -> None:
        super().__init__(keep_alive)
        self._began = front.service.begin()  # the request's own deadline counts from here
        self._wire = wire
        self._front = front
        self._head = head
        self._allowed = 0.0  # seconds it may wait
        self._deadline = 0.0  # of time.monotonic(), when its turn has come
        self._most = front.max_body  # bytes of its body
        self._refusal = refusal if refusal is not None or self._most else front.too_early()
        self._body: bytes | bytearray = b""
        self._size = 0
        self._held = 0  # bytes of it that the front counts
        self._counted = False
        self._started = False
        self._called = False
        self._timer: asyncio.TimerHandle | None = None

    def call(self) -> None:
        """The body is whole: answer it, by `fail` or otherwise, now or later."""
        raise NotImplementedError

    def error_document(self, error: RequestError) -> bytes:
        """An error in JSON, as its protocol has it."""
        raise NotImplementedError

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
            self._deadline = self._began + self._allowed
        except RequestError as error:
            self.fail(error)
            return
        if self.received:
            self._called = True
            self.call()
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
            if self._size > self._most:
                raise TooLargeError(f"more than {self._most} bytes; that is the most that is read ({LIMIT_FIELD})")
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
            left = self._deadline - time.monotonic()
            self._timer = self._wire.loop.call_later(max(0.0, left), self._expire)

    def complete(self) -> None:
        """The body is whole."""
        self.received = True
        if self._timer is not None:
            self._stop_timer()
        if self._started and not self.response_complete:
            self._called = True
            self.call()

    def malformed(self) -> None:
        """The stream is not HTTP, in this request's body."""
        self.keep_alive = False
        if not self.response_complete:
            self._refuse(MalformedError("the body is not framed as its head says (HTTP/1.1, RFC 9112)"))

    def cut(self) -> None:
        """The pod ends now."""
        if not self.response_complete:
            self.give_up(CutShortError() if self._called else NotServingError("the pod is ending; send it again"))

    def give_up(self, error: RequestError) -> None:
        """End it with an error, however far it is."""
        self.fail(error)

    def lost(self) -> None:
        """The connection is gone; what the model has is dropped by way of `gone`."""
        self.disconnected = True
        if not self._called and not self.response_complete:
            self.end(None, "client_gone")

    def gone(self) -> bool:
        """Whether nobody waits for the answer any more. Asked from the engine's thread too."""
        return self.disconnected or (self._wire.half_closed and self._wire.hung_up())

    def elsewhere(self, work: Callable[[], T], then: Callable[[T], None]) -> None:
        """Do in a thread what would keep other requests waiting."""
        self.after(self._wire.loop.run_in_executor(self._front.workers, work), then)

    def after(self, future: asyncio.Future[T], then: Callable[[T], None]) -> None:
        """Go on with what a thread has found, if anybody still waits for it."""

        def done(future: asyncio.Future[T]) -> None:
            error = future.exception()
            if self.response_complete:
                return
            if self.disconnected:
                self.end(None, "client_gone")
            elif error is not None:
                self.fail(shown(error))
            else:
                then(future.result())

        future.add_done_callback(done)

    def fail(self, error: RequestError) -> None:
        """Answer with an error."""
        if error.closes or (self._head.expects and not self.received):  # the body may come, or never
            self.keep_alive = False
        self.close_if_ending()
        body = self.error_document(error)
        head = self._front.answers.plain(
            self._wire.server_state, error.status, len(body), headers_of(error), closes=not self.keep_alive
        )
        self.end(error.status, error)
        self._wire.put(self, head, body)

    def close_if_ending(self) -> None:
        """A pod that ends lets each connection end with its answer."""
        if self._front.pod.closing:
            self.keep_alive = False

    def release(self) -> None:
        """The body is not needed any more."""
        self._body = b""
        if self._held:
            self._front.hold(-self._held)
            self._held = 0

    def end(self, status: int | None, refused: RequestError | str | None) -> None:
        """Account for it, once."""
        assert not self.response_complete
        self.response_complete = True
        self.release()
        if self._timer is not None:
            self._stop_timer()
        self._front.service.end(self._began, status, refused)

    def _admissible(self) -> float:
        """Seconds that it may wait. Raises RequestError for what its head shows."""
        allowed = self._front.service.allowed()
        head = self._head
        if head.length is not None and head.length > self._most:
            raise TooLargeError(f"{head.length} bytes; at most {self._most} are read ({LIMIT_FIELD})")
        return allowed if head.wait is None else min(allowed, head.wait)

    def _expire(self) -> None:
        self._timer = None
        self.fail(
            SlowBodyError(
                f"the deadline passed before the body had arrived ({self._size} bytes in {self._allowed:g} s); no model"
                " has seen it"
            )
        )

    def _refuse(self, error: RequestError) -> None:
        """Answer with an error as soon as it is its turn."""
        self.release()
        if self._started:
            self.fail(error)
        else:
            self._refusal = error

    def _stop_timer(self) -> None:
        assert self._timer is not None
        self._timer.cancel()
        self._timer = None

    def _hold(self, size: int) -> None:
        self._held += size
        self._front.hold(size)


def shown(error: BaseException) -> RequestError:
    """What a client is told of an error: all of a request's own, and of others that there was one."""
    if isinstance(error, RequestError):
        return error
    log("request_failed", level="error", error=error)
    return RequestError(f"internal error: {type(error).__name__}; the pod's log has more")
