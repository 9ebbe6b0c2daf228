"""The engine: one waiting line, and `instances` threads that run the program's batches on the same weights.

Requests come in from the event loop, results go back to it once per run. Read `line` for the way in, `assembly` for the
shapes of a run, `runner` for the run itself and its failures.
"""

import threading
from collections.abc import Callable, Sequence

import torch
from headway_api.types import NonFinite

from headway_runtime.batching.assembly import Assembly, Joint
from headway_runtime.batching.layout import Layout
from headway_runtime.batching.line import Line
from headway_runtime.batching.policy import Cost, Limits, Priority
from headway_runtime.batching.runner import Compute, Runner
from headway_runtime.batching.turns import Turns
from headway_runtime.batching.work import Answer, Deliver, Outcome, RunRecord, Work
from headway_runtime.program import Program

__all__ = ["Answer", "Deliver", "Engine", "Outcome", "RunRecord", "Work"]


RUN_SECONDS = 5e-5
"""What every run costs beside the program: to plan, join, part and account for it, and to wake who makes it. A model
that runs for 20 us gains nothing from company by its own curve, and yet most of what there is to gain."""


class Engine:
    """`run` is the life of its threads; everything else may be called from any thread."""

    def __init__(
        self,
        program: Program,
        layout: Layout,
        limits: Limits,
        deliver: Deliver,
        *,
        instances: int = 1,
        cost: Cost | None = None,
        assembly: Assembly | None = None,
        compute: Callable[[], Compute] | None = None,
        inline: bool = False,
    ) -> None:
        """`compute` makes what runs the program for one thread; without it, the program itself does, on the host.
        `inline`: its runs are so quick that the event loop makes them (see `turns`), from which `submit` is called.
        """
        self.layout = layout
        left_out = 0.0 if layout.skips is None else layout.skips.share
        self._line = Line(limits, deliver, cost=_of_runs(cost), left_out=left_out, instances=instances)
        assembly = assembly or Assembly(program, layout)
        self._runners = tuple(
            Runner(self._line, assembly, compute() if compute else _on_host(program), deliver) for _ in range(instances)
        )
        self._threads = threading.Event()  # set when they may take from the line
        self._turns = Turns(self._line, self._runners[0], self._threads.set) if inline else None
        if not inline:
            self._threads.set()

    @property
    def inline(self) -> bool:
        """Whether runs are made on the event loop."""
        return not self._threads.is_set()

    @property
    def waiting_rows(self) -> int:
        """Rows in line."""
        return self._line.rows

    @property
    def instances(self) -> int:
        """Threads that run the program."""
        return len(self._runners)

    def apply(self, limits: Limits, *, cost: Cost | None = None, non_finite: NonFinite = NonFinite.ALLOW) -> None:
        """New knobs: they rule from the next run on. `cost` is seconds of the program in a run; None: not known."""
        for runner in self._runners:
            runner.reject_non_finite = non_finite is NonFinite.REJECT
        self._line.apply(limits, _of_runs(cost))
        if self._turns is not None and self._line.rows:
            self._turns.call()

    def expect(self, deadline: float, priority: Priority) -> None:
        """Raise what `submit` would now, whatever is asked for: QueueFullError."""
        self._line.expect(deadline, priority)

    def submit(self, *works: Work) -> None:
        """Put requests in line, all or none. Raises QueueFullError, or NotServingError once `stop` was called."""
        self._line.submit(works)
        if self._turns is not None:
            self._turns.call()

    def cancel(self, ids: Sequence[int]) -> None:
        """Take out of line what still waits of these tickets; no outcome is delivered for them."""
        self._line.cancel(ids)

    def sweep(self) -> None:
        """Drop what waits in vain, while long runs keep the threads from doing it."""
        self._line.sweep()

    def stop(self) -> None:
        """End the threads after their current runs; what still waits is answered with NotServingError."""
        self._line.stop()
        self._threads.set()

    def busy_for(self) -> float:
        """Seconds that the longest of the current runs has taken so far; 0 between runs."""
        return max(runner.busy_for() for runner in self._runners)

    def run(self) -> None:
        """Returns after `stop`. The caller's thread is one of the instances. Raises what ended any of them: without it
        the pod would be slower for ever.
        """
        self._threads.wait()
        errors: list[BaseException] = []

        def live(runner: Runner) -> None:
            try:
                runner.run()
            except BaseException as error:  # whatever it is
                errors.append(error)
            finally:
                self._line.stop()  # they live and end together

        others = [
            threading.Thread(target=live, args=(runner,), name=f"headway-engine-{number}", daemon=True)
            for number, runner in enumerate(self._runners[1:], 2)
        ]
        for thread in others:
            thread.start()
        live(self._runners[0])
        for thread in others:
            thread.join()
        self._line.close()
        if errors:
            raise errors[0]


def _of_runs(cost: Cost | None) -> Cost | None:
    """Seconds of a run with all that belongs to it."""
    if cost is None:
        return None
    program = cost  # which the type checker knows to be there
    return lambda rows, sizes: program(rows, sizes) + RUN_SECONDS


def _on_host(program: Program) -> Compute:
    def compute(inputs: list[torch.Tensor], joint: Joint) -> Sequence[torch.Tensor]:
        return program.run(inputs) if joint.left_out is None else program.run(inputs, joint.left_out)

    return compute
