"""The waiting line: what the event loop and the engine threads share, and the one lock around it.

    event loop                         engine thread
    submit ── policy.admit ──►         take: expire, plan, skip the gone, start
    sweep, cancel, apply               (asleep while there is nothing to run)

The lock is never held while a program runs. A request is dropped before it costs anything when its deadline has passed
or its client is gone. Of the sleeping threads one watches the clock, for the policy's next moment; who takes a run
while others wait wakes the next thread.
"""

import threading
import time
from collections.abc import Iterable, Sequence
from functools import lru_cache
from math import ceil

from headway_runtime.batching.pace import Pace
from headway_runtime.batching.policy import Cost, Limits, Policy, Priority, Refusal, Ticket
from headway_runtime.batching.work import Deliver, Outcome, Work
from headway_runtime.errors import DeadlineExceededError, NotServingError, OverloadedError, QueueFullError
from headway_runtime.logs import log

LONGEST_SLEEP = 60.0  # seconds


class Line:
    """Safe to call from any thread."""

    def __init__(
        self,
        limits: Limits,
        deliver: Deliver,
        *,
        cost: Cost | None = None,
        left_out: float = 0.0,
        instances: int = 1,
    ) -> None:
        self._policy = Policy(limits, cost, left_out=left_out)
        self._deliver = deliver
        self._works: dict[int, Work] = {}
        self._lock = threading.Lock()
        self._asleep: list[_Sleeper] = []
        self._wake: float | None = None  # when a sleeper looks again
        self._stopping = False
        self._pace = Pace(instances)

    @property
    def rows(self) -> int:
        """Rows that wait."""
        return self._policy.rows

    def apply(self, limits: Limits, cost: Cost | None) -> None:
        """New knobs: they rule from the next run on."""
        with self._lock:
            self._policy.limits = limits
            self._policy.cost = cost
            self._rouse()

    def expect(self, deadline: float, priority: Priority) -> None:
        """Raise what `submit` would now, whatever is asked for: a request has a row, or more. So that who comes in vain
        is told before anything is read. Takes no lock: it is asked again in `submit`.
        """
        policy = self._policy
        if policy.rows:
            self._expect_in_time(time.monotonic(), deadline, priority)
            if policy.rows >= policy.limits.capacity:
                raise self._full(Refusal.ROWS)

    def submit(self, works: Sequence[Work]) -> None:
        """Put requests in line, all or none. Raises QueueFullError, OverloadedError, or NotServingError once `stop` was
        called.
        """
        with self._lock:
            if self._stopping:
                raise NotServingError("the pod is ending; send the request again")
            if self._policy.rows:
                first = works[0].ticket
                self._expect_in_time(first.arrived, first.deadline, first.priority)
            for work in works:
                refused = self._policy.admit(work.ticket)
                if refused is not None:
                    self._forget([work.ticket.id for work in works])
                    raise self._full(refused)
                self._works[work.ticket.id] = work
            if self._asleep and self._changes_the_plan():
                self._rouse()

    def cancel(self, ids: Iterable[int]) -> None:
        """Take requests out of line, those that still wait; nothing is delivered for them."""
        with self._lock:
            self._forget(ids)

    def sweep(self) -> None:
        """Drop what waits in vain, while long runs keep the threads from doing it."""
        with self._lock:
            dropped = self._expired(time.monotonic())
            dropped += [self._drop(ticket) for ticket in self._policy.waiting() if _is_gone(self._works[ticket.id])]
        if dropped:
            self._deliver(dropped, None)

    def stop(self) -> None:
        """Every `take` returns nothing from now on."""
        with self._lock:
            self._stopping = True
            while self._asleep:
                self._rouse()

    def close(self) -> None:
        """Answer what still waits with NotServingError. Call it when nobody takes any more."""
        self.stop()
        with self._lock:
            left = [Outcome(work.slot, NotServingError("the pod is ending")) for work in self._works.values()]
            self._forget(list(self._works))
        if left:
            self._deliver(left, None)

    def ran(self, seconds: float, rows: int) -> None:
        """How long a run took: it tells who comes in vain, and when to come back."""
        self._pace.ran(seconds, rows)

    def take(self) -> list[Work]:
        """Wait for the next run; empty when it is time to end."""
        sleeper: _Sleeper | None = None
        while True:
            with self._lock:
                if sleeper is not None:
                    self._risen(sleeper)
                if self._stopping:
                    return []
                now = time.monotonic()
                dropped = self._expired(now)
                works, wake = self._next(now, dropped)
                if works and self._asleep and self._policy.rows:
                    self._rouse()  # to run what is left, or to watch the clock
                if not works and not dropped:
                    sleeper = self._lie_down(wake)
            if dropped:
                self._deliver(dropped, None)
            if works:
                return works
            if sleeper is not None and not dropped:
                sleeper.sleep(now)

    def poll(self) -> tuple[list[Work], float | None]:
        """The next run, if there is one now; else when to look again. Never waits."""
        dropped: list[Outcome] = []
        works: list[Work] = []
        wake = None
        with self._lock:
            if not self._stopping:
                now = time.monotonic()
                dropped = self._expired(now)
                works, wake = self._next(now, dropped)
        if dropped:
            self._deliver(dropped, None)
        return works, wake

    def _next(self, now: float, dropped: list[Outcome]) -> tuple[list[Work], float | None]:
        """The next run, or when to look again. Requests whose client is gone join `dropped`."""
        while True:
            plan = self._policy.plan(now)
            works = [self._works[ticket.id] for ticket in plan.tickets]
            gone = [work.ticket for work in works if _is_gone(work)]
            if not gone:
                break
            dropped += [self._drop(ticket) for ticket in gone]
        if works:
            self._policy.start(plan)
            for work in works:
                del self._works[work.ticket.id]
        return works, plan.wake

    def _lie_down(self, wake: float | None) -> "_Sleeper":
        watching = wake is not None and (self._wake is None or wake < self._wake)
        if watching:
            self._wake = wake
        sleeper = _Sleeper(wake if watching else None)
        self._asleep.append(sleeper)
        return sleeper

    def _risen(self, sleeper: "_Sleeper") -> None:
        """By the clock, or because somebody called."""
        if sleeper in self._asleep:
            self._asleep.remove(sleeper)
        if sleeper.until is not None and sleeper.until == self._wake:
            self._wake = None

    def _rouse(self) -> None:
        if self._asleep:
            self._asleep.pop().wake()

    def _changes_the_plan(self) -> bool:
        plan = self._policy.plan(time.monotonic())
        return bool(plan.tickets) or (plan.wake is not None and (self._wake is None or plan.wake < self._wake))

    def _expired(self, now: float) -> list[Outcome]:
        late = self._policy.expire(now)
        return [Outcome(self._works.pop(ticket.id).slot, _too_late(ticket, now)) for ticket in late]

    def _drop(self, ticket: Ticket) -> Outcome:
        self._policy.cancel(ticket.id)
        return Outcome(self._works.pop(ticket.id).slot, None)

    def _forget(self, ids: Iterable[int]) -> None:
        for number in ids:
            self._policy.cancel(number)
            self._works.pop(number, None)

    def _expect_in_time(self, arrived: float, deadline: float, priority: Priority) -> None:
        """Raise OverloadedError when what waits already would last beyond a request's deadline. A preferred request
        does not wait for all of it.
        """
        wait = self._policy.rows * self._pace.row
        if arrived < deadline < arrived + wait and priority is not Priority.HIGH:
            allowed = deadline - arrived
            raise OverloadedError(
                f"this pod would need {wait:.2g} s for what waits already, and the request has {allowed:.2g} s left "
                f"(spec.batching.queue.timeout, or its own deadline); try again in {_whole(wait)} s",
                retry_after=_whole(wait),
            )

    def _full(self, refused: Refusal) -> QueueFullError:
        limits = self._policy.limits
        seconds = _whole(self._pace.until_run(self._policy.rows))
        limit = limits.capacity if refused is Refusal.ROWS else limits.bytes
        return QueueFullError(_no_room(refused, limit, seconds), retry_after=seconds)


