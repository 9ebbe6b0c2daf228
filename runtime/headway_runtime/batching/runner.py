"""One engine thread: takes a run from the line, computes it, hands every request its rows.

A run that fails is repeated in halves until the failing request is alone, so that one poisonous input cannot fail its
neighbours, and a run for which memory is lacking becomes smaller. With one bad request among n that takes about
2 log2(n) runs, where one by one would take n; each request is computed at most 1 + log2(n) times, so nobody can make it
more expensive than that.
"""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch

from headway_runtime.batching.assembly import Assembly, Joint
from headway_runtime.batching.layout import Tensors
from headway_runtime.batching.line import Line
from headway_runtime.batching.work import Answer, Deliver, Outcome, RunRecord, Work
from headway_runtime.errors import NonFiniteError, ProgramFailedError, first_line
from headway_runtime.logs import log_seldom
from headway_runtime.memory import out_of_memory


class Compute(Protocol):
    """What runs the program for one thread: inputs of a run in, outputs out, both on the host."""

    def __call__(self, inputs: list[torch.Tensor], joint: Joint) -> Sequence[torch.Tensor]: ...


@dataclass(slots=True)
class _Tally:
    """What came of one run and its repetitions."""

    began: float
    joint: Joint
    retried: int = 0
    out_of_memory: int = 0
    non_finite: int = 0
    outcomes: list[Outcome] = field(default_factory=list)


class Runner:
    """`reject_non_finite` may be changed at any time. It computes with as many threads as the thread that made it."""

    def __init__(self, line: Line, assembly: Assembly, compute: Compute, deliver: Deliver) -> None:
        self.reject_non_finite = False
        self._line = line
        self._assembly = assembly
        self._compute = compute
        self._deliver = deliver
        self._running_since: float | None = None
        self._threads = torch.get_num_threads()

    def busy_for(self) -> float:
        """Seconds the current call of the program has taken so far; 0 between runs."""
        since = self._running_since
        return 0.0 if since is None else time.monotonic() - since

    def enter(self) -> None:
        """The calling thread makes the runs from now on: torch has a number of compute threads for each that calls."""
        torch.set_num_threads(self._threads)

    def run(self) -> None:
        """The thread's life: returns once the line was stopped. However it ends, what it took is answered."""
        self.enter()
        with torch.inference_mode():
            while works := self._line.take():
                self.once(works)

    def once(self, works: list[Work]) -> None:
        """Run what the line gave, and deliver what came of it."""
        outcomes: Sequence[Outcome] | None = None
        record = None
        try:
            outcomes, record = self._execute(works)
        finally:
            if outcomes is None:
                error = ProgramFailedError("the engine ended during this run")
                outcomes = [Outcome(work.slot, error) for work in works]
            self._deliver(outcomes, record)

    def _execute(self, works: list[Work]) -> tuple[list[Outcome], RunRecord]:
        joint = self._assembly.joint(works)
        tally = _Tally(time.monotonic(), joint)
        self._attempt(works, joint, tally)
        seconds = time.monotonic() - tally.began
        self._line.ran(seconds, joint.rows)
        record = RunRecord(
            dict(joint.sizes),
            len(works),
            joint.rows,
            seconds,
            real_cells=joint.real,
            run_cells=joint.run,
            retried=tally.retried,
            out_of_memory=tally.out_of_memory,
            non_finite=tally.non_finite,
        )
        return tally.outcomes, record

    def _attempt(self, works: list[Work], joint: Joint, tally: _Tally) -> None:
        if len(works) > 1 and self._assembly.refused(joint) is not None:
            self._halves(works, tally)  # each fits the program's guards, all together do not
            return
        try:
            self._running_since = time.monotonic()
            parted, odd = self._computed(works, joint)
        except Exception as error:
            lacking = out_of_memory(error)
            tally.out_of_memory += lacking
            if len(works) == 1:
                tally.outcomes.append(Outcome(works[0].slot, _failure(error)))
                return
            log_seldom("run_failed", requests=len(works), error_type=type(error).__name__, out_of_memory=lacking)
            tally.retried += 1
            failed = True
        else:
            failed = False
        finally:
            self._running_since = None
        if failed:  # outside of the handler: its traceback holds what the failed run has allocated
            self._halves(works, tally)
            return
        tally.non_finite += len(odd)
        for number, (work, mine) in enumerate(zip(works, parted, strict=True)):
            if odd and self.reject_non_finite and number in odd:
                tally.outcomes.append(Outcome(work.slot, NonFiniteError(NOT_FINITE)))
            else:
                answer = Answer(mine, tally.began - work.ticket.arrived, joint.rows)
                tally.outcomes.append(Outcome(work.slot, answer))

    def _computed(self, works: list[Work], joint: Joint) -> tuple[list[Tensors], set[int]]:
        """Each request's outputs, and the numbers of those that hold NaN or infinity."""
        outputs = self._compute(self._assembly.join(works, joint), joint)
        parted = self._assembly.part(outputs, works, joint)
        return parted, _not_finite(outputs, parted)

    def _halves(self, works: list[Work], tally: _Tally) -> None:
        middle = len(works) // 2
        for half in (works[:middle], works[middle:]):
            self._attempt(half, self._assembly.joint(half), tally)


NOT_FINITE = (
    "the program's answer to this request holds NaN or infinity, which spec.batching.nonFinite: Reject does not let "
    "out; look at the inputs, or at the precision of the model"
)


def _not_finite(outputs: Sequence[torch.Tensor], parted: Sequence[Sequence[torch.Tensor]]) -> set[int]:
    """Numbers of the requests whose answers hold NaN or infinity. All at once first: that is one sum for each output,
    and what fills a run up may hold any number.
    """
    if all(_finite_sum(output) for output in outputs):
        return set()
    return {
        number
        for number, mine in enumerate(parted)
        if not all(bool(torch.isfinite(tensor).all()) for tensor in mine if tensor.is_floating_point())
    }


def _finite_sum(output: torch.Tensor) -> bool:
    """False when a number is not finite, and seldom when all are and their sum is not."""
    if not output.is_floating_point():
        return True
    total = output.sum() if output.dtype.itemsize >= 4 else output.sum(dtype=torch.float32)
    return math.isfinite(total.item())


def _failure(error: Exception) -> ProgramFailedError:
    log_seldom("program_failed", error_type=type(error).__name__)
    first = first_line(error)
    return ProgramFailedError(f"the program failed on this request: {type(error).__name__}: {first}")
