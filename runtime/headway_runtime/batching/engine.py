"""The thread that computes. Requests come in from the event loop, results go back to it once per run.

    event loop                          engine thread
    submit ── lock ── policy.admit ──►  take: expire, plan, skip the gone, start
                                        run: join rows, program.run, part rows
    deliver ◄── one call per run ─────  (a run that fails is repeated request by request: a bad one fails alone)

One lock guards the policy; it is never held while the program runs. A request is dropped before it costs anything when
its deadline has passed or its client is gone.
"""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from headway_runtime.batching.layout import Layout, Tensors
from headway_runtime.batching.policy import Limits, Policy, Refusal, Ticket
from headway_runtime.errors import (
    DeadlineExceededError,
    NotServingError,
    ProgramFailedError,
    QueueFullError,
    RequestError,
)
from headway_runtime.logs import log_seldom
from headway_runtime.program import Program


@dataclass(frozen=True, slots=True)
class Work:
    """One admitted request. `slot` is called with the result, on the event loop; the engine only carries it back."""

    ticket: Ticket
    inputs: Tensors
    sizes: dict[str, int]
    slot: Any
    gone: Callable[[], bool]


@dataclass(frozen=True, slots=True)
class Answer:
    """What a request gets: its rows of every output, how long it waited (seconds), and how many rows ran with it."""

    outputs: Tensors
    waited: float
    batch_rows: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """A finished request: its slot, and its answer or error; None when the client has gone."""

    slot: Any
    result: Answer | RequestError | None


@dataclass(frozen=True, slots=True)
class RunRecord:
    """One run of the program, for the metrics: axis sizes by dimension, and seconds."""

    sizes: dict[str, int]
    requests: int
    rows: int
    seconds: float


Deliver = Callable[[Sequence[Outcome], RunRecord | None], None]


