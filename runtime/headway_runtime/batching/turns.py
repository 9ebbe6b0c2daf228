"""Runs of a program so quick that to wake a thread would take longer: they are made on the event loop, in turns.

A turn runs what has arrived since the last one, so requests that the loop reads together still share a run. Measured
with an MLP of 128 floats and 8 clients: 63 us of processor for a request instead of 90, and half the latency or less,
because two threads of Python take turns at the interpreter anyway, every 5 ms. A run that takes too long all the same
(its sizes depend on its data, say) ends this: `give_up` is called, and the engine's thread takes over.
"""

import asyncio
import time
from collections.abc import Callable, Sequence

import torch
from headway_api.podconfig import BucketCost

from headway_runtime.batching.line import Line
from headway_runtime.batching.runner import Runner
from headway_runtime.logs import log

QUICK = 0.0005  # seconds: what every warmed bucket must take at most
TOO_LONG = 0.05
"""Seconds of the processor in which nobody else is served. Of the clock it may be more, at no fault of the program's:
under a quota of the processor every thread stands still now and then.
"""
MARK_SECONDS = 0.01  # to ask for the processor's time takes microseconds, so it is not asked before every run


def quick(costs: Sequence[BucketCost]) -> bool:
    """Whether all runs are quick enough, as measured while warming."""
    return bool(costs) and max(cost.seconds for cost in costs) <= QUICK


class Turns:
    """On the event loop only."""

    def __init__(self, line: Line, runner: Runner, give_up: Callable[[], None]) -> None:
        self._line = line
        self._runner = runner
        self._give_up = give_up
        self._entered = False
        self._over = False
        self._due = False
        self._timer: asyncio.TimerHandle | None = None
        self._mark = 0.0, 0.0  # time.monotonic() and time.thread_time() at the start of some run lately

    def call(self) -> None:
        """Something may have to run: take a turn once the loop has read what lies there."""
        if not self._due and not self._over:
            self._due = True
            asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        self._due = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._over:
            return
        if not self._entered:
            self._entered = True
            self._runner.enter()
        works, wake = self._line.poll()
        if works:
            began = time.monotonic()
            if began - self._mark[0] > MARK_SECONDS:
                self._mark = began, time.thread_time()
            with torch.inference_mode():
                self._runner.once(works)
            if time.monotonic() - began > TOO_LONG and time.thread_time() - self._mark[1] > TOO_LONG:
                log("runs_leave_the_event_loop", longer_than=TOO_LONG)
                self._over = True
                self._give_up()
            elif self._line.rows:
                self.call()
        elif wake is not None:
            delay = max(0.0, wake - time.monotonic())
            self._timer = asyncio.get_running_loop().call_later(delay, self._turn)
