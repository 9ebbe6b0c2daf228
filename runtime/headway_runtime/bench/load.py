"""Sends requests and takes the time: in a closed loop, or in an open one.

*Closed*: each of `connections` clients sends its next request when the last one is answered. It finds what the server
can do; its latencies are those of a server that is never asked more than it can answer.

*Open*: requests come by a Poisson process, whether or not earlier ones are answered, as those of many independent users
do. A latency counts from the moment at which the request was meant to be sent, not from when a connection was free:
otherwise a server that stops for a second would be asked nothing in that second, and the second would not be seen
(coordinated omission: G. Tene, "How NOT to measure latency").

The caller gives whole HTTP requests as bytes, which are sent in turn. Both are bounded: in time by `seconds`, then by
as much again for what is still in flight (`timeout` at most); a lost connection is made again, and what was in flight
on it is counted as lost.
"""

import asyncio
import random
import select
import selectors
import time
from collections import deque
from collections.abc import Callable, Collection, Coroutine, Sequence
from typing import Any

from headway_runtime.bench.connection import Address, Lane
from headway_runtime.bench.errors import BenchError
from headway_runtime.bench.samples import Samples

CONNECT_SECONDS = 10.0
REFUSED_SECONDS = 0.5
SETTLE_SECONDS = 2.0  # after the end, or as long as requests were sent: more than that have piled up for good
TIMEOUT = 30.0
MAX_CONNECTIONS = 900  # a process may often open 1,024 files

Observe = Callable[[int, int, bytes], None]
"""Called with the position of the request among those given, the status and the body of each answer."""


def closed_loop(
    address: Address,
    requests: Sequence[bytes],
    *,
    connections: int,
    seconds: float,
    count: int | None = None,
    timeout: float = TIMEOUT,
    observe: Observe | None = None,
) -> Samples:
    """Load by `connections` clients for `seconds`, or until `count` requests were sent. Raises BenchError when nothing
    listens.
    """
    return _run(_Closed(address, requests, connections, timeout, observe), seconds, count, uvloop=True)


def open_loop(
    address: Address,
    requests: Sequence[bytes],
    *,
    rate: float,
    seconds: float,
    connections: int = 256,
    timeout: float = TIMEOUT,
    seed: int = 0,
    observe: Observe | None = None,
) -> Samples:
    """Load at `rate` requests per second for `seconds`, over at most `connections` connections. Raises BenchError when
    nothing listens.
    """
    if not rate > 0:
        raise BenchError(f"a rate of {rate:g} requests per second cannot be measured; give one above 0")
    return _run(_Open(address, requests, connections, timeout, observe, rate=rate, seed=seed), seconds, None)


class _Load:
    """What both loops share: lanes, the clock, the end."""

    def __init__(
        self, address: Address, requests: Sequence[bytes], connections: int, timeout: float, observe: Observe | None
    ) -> None:
        if not 1 <= connections <= MAX_CONNECTIONS:
            raise BenchError(f"{connections} connections; 1 to {MAX_CONNECTIONS} can be had")
        self.samples = Samples()
        self._address = address
        self._requests = requests
        self._timeout = timeout
        self._observe = observe
        self._lanes = [Lane(self._idle, self._answered, address) for _ in range(connections)]
        self._begun = False
        self._end = 0.0
        self._left: int | None = None  # requests that may still be sent

    async def run(self, seconds: float, count: int | None) -> Samples:
        """The whole load."""
        connecting = [lane.connect() for lane in self._lanes]
        try:
            if not await self._connected(connecting):
                raise BenchError(f"nothing answers at {self._address}; is it served there?")
            processor, began = time.process_time(), time.monotonic()
            self._end, self._left, self._begun = began + seconds, count, True
            await self._load(began)
            self.samples.seconds = min(seconds, time.monotonic() - began)
            await self._settle(time.monotonic() + min(self._timeout, max(SETTLE_SECONDS, seconds)))
            self.samples.client_cpu = time.process_time() - processor
        finally:
            for lane in self._lanes:
                lane.stop()
            await asyncio.gather(*connecting, return_exceptions=True)
            await asyncio.sleep(0)  # the transports' last calls
        return self.samples

    async def _connected(self, connecting: Collection[asyncio.Task[None]]) -> bool:
        """Wait for all lanes; whether there are any. Where all are refused, not for long."""
        began = time.monotonic()
        while any(not task.done() for task in connecting) and (waited := time.monotonic() - began) < CONNECT_SECONDS:
            if waited > REFUSED_SECONDS and all(lane.refused for lane in self._lanes):
                break
            await asyncio.sleep(0.01)
        return any(lane.connected for lane in self._lanes)

    async def _load(self, began: float) -> None:
        raise NotImplementedError

    def _idle(self, lane: Lane) -> None:
        raise NotImplementedError

    def _answered(self, lane: Lane, status: int, head: bytes, body: bytes) -> None:
        now = time.monotonic()
        if status == 0:
            self.samples.losses[head.decode()] += 1
        else:
            self.samples.answered(status, head, now - lane.began)
            self.samples.in_time += status == 200 and now <= self._end
        if self._observe is not None:
            self._observe(lane.number % len(self._requests), status, body)

    def _abandon_late(self) -> None:
        earliest = time.monotonic() - self._timeout
        for lane in self._lanes:
            if lane.busy and lane.sent < earliest:
                lane.abandon(b"timeout")

    @property
    def _in_flight(self) -> int:
        return sum(lane.busy for lane in self._lanes)

    async def _settle(self, latest: float) -> None:
        """Wait for what is in flight, but no longer than that."""
        while self._in_flight and time.monotonic() < latest:  # noqa: ASYNC110 - an event would cost each answer
            await asyncio.sleep(0.005)
        for lane in self._lanes:
            if lane.busy:
                lane.abandon(b"unanswered")