class Engine:
    """`deliver` is called from the engine thread and, for requests that leave the line early, from the caller's."""

    def __init__(self, program: Program, layout: Layout, limits: Limits, deliver: Deliver) -> None:
        self._program = program
        self._layout = layout
        self._policy = Policy(limits)
        self._deliver = deliver
        self._works: dict[int, Work] = {}
        self._condition = threading.Condition()
        self._idle = False  # the thread sleeps, and looks again at _wake
        self._wake: float | None = None
        self._stopping = False
        self._running_since: float | None = None
        self._run_seconds = 0.0  # a moving average

    @property
    def waiting_rows(self) -> int:
        """Rows in line."""
        return self._policy.rows

    def apply(self, limits: Limits) -> None:
        """New knobs: they rule from the next run on."""
        with self._condition:
            self._policy.limits = limits
            self._condition.notify()

    def submit(self, work: Work) -> None:
        """Put a request in line. Raises QueueFullError, or NotServingError once `stop` was called."""
        with self._condition:
            if self._stopping:
                raise NotServingError("the pod is ending; send the request again")
            refused = self._policy.admit(work.ticket)
            if refused is not None:
                raise self._full(refused)
            self._works[work.ticket.id] = work
            if self._idle and self._changes_the_plan():
                self._condition.notify()

    def sweep(self) -> None:
        """Drop what waits in vain, while a long run keeps the thread from doing it."""
        with self._condition:
            dropped = self._expired(time.monotonic())
            dropped += [self._drop(ticket) for ticket in self._policy.waiting() if self._works[ticket.id].gone()]
        if dropped:
            self._deliver(dropped, None)

    def stop(self) -> None:
        """End the thread after its current run; what still waits is answered with NotServingError."""
        with self._condition:
            self._stopping = True
            self._condition.notify()

    def busy_for(self) -> float:
        """Seconds the current run has taken so far; 0 between runs."""
        since = self._running_since
        return 0.0 if since is None else time.monotonic() - since

    def run(self) -> None:
        """The thread's life: returns after `stop`. However it ends, every request is answered."""
        works: list[Work] = []
        try:
            with torch.inference_mode():
                while works := self._take():
                    outcomes, record = self._execute(works)
                    self._running_since = None
                    works = []
                    self._deliver(outcomes, record)
        finally:
            with self._condition:
                self._stopping = True
                left = [Outcome(work.slot, NotServingError("the pod is ending")) for work in self._works.values()]
                self._works.clear()
            left += [Outcome(work.slot, ProgramFailedError("the engine ended during this run")) for work in works]
            self._deliver(left, None)

    def _take(self) -> list[Work]:
        """Wait for the next run; empty when it is time to end."""
        dropped: list[Outcome] = []
        with self._condition:
            while not self._stopping:
                now = time.monotonic()
                dropped += self._expired(now)
                plan = self._policy.plan(now)
                gone = [ticket for ticket in plan.tickets if self._works[ticket.id].gone()]
                if gone:
                    dropped += [self._drop(ticket) for ticket in gone]
                elif plan.tickets:
                    self._policy.start(plan)
                    self._running_since = now
                    works = [self._works.pop(ticket.id) for ticket in plan.tickets]
                    break
                elif dropped:
                    self._deliver(dropped, None)
                    dropped = []
                else:
                    self._idle, self._wake = True, plan.wake
                    self._condition.wait(None if plan.wake is None else max(0.0, plan.wake - now))
                    self._idle = False
            else:
                works = []
        if dropped:
            self._deliver(dropped, None)
        return works

    def _execute(self, works: list[Work]) -> tuple[list[Outcome], RunRecord]:
        began = time.monotonic()
        rows = [work.ticket.rows for work in works]
        if len(works) > 1 and self._program.check(self._sizes(works, rows)) is not None:
            return self._one_by_one(works, rows, began)  # each fits the program's guards, their sum does not
        try:
            parted = self._compute(works, rows)
        except Exception as error:
            if len(works) == 1:
                return [Outcome(works[0].slot, _failure(error))], self._record(works, rows, began)
            log_seldom("run_failed", requests=len(works), rows=sum(rows), error_type=type(error).__name__)
            return self._one_by_one(works, rows, began)
        answers = (
            Answer(outputs, began - work.ticket.arrived, sum(rows)) for work, outputs in zip(works, parted, strict=True)
        )
        record = self._record(works, rows, began)
        self._run_seconds += 0.1 * (record.seconds - self._run_seconds)
        return [Outcome(work.slot, answer) for work, answer in zip(works, answers, strict=True)], record

    def _one_by_one(self, works: list[Work], rows: list[int], began: float) -> tuple[list[Outcome], RunRecord]:
        outcomes = [outcome for work in works for outcome in self._execute([work])[0]]
        return outcomes, self._record(works, rows, began)

    def _compute(self, works: list[Work], rows: list[int]) -> list[Tensors]:
        inputs = self._layout.join([work.inputs for work in works], sum(rows))
        outputs = self._program.run(inputs)
        return self._layout.part([tensor.cpu() for tensor in outputs], rows)

    def _record(self, works: list[Work], rows: list[int], began: float) -> RunRecord:
        return RunRecord(self._sizes(works, rows), len(works), sum(rows), time.monotonic() - began)

    def _sizes(self, works: list[Work], rows: list[int]) -> dict[str, int]:
        """Axis sizes of the run as the program sees it."""
        batch = self._layout.batch
        return works[0].sizes if batch is None else {**works[0].sizes, batch: max(sum(rows), self._layout.fewest)}

    def _changes_the_plan(self) -> bool:
        plan = self._policy.plan(time.monotonic())
        return bool(plan.tickets) or (plan.wake is not None and (self._wake is None or plan.wake < self._wake))

    def _expired(self, now: float) -> list[Outcome]:
        late = self._policy.expire(now)
        return [Outcome(self._works.pop(ticket.id).slot, _too_late(ticket, now)) for ticket in late]

    def _drop(self, ticket: Ticket) -> Outcome:
        self._policy.cancel(ticket.id)
        return Outcome(self._works.pop(ticket.id).slot, None)

    def _full(self, refused: Refusal) -> QueueFullError:
        runs = self._policy.rows / self._policy.limits.max_batch + 1
        seconds = max(1, round(runs * self._run_seconds + 0.5))
        limit = self._policy.limits.capacity if refused is Refusal.ROWS else self._policy.limits.bytes
        field = "capacity" if refused is Refusal.ROWS else "bytes"
        message = f"the queue of this pod is full: at most {limit} {refused} wait (spec.batching.queue.{field})"
        return QueueFullError(f"{message}; try again in {seconds} s", retry_after=seconds)


def _failure(error: Exception) -> ProgramFailedError:
    log_seldom("program_failed", error_type=type(error).__name__)
    first = (str(error).strip().splitlines() or [""])[0][:500]
    return ProgramFailedError(f"the program failed on this request: {type(error).__name__}: {first}")


def _too_late(ticket: Ticket, now: float) -> DeadlineExceededError:
    waited = (now - ticket.arrived) * 1e3
    return DeadlineExceededError(
        f"the deadline passed while the request waited ({waited:.0f} ms); no model has seen it"
    )
