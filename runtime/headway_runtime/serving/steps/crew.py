"""Threads beside the event loop for the work that requests bring along: what waits together is taken together.

event loop                     a thread of the crew
submit ── lock ─────────────►  take up to `most` jobs; drop the late and the gone
finished ◄── one call a turn ─ work(payloads) -> results
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from headway_runtime.errors import (
    DeadlineExceededError,
    NotServingError,
    ProgramFailedError,
    QueueFullError,
    RequestError,
    first_line,
)
from headway_runtime.logs import log_seldom
from headway_runtime.serving.values import Call

Payload = TypeVar("Payload")
Result = TypeVar("Result")
Hand = Callable[..., None]
"""Runs a function on the event loop: `hand(function, *args)`."""
Timed = Callable[[str, float], None]
"""Hears of each turn: the step, and seconds. On the event loop."""


@dataclass(frozen=True, slots=True, eq=False)
class Job(Generic[Payload, Result]):
    """`done` is called once on the event loop: with the result, an error, or None when the client has gone."""

    payload: Payload
    size: int  # bytes, of which a turn takes so many
    call: Call
    done: Callable[[Result | RequestError | None], None]


class Crew(Generic[Payload, Result]):
    """`work` gives a result, or an error, for each payload; it is called from several threads at once.

    What it raises is each payload's own failure: they are then tried one by one.
    """

    def __init__(
        self,
        name: str,
        work: Callable[[Sequence[Payload]], Sequence[Result | RequestError]],
        hand: Hand,
        timed: Timed,
        *,
        threads: int,
        most: int,
        bytes: int,  # noqa: A002  # as in `Limits`
    ) -> None:
        self._name, self._work, self._hand, self._timed = name, work, hand, timed
        self._most, self._bytes = most, bytes
        self._line: deque[Job[Payload, Result]] = deque()
        self._condition = threading.Condition()
        self._stopping = False
        self._since: dict[int, float] = {}  # thread -> when its turn began
        self.capacity = 512
        for number in range(threads):
            threading.Thread(target=self._live, name=f"headway-{name}-{number + 1}", daemon=True).start()

    @property
    def waiting(self) -> int:
        """Jobs in line."""
        return len(self._line)

    def submit(self, job: Job[Payload, Result]) -> None:
        """Put a job in line. Raises QueueFullError, or NotServingError once `stop` was called."""
        with self._condition:
            if self._stopping:
                raise NotServingError("the pod is ending; send the request again")
            if len(self._line) >= self.capacity:
                message = f"{len(self._line)} requests wait for the step {self._name} (spec.batching.queue.capacity)"
                raise QueueFullError(f"{message}; try again in 1 s", retry_after=1)
            self._line.append(job)
            self._condition.notify()

    def sweep(self) -> None:
        """Drop what waits in vain while all threads are busy. On the event loop."""
        now = time.monotonic()
        with self._condition:
            dropped = [job for job in self._line if _in_vain(job, now)]
            for job in dropped:
                self._line.remove(job)
        _finish([(job, _why(job)) for job in dropped])

    def busy_for(self) -> float:
        """Seconds that the longest of the current turns has taken so far."""
        return time.monotonic() - min(list(self._since.values()), default=time.monotonic())

    def stop(self) -> None:
        """End the threads after their turns; what still waits is answered with NotServingError. On the event loop."""
        with self._condition:
            self._stopping = True
            left, self._line = list(self._line), deque()
            self._condition.notify_all()
        for job in left:
            job.done(NotServingError("the pod is ending; send the request again"))

    def _live(self) -> None:
        me = threading.get_ident()
        while jobs := self._take():
            began = self._since[me] = time.monotonic()
            finished = self._turn(jobs)
            del self._since[me]
            self._hand(self._end, finished, time.monotonic() - began)

    def _end(self, finished: list[tuple[Job[Payload, Result], Any]], seconds: float) -> None:
        self._timed(self._name, seconds)
        _finish(finished)

    def _take(self) -> list[Job[Payload, Result]]:
        """Wait for work; empty when it is time to end."""
        with self._condition:
            while not self._line and not self._stopping:
                self._condition.wait()
            jobs: list[Job[Payload, Result]] = []
            left = self._bytes
            while self._line and len(jobs) < self._most and (not jobs or self._line[0].size <= left):
                jobs.append(self._line.popleft())
                left -= jobs[-1].size
            return jobs

    def _turn(self, jobs: list[Job[Payload, Result]]) -> list[tuple[Job[Payload, Result], Any]]:
        now = time.monotonic()
        dropped = [job for job in jobs if _in_vain(job, now)]
        kept = [job for job in jobs if job not in dropped]
        results = self._results([job.payload for job in kept])
        return [*((job, _why(job)) for job in dropped), *zip(kept, results, strict=True)]

    def _results(self, payloads: list[Payload]) -> Sequence[Result | RequestError]:
        try:
            return self._work(payloads) if payloads else ()
        except BaseException as error:  # a panic of Rust code is no Exception
            if len(payloads) > 1:
                return [result for payload in payloads for result in self._results([payload])]
            return [failed(self._name, error)]


def failed(step: str, error: BaseException) -> ProgramFailedError:
    """What a request is told when a step raised on it."""
    log_seldom("step_failed", step=step, error_type=type(error).__name__)
    first = first_line(error, 300)
    return ProgramFailedError(f"the step {step} failed on this request: {type(error).__name__}: {first}")


def _in_vain(job: Job[Any, Any], now: float) -> bool:
    return now > job.call.deadline or job.call.gone()


def _why(job: Job[Any, Any]) -> RequestError | None:
    if job.call.gone():
        return None
    return DeadlineExceededError("the deadline passed before its inputs were read; no model has seen it")


def _finish(finished: list[tuple[Job[Any, Any], Any]]) -> None:
    for job, result in finished:
        job.done(result)
