"""A queue of keys: each waits at most once, one worker at a time works on it, failures come back later and later.

    add(key)              as soon as a worker is free; while a worker has the key: once more when it is done
    add_after(key, s)     in s seconds; of several times the earliest counts
    done(key)             the worker is finished with it
    retry(key)            in 0.2 s, doubling to 60 s with every further failure, with jitter; `forget` starts over

The state machine is synchronous and reads the clock that it is given; `get` is the only coroutine.
"""

import asyncio
import heapq
import random
import time
from collections.abc import Callable
from typing import Generic, TypeVar

K = TypeVar("K")

FIRST_BACKOFF, LONGEST_BACKOFF = 0.2, 60.0  # seconds
JITTER = 0.25  # share of a backoff by which it may be longer


class WorkQueue(Generic[K]):
    """Keys that want work. Not thread-safe: for one event loop."""

    def __init__(
        self, *, clock: Callable[[], float] = time.monotonic, jitter: Callable[[], float] = random.random
    ) -> None:
        self._clock = clock
        self._jitter = jitter
        self._ready: dict[K, float] = {}  # key -> since when it is due; in order of arrival
        self._working: dict[K, float] = {}  # key -> since when a worker has it
        self._again: set[K] = set()  # keys added while a worker has them
        self._later: dict[K, float] = {}  # key -> when it is due
        self._heap: list[tuple[float, int, K]] = []  # the same, soonest first; entries not in `_later` are stale
        self._sequence = 0
        self._failures: dict[K, int] = {}
        self._wake = asyncio.Event()

    def add(self, key: K) -> None:
        """Let a worker take the key as soon as one is free."""
        self._later.pop(key, None)
        if key in self._working:
            self._again.add(key)
        else:
            self._ready.setdefault(key, self._clock())
        self._wake.set()

    def add_after(self, key: K, seconds: float) -> None:
        """Let a worker take the key in `seconds`, or earlier if that was asked for before."""
        if seconds <= 0:
            self.add(key)
            return
        due = self._clock() + seconds
        if key in self._ready or key in self._again or self._later.get(key, due + 1) <= due:
            return
        self._later[key] = due
        self._sequence += 1
        heapq.heappush(self._heap, (due, self._sequence, key))
        self._wake.set()

    def retry(self, key: K, *, at_least: float = 0.0) -> float:
        """Let a worker take the key after a backoff of its own; returns its seconds."""
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        backoff = min(LONGEST_BACKOFF, FIRST_BACKOFF * 2 ** min(failures, 30)) * (1 + JITTER * self._jitter())
        seconds = max(at_least, float(backoff))
        self.add_after(key, seconds)
        return seconds

    def forget(self, key: K) -> None:
        """The key succeeded: its next failure starts with the first backoff."""
        self._failures.pop(key, None)

    def take(self) -> K | None:
        """The key that has waited longest, now in the hands of the caller until `done`; None when none is due."""
        self._promote()
        if not self._ready:
            return None
        key = next(iter(self._ready))
        del self._ready[key]
        self._working[key] = self._clock()
        return key

    def done(self, key: K) -> None:
        """The caller of `take` is finished with the key."""
        del self._working[key]
        if key in self._again:
            self._again.discard(key)
            self.add(key)

    async def get(self) -> K:
        """`take`, waiting for a key that is due."""
        while (key := self.take()) is None:
            self._wake.clear()
            due = self._next_due()
            timeout = None if due is None else max(0.0, due - self._clock())
            try:
                await asyncio.wait_for(self._wake.wait(), timeout)
            except TimeoutError:
                continue
        return key

    @property
    def depth(self) -> int:
        """Keys that are due and wait for a worker."""
        self._promote()
        return len(self._ready)

    @property
    def oldest_wait(self) -> float:
        """Seconds that the key which has waited longest is due."""
        self._promote()
        return self._clock() - next(iter(self._ready.values())) if self._ready else 0.0

    @property
    def longest_work(self) -> float:
        """Seconds that the slowest worker has had its key."""
        return self._clock() - min(self._working.values()) if self._working else 0.0

    def _promote(self) -> None:
        """Move keys whose time has come to those that are due."""
        now = self._clock()
        while (due := self._next_due()) is not None and due <= now:
            _, _, key = heapq.heappop(self._heap)
            self.add(key)

    def _next_due(self) -> float | None:
        while self._heap and self._later.get(self._heap[0][2]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None
