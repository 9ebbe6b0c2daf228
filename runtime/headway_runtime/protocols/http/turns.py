"""One request on a connection, as uvicorn's protocol sees it, and the hot requests that need no model."""

import asyncio
from collections.abc import Callable
from typing import Protocol

from uvicorn.server import ServerState

from headway_runtime.protocols.http.answers import Answers
from headway_runtime.protocols.http.asgi import Headers

Short = tuple[int, bytes, Headers]
"""Status, body and further headers of an answer that is small."""


class Wire(Protocol):
    """What a turn needs of its connection."""

    loop: asyncio.AbstractEventLoop
    server_state: ServerState
    half_closed: bool
    """The client has sent its last byte; it may be there to read, or gone."""

    def hung_up(self) -> bool:
        """Whether a half-closed client is gone. From any thread."""

    def proceed(self) -> None:
        """Tell the client to send the body that it announced."""

    def put(self, turn: "Turn", *parts: bytes) -> None:
        """Write an answer, which is complete, and go on with what comes after it, or close."""

    def add(self, part: bytes) -> int:
        """Write a part of an answer, which is not complete; returns the bytes that its client has not read yet, beside
        those that the system holds.
        """

    def drop(self) -> None:
        """Close: nobody is there."""


class _NoEvent:
    """uvicorn wakes a task of a request when its connection is lost; a turn has none."""

    def set(self) -> None:
        """Nobody waits."""


class Turn:
    """Has what uvicorn's protocol uses of its own RequestResponseCycle, in whose place it stands."""

    __slots__ = ("disconnected", "keep_alive", "received", "response_complete", "response_started")
    message_event = _NoEvent()

    def __init__(self, keep_alive: bool) -> None:
        self.keep_alive = keep_alive  # False: the connection ends after the answer
        self.disconnected = False
        self.received = False  # in full
        self.response_complete = False
        self.response_started = False  # a part of the answer is written

    def queued(self) -> None:
        """Others of the same connection come first."""

    def start(self) -> None:
        """Its turn has come: everything before it was answered."""
        raise NotImplementedError

    def feed(self, part: bytes) -> None:
        """A part of the body."""

    def settle(self) -> None:
        """The rest of the body has not come with this part of the stream."""

    def complete(self) -> None:
        """The body is whole."""
        self.received = True

    def malformed(self) -> None:
        """The stream is not HTTP, in this request's body."""
        self.keep_alive = False

    def cut(self) -> None:
        """The pod ends now: answer it, if it is not answered."""

    def half_closed(self) -> None:
        """The client has sent its last byte: it reads on, or has left."""

    def lost(self) -> None:
        """The connection is gone."""
        self.disconnected = True


class Prompt(Turn):
    """Health, and methods that a hot route does not have: answered without the model, whatever the body."""

    __slots__ = ("_answer", "_answers", "_bodiless", "_started", "_wire")

    def __init__(
        self, wire: Wire, answers: Answers, answer: Callable[[], Short], *, keep_alive: bool, bodiless: bool
    ) -> None:
        super().__init__(keep_alive)
        self._wire = wire
        self._answers = answers
        self._answer = answer
        self._bodiless = bodiless  # HEAD
        self._started = False

    def start(self) -> None:
        """Its turn has come."""
        self._started = True
        if self.received or not self.keep_alive:
            self._put()

    def complete(self) -> None:
        """The request is whole, as it almost always is."""
        self.received = True
        self._put()

    def settle(self) -> None:
        """There is a body, and it is late: it is not waited for."""
        self.keep_alive = False
        self._put()

    def malformed(self) -> None:
        """The same."""
        self.settle()

    def _put(self) -> None:
        if not self._started or self.response_complete:
            return
        status, body, extra = self._answer()
        head = self._answers.plain(self._wire.server_state, status, len(body), extra, closes=not self.keep_alive)
        self.response_complete = True
        self._wire.put(self, head if self._bodiless else head + body)
