"""What a client may cost of time and bytes, and whether it is still there. Of requests `connection` knows.

A head may take `HEAD_SECONDS`, a body what the front and its deadline allow, an answer that is not read
`STALL_SECONDS`. What comes at once is read in parts, so that others have their turn.

A client may close its sending half and wait for its answer. Whether it is there or has left for good shows only when
something is sent to it: it is told `100 Continue`, which every client of HTTP/1.1 passes over and to which only the
system of one that has left answers with a reset.
"""

import asyncio
import select
import time
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

KEEP_ALIVE_SECONDS = 4000.0
"""Longer than any client keeps an idle connection (Envoy: an hour): closing one as a request comes would lose it."""

HEAD_SECONDS = 60.0  # for a head, and for what nobody reads of a refused body
STALL_SECONDS = 60.0  # in which a client must read something of its answer
STEP, TURN_SECONDS = 16 * 2**10, 0.01  # bytes that are read at once, and for how long, before others have their turn
LINGER_SECONDS, LINGER_BYTES = 2.0, 16 * 2**20  # to read on after an early answer, so that no reset takes it away
LOOK_SECONDS = 20.0


class Patient(HttpToolsProtocol):
    """A connection's transport. `_deaf`: what still comes is thrown away. `_since`: loop.time() of the first byte of a
    head, or of the last answer.
    """

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self.half_closed = False
        self._unread = memoryview(b"")  # what has come and waits for its turn
        self._deaf = False
        self._unheard = 0  # bytes that were thrown away
        self._fd = -1
        self._since = 0.0
        self._looking: asyncio.TimerHandle | None = None
        self._stall: asyncio.TimerHandle | None = None

    # What is asked of the order of answers

    def _parse(self, data: bytes) -> None:
        """A part of the stream."""
        raise NotImplementedError

    def _owes(self) -> bool:
        """The client has sent its last byte: whether an answer is still due."""
        raise NotImplementedError

    def _half_close(self) -> None:
        """It is, and from now on other threads ask whether the client has hung up."""
        raise NotImplementedError

    def _lost(self) -> None:
        """The connection is gone."""
        raise NotImplementedError

    def _busy(self) -> bool:
        """Whether something is being answered."""
        raise NotImplementedError

    def _unfinished(self) -> bool:
        """Whether the client has begun a request that it has not ended."""
        raise NotImplementedError

    def _advance(self) -> None:
        """The client has read what it was sent."""
        raise NotImplementedError

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
        self._lost()
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
        if not self._deaf:
            self._parse(data)
            return
        self._unheard += len(data)
        if self._unheard > LINGER_BYTES:
            self.transport.abort()

    def eof_received(self) -> bool | None:  # type: ignore[override]
        """The client has sent its last byte. True: it still gets what it has asked for."""
        if self._unread:
            last, self._unread = bytes(self._unread), memoryview(b"")
            self._receive(last)
        if self.half_closed or self._deaf:
            return self.half_closed and self._busy()
        if not self._owes():
            return None
        self._fd = self.transport.get_extra_info("socket").fileno()
        self.half_closed = True
        self._half_close()
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

    def _close(self, *, received: bool) -> None:
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
        if self.loop.time() - self._since > (HEAD_SECONDS if self._unfinished() else KEEP_ALIVE_SECONDS):
            self.transport.close()

    def _stalled(self, before: int) -> None:
        left = self.transport.get_write_buffer_size()
        if left >= before:
            self.transport.abort()
        else:
            self._stall = self.loop.call_later(STALL_SECONDS, self._stalled, left)
