"""Many dangerous cases, each bounded in time and memory, for the price of few processes.

A child, forked, works through numbered cases and says in shared memory where it is and what came out of each. A death
costs that child alone: the next one goes on after the case that was fatal.
"""

import faulthandler
import mmap
import os
import resource
import signal
import struct
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

PATIENCE = 120.0
"""Seconds by the clock without progress: a machine may be busy with other things."""
NOT_RUN = 255


@dataclass(frozen=True, slots=True)
class Death:
    """How the child ended that worked on case ``number``."""

    number: int
    fate: str


class Forked:
    """``work(number)`` does one case and returns a code below 255. ``seconds``: CPU time of one case. ``memory``: bytes
    of address space of a child.
    """

    def __init__(self, total: int, work: Callable[[int], int], *, seconds: float, memory: int) -> None:
        self.total = total
        self._work = work
        self._seconds = seconds
        self._memory = memory
        self._shared = mmap.mmap(-1, 8 + total)
        self._shared[8:] = bytes([NOT_RUN]) * total

    def run(self, *, budget: float | None = None, skip: Callable[[Death], int] | None = None) -> Iterator[Death]:
        """Deaths, as they happen. ``budget``: stop after so much CPU time of children, in seconds. ``skip``: which case
        comes after a death; the next one by default.
        """
        started, at = children_seconds(), 0
        while at < self.total and (budget is None or children_seconds() - started < budget):
            left = None if budget is None else budget - (children_seconds() - started)
            fate = self._child(at, left)
            if fate is None:
                return
            (number,) = struct.unpack_from("<q", self._shared)
            death = Death(number, fate)
            yield death
            at = max(number + 1, skip(death) if skip else 0)

    def codes(self) -> bytes:
        """What came out of each case; NOT_RUN where nothing did."""
        return self._shared[8:]

    def _child(self, start: int, left: float | None) -> str | None:
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                self._cases(start, left)
                code = 0
            finally:
                os._exit(code)
        seen, since = b"", time.monotonic()
        while True:
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                break
            if self._shared[:8] != seen:
                seen, since = self._shared[:8], time.monotonic()
            if time.monotonic() - since > PATIENCE:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                return f"no end after {PATIENCE} s"
            time.sleep(0.005)
        if os.WIFSIGNALED(status):
            name = signal.Signals(os.WTERMSIG(status)).name
            return f"more than {self._seconds} s of CPU time" if name == "SIGPROF" else name
        return f"exit {os.WEXITSTATUS(status)}" if os.WEXITSTATUS(status) else None

    def _cases(self, start: int, left: float | None) -> None:
        faulthandler.disable()
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.dup2(null, 2)
        resource.setrlimit(resource.RLIMIT_AS, (self._memory, self._memory))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        signal.signal(signal.SIGPROF, signal.SIG_DFL)
        for number in range(start, self.total):
            struct.pack_into("<q", self._shared, 0, number)
            if left is not None and time.process_time() > left:
                return
            signal.setitimer(signal.ITIMER_PROF, self._seconds)
            self._shared[8 + number] = self._work(number)
            signal.setitimer(signal.ITIMER_PROF, 0)


def children_seconds() -> float:
    """CPU time of all children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def fate(call: Callable[[], object]) -> str:
    """How one call ends, in a child of its own: "raised", "returned", or the name of the signal that ended it."""
    pid = os.fork()
    if pid == 0:
        try:
            call()
            os._exit(0)
        except Exception:
            os._exit(3)
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        return signal.Signals(os.WTERMSIG(status)).name
    return {0: "returned", 3: "raised"}[os.WEXITSTATUS(status)]
