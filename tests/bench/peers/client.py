"""A client that costs little: one thread, epoll, requests made beforehand. Every answer is checked.

Closed loop: each connection sends its next request when the last is answered. Open loop: requests are due at moments
that do not depend on the server; latency counts from the moment a request was due, so a server that stalls is charged
for those that had to wait for a connection.
"""

import random
import re
import select
import socket
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_CHUNKED = re.compile(rb"\r\ntransfer-encoding: *chunked", re.IGNORECASE)
_CLOSE = re.compile(rb"\r\nconnection: *close", re.IGNORECASE)
_CHUNK = 1 << 18
PATIENCE = 30.0  # seconds without any answer that end a run


class RefusedError(Exception):
    """The server answered with another status than 200."""

    def __init__(self, outcome: "Outcome") -> None:
        super().__init__(f"answered {outcome.refused}: {outcome.refusal[:200].decode('utf-8', 'replace')}")
        self.status = max(outcome.refused)


class WrongAnswerError(Exception):
    """The server answered 200 with something else than the model's output; the message shows both."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """A request as bytes on the wire, and the check that raises WrongAnswerError for the body (and head) of a 200."""

    request: bytes
    check: Callable[[bytes, bytes], None]


@dataclass(slots=True)
class Outcome:
    """What one run saw. Latencies in seconds, of answers with status 200 only."""

    latencies: list[float] = field(default_factory=list)
    refused: dict[int, int] = field(default_factory=dict)  # status: how many
    refusal_seconds: list[float] = field(default_factory=list)
    refusal: bytes = b""  # the body of the last one
    seconds: float = 0.0

    def ordered(self) -> list[float]:
        return sorted(self.latencies)


class _Connection:
    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buffer = b""
        self.exchange: Exchange | None = None
        self.began = 0.0

    def send(self, exchange: Exchange, due: float) -> None:
        self.exchange, self.began = exchange, due
        self.socket.sendall(exchange.request)

    def receive(self) -> tuple[int, bytes, bytes, bool] | None:
        """Status, head, body, and whether the server closes; None while the answer is incomplete."""
        got = self.socket.recv(_CHUNK)
        if not got:
            raise ConnectionError(f"the server closed the connection, after {self.buffer[:200]!r}")
        self.buffer = self.buffer + got if self.buffer else got
        return self._parse()

    def _parse(self) -> tuple[int, bytes, bytes, bool] | None:
        at = self.buffer.find(b"\r\n\r\n")
        if at < 0:
            return None
        head, rest = self.buffer[:at], self.buffer[at + 4 :]
        if length := _LENGTH.search(head):
            if len(rest) < int(length[1]):
                return None
            body = rest
        elif _CHUNKED.search(head):
            if not rest.endswith(b"0\r\n\r\n"):
                return None
            body = _joined(rest)
        else:
            raise ConnectionError(f"an answer without a length: {head!r}")
        self.buffer = b""
        return int(head[9:12]), head, body, _CLOSE.search(head) is not None


def _joined(rest: bytes) -> bytes:
    """The body of a chunked answer (RFC 9112, 7.1)."""
    parts: list[bytes] = []
    while True:
        size, _, rest = rest.partition(b"\r\n")
        count = int(size.partition(b";")[0], 16)
        if not count:
            return b"".join(parts)
        parts.append(rest[:count])
        rest = rest[count + 2 :]


class Load:
    """A run against one server. Exchanges are drawn at random with a fixed seed."""

    def __init__(self, port: int, exchanges: Sequence[Exchange], connections: int, *, seed: int = 0) -> None:
        self._port, self._exchanges = port, exchanges
        self._draw = random.Random(seed)
        self._poll = select.epoll()
        self._all = {c.socket.fileno(): c for c in (_Connection(port) for _ in range(connections))}
        for number in self._all:
            self._poll.register(number, select.EPOLLIN)
        self._free = list(self._all.values())
        self._outcome = Outcome()

    def closed(self, seconds: float) -> Outcome:
        """Every connection busy for `seconds`; then what is under way is awaited."""
        with self._running() as began:
            end = began + seconds
            busy = len(self._free)
            for connection in self._free:
                connection.send(self._draw.choice(self._exchanges), time.perf_counter())
            while busy:
                for done in self._answered(PATIENCE):
                    if (now := time.perf_counter()) < end:
                        done.send(self._draw.choice(self._exchanges), now)
                    else:
                        busy -= 1
        return self._outcome

    def open(self, rate: float, seconds: float) -> Outcome:
        """`rate` requests a second, Poisson, for `seconds`; then what is due is awaited."""
        with self._running() as began:
            moments, at = deque[float](), 0.0
            while (at := at + self._draw.expovariate(rate)) < seconds:
                moments.append(began + at)
            total = len(self._free)
            while moments or len(self._free) < total:
                now = time.perf_counter()
                while moments and moments[0] <= now and self._free:
                    self._free.pop().send(self._draw.choice(self._exchanges), moments.popleft())
                waits = PATIENCE if not moments or not self._free else max(0.0, moments[0] - time.perf_counter())
                self._free += self._answered(waits)
        return self._outcome

    @contextmanager
    def _running(self) -> Iterator[float]:
        """From when the run began until its sockets are closed, however it ends."""
        began = time.perf_counter()
        try:
            yield began
        finally:
            self._outcome.seconds = time.perf_counter() - began
            self._poll.close()
            for connection in self._all.values():
                connection.socket.close()

    def _answered(self, wait: float) -> list[_Connection]:
        """Connections whose answer is complete, after at most `wait` seconds."""
        select.select([self._poll], [], [], wait)  # epoll itself counts in whole milliseconds
        events = self._poll.poll(0)
        if not events and wait >= PATIENCE:
            raise TimeoutError(f"no answer in {PATIENCE:g} s")
        done = []
        for number, _ in events:
            connection = self._all[number]
            if (answer := connection.receive()) is not None:
                done.append(self._judge(connection, *answer))
        return done

    def _judge(self, connection: _Connection, status: int, head: bytes, body: bytes, closes: bool) -> _Connection:
        took = time.perf_counter() - connection.began
        if status == 200:
            assert connection.exchange is not None
            connection.exchange.check(head, body)
            self._outcome.latencies.append(took)
        else:
            self._outcome.refused[status] = self._outcome.refused.get(status, 0) + 1
            self._outcome.refusal_seconds.append(took)
            self._outcome.refusal = body
        return self._renewed(connection) if closes else connection

    def _renewed(self, connection: _Connection) -> _Connection:
        del self._all[connection.socket.fileno()]
        connection.socket.close()
        fresh = _Connection(self._port)
        self._all[fresh.socket.fileno()] = fresh
        self._poll.register(fresh.socket.fileno(), select.EPOLLIN)
        return fresh


def once(port: int, exchange: Exchange) -> None:
    """One request on a connection of its own. Raises what a run would, and RefusedError for another status than 200."""
    outcome = Load(port, [exchange], 1).closed(0.0)
    if outcome.refused:
        raise RefusedError(outcome)