class _Closed(_Load):
    _next = 0
    _out_of_work: "asyncio.Event | None" = None

    async def _load(self, began: float) -> None:
        self._out_of_work = asyncio.Event()
        for lane in self._lanes:
            if lane.connected:
                self._idle(lane)
        while (left := self._end - time.monotonic()) > 0 and not self._out_of_work.is_set():
            try:
                await asyncio.wait_for(self._out_of_work.wait(), min(left, 0.5))
            except TimeoutError:
                self._abandon_late()

    def _idle(self, lane: Lane) -> None:
        if not self._begun or lane.busy:
            return
        now = time.monotonic()
        if now >= self._end:
            return
        if self._left is not None and self._next >= self._left:
            if self._out_of_work is not None and not self._in_flight:
                self._out_of_work.set()
            return
        number, self._next = self._next, self._next + 1
        self.samples.offered += 1
        lane.send(number, self._requests[number % len(self._requests)], now, now)


class _Open(_Load):
    def __init__(self, *common: Any, rate: float, seed: int) -> None:
        super().__init__(*common)
        self._rate = rate
        self._random = random.Random(seed)  # noqa: S311 - no secret
        self._free: dict[Lane, None] = {}  # in the order in which they became free
        self._waiting: deque[tuple[int, float]] = deque()  # number, and when it was meant to be sent
        self._at = 0.0  # of the next arrival
        self._next = 0
        self._over: asyncio.Event | None = None

    async def _load(self, began: float) -> None:
        self._over = asyncio.Event()
        self._free = {lane: None for lane in self._lanes if lane.connected}
        self._at = began + self._random.expovariate(self._rate)
        self._arrive()
        while not self._over.is_set():
            try:
                await asyncio.wait_for(self._over.wait(), 0.5)
            except TimeoutError:
                self._abandon_late()

    async def _settle(self, latest: float) -> None:
        while (self._waiting or self._in_flight) and time.monotonic() < latest:  # noqa: ASYNC110 - an event would cost each answer
            await asyncio.sleep(0.005)
        if self._waiting:
            self.samples.losses["unanswered"] += len(self._waiting)
            self._waiting.clear()
        await super()._settle(latest)

    def _arrive(self) -> None:
        """Every request whose time has come."""
        now = time.monotonic()
        while self._at <= now and self._at < self._end:
            number, at = self._next, self._at
            self._next += 1
            self.samples.offered += 1
            lane = self._take_free()
            if lane is not None:
                self.samples.lags.append(now - at)
                lane.send(number, self._requests[number % len(self._requests)], at, now)
            else:
                self._waiting.append((number, at))
            self._at += self._random.expovariate(self._rate)
        if self._at < self._end:
            loop = asyncio.get_running_loop()
            loop.call_later(max(0.0, self._at - time.monotonic()), self._arrive)
        elif self._over is not None:
            asyncio.get_running_loop().call_later(max(0.0, self._end - now), self._over.set)

    def _idle(self, lane: Lane) -> None:
        if not self._begun:
            return
        if self._waiting:
            number, at = self._waiting.popleft()
            lane.send(number, self._requests[number % len(self._requests)], at, time.monotonic())
        else:
            self._free[lane] = None

    def _take_free(self) -> Lane | None:
        """The lane that became free last; those whose connection was lost since then come back when they have one."""
        while self._free:
            lane, _ = self._free.popitem()
            if lane.connected:
                return lane
        return None


def _run(load: _Load, seconds: float, count: int | None, *, uvloop: bool = False) -> Samples:
    with asyncio.Runner(loop_factory=event_loop if uvloop else _punctual_loop) as runner:
        main: Coroutine[Any, Any, Samples] = load.run(seconds, count)
        return runner.run(main)


def event_loop() -> asyncio.AbstractEventLoop:
    """The quickest there is."""
    try:
        import uvloop
    except ModuleNotFoundError:  # it does not exist for every platform
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def _punctual_loop() -> asyncio.AbstractEventLoop:
    return asyncio.SelectorEventLoop(_Punctual() if hasattr(selectors, "EpollSelector") else selectors.SelectSelector())


if hasattr(selectors, "EpollSelector"):

    class _Punctual(selectors.EpollSelector):
        """`epoll` waits whole milliseconds (and so does uvloop), which would be added to latencies; `select` waits
        microseconds, but its cost grows with the connections: so it waits for the one descriptor of `epoll`.
        """

        def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
            if timeout is not None and timeout > 0:
                select.select([self.fileno()], [], [], timeout)
                timeout = 0
            return super().select(timeout)