@lru_cache(64)
def _no_room(refused: Refusal, limit: int, seconds: int) -> str:
    field = "capacity" if refused is Refusal.ROWS else "bytes"
    return (
        f"the queue of this pod is full: at most {limit} {refused} wait (spec.batching.queue.{field}); try again in "
        f"{seconds} s"
    )


def _whole(seconds: float) -> int:
    return max(1, ceil(seconds))


class _Sleeper:
    """A thread that waits until it is called, or until a time. `wake` is called at most once, under the line's lock."""

    __slots__ = ("_called", "until")

    def __init__(self, until: float | None) -> None:
        self.until = until
        self._called = threading.Lock()
        self._called.acquire()

    def sleep(self, now: float) -> None:
        self._called.acquire(timeout=LONGEST_SLEEP if self.until is None else max(0.0, self.until - now))

    def wake(self) -> None:
        self._called.release()


def _is_gone(work: Work) -> bool:
    """Whether nobody waits for it. A protocol that cannot tell must not end the engine: then it is run."""
    try:
        return work.gone()
    except Exception as error:
        log("gone_unknown", level="error", error=error)
        return False


def _too_late(ticket: Ticket, now: float) -> DeadlineExceededError:
    waited = (now - ticket.arrived) * 1e3
    return DeadlineExceededError(
        f"the deadline passed while the request waited ({waited:.0f} ms); no model has seen it"
    )
