"""A client's place at the server: one keep-alive HTTP/1.1 connection, made again when it is lost.

Raw bytes in and out: the client of a benchmark must cost little beside the server, with which it may share a machine.
An answer's length must be said by `content-length`, as the servers of this protocol do.
"""

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

RETRY_SECONDS = (0.02, 0.05, 0.1, 0.2, 0.5)  # pauses before a connection is tried again, the last one repeatedly
MAX_HEAD = 64 * 2**10


@dataclass(frozen=True, slots=True)
class Address:
    """Where the server listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Lane(asyncio.Protocol):
    """At most one request is in flight. `idle(lane)` is called when it can take one, and `answered(lane, status, head,
    body)` when one has ended: `status` is the HTTP status, or 0, and `head` then says why (`connection_lost`,
    `malformed`, or what `abandon` was given). `idle` follows, at once or when the connection stands again.
    """

    def __init__(
        self, idle: Callable[["Lane"], None], answered: Callable[["Lane", int, bytes, bytes], None], address: Address
    ) -> None:
        self.number = 0  # of the request in flight
        self.began = 0.0  # from when its latency counts
        self.sent = 0.0
        self.busy = False
        self.connected = False
        self.refused = False  # the last attempt to connect failed
        self.stopped = False
        self._idle = idle
        self._answered = answered
        self._address = address
        self._transport: asyncio.Transport | None = None
        self._buffer = b""
        self._wanted = 0  # bytes of the answer in all, once its head is known
        self._head_end = 0
        self._connecting: asyncio.Task[None] | None = None

    def connect(self) -> asyncio.Task[None]:
        """Connect, and again until it succeeds or `stop` is called."""
        self._connecting = asyncio.get_running_loop().create_task(self._connect())
        return self._connecting

    def send(self, number: int, request: bytes, began: float, now: float) -> None:
        """Send a whole request. The lane must be idle."""
        assert self._transport is not None
        self.number, self.began, self.sent, self.busy = number, began, now, True
        self._transport.write(request)

    def abandon(self, why: bytes) -> None:
        """Give up the request in flight, and with it the connection."""
        self._end(0, why, b"", keep=False)

    def stop(self) -> None:
        """Close, and connect no more."""
        self.stopped = True
        if self._connecting is not None:
            self._connecting.cancel()
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """asyncio's call."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is one by its methods only
        self.connected, self._buffer, self._wanted = True, b"", 0
        self._idle(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """asyncio's call."""
        self._transport, self.connected = None, False
        if self.busy:
            self._end(0, b"connection_lost", b"", keep=False)
        elif not self.stopped:
            self.connect()

    def data_received(self, data: bytes) -> None:
        """asyncio's call: a part of an answer."""
        if self._buffer:
            data = self._buffer + data
        if not self._wanted and not self._read_head(data):
            return
        if len(data) < self._wanted:
            self._buffer = data
            return
        if not self.busy or len(data) > self._wanted:  # more than was asked for
            self._end(0, b"malformed", b"", keep=False)
            return
        head = data[: self._head_end]
        keep = b"connection: close" not in head
        self._end(int(head[9:12]), head, data[self._head_end : self._wanted], keep=keep)

    def _read_head(self, data: bytes) -> bool:
        end = data.find(b"\r\n\r\n")
        if end < 0:
            self._buffer = data
            if len(data) > MAX_HEAD:
                self._end(0, b"malformed", b"", keep=False)
            return False
        head = data[: end + 4].lower()
        at = head.find(b"\r\ncontent-length:")
        length = head[at + 17 : head.find(b"\r\n", at + 17)].strip() if at >= 0 else b""
        if not head.startswith(b"http/1.1 ") or not head[9:12].isdigit() or not length.isdigit():
            self._end(0, b"malformed", b"", keep=False)
            return False
        self._head_end, self._wanted = end + 4, end + 4 + int(length)
        return True

    def _end(self, status: int, head: bytes, body: bytes, *, keep: bool) -> None:
        was_busy, self.busy, self._buffer, self._wanted = self.busy, False, b"", 0
        if not keep and self._transport is not None:
            self._transport.abort()  # connection_lost follows, and connects again
            self._transport, self.connected = None, False
        elif not keep and not self.stopped:
            self.connect()
        if was_busy:
            self._answered(self, status, head, body)
        if keep and not self.busy:
            self._idle(self)

    async def _connect(self) -> None:
        loop = asyncio.get_running_loop()
        attempt = 0
        while not self.stopped:
            with contextlib.suppress(OSError):
                await loop.create_connection(lambda: self, self._address.host, self._address.port)
                self.refused = False
                return
            self.refused = True
            await asyncio.sleep(RETRY_SECONDS[min(attempt, len(RETRY_SECONDS) - 1)])
            attempt += 1
