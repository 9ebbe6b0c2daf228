"""What leaves the engine after a step: pieces and ends for the streams, and a record for the metrics."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from headway_runtime.batching.tickets import Priority
from headway_runtime.errors import RequestError
from headway_runtime.generation.values import Piece, Stream, Usage
from headway_runtime.logs import log


class Delivery(NamedTuple):
    """What one step has for one stream. `ended`: whether it is the last, with `outcome` as `Stream.ended` says."""

    stream: Stream
    pieces: tuple[Piece, ...] = ()
    ended: bool = False
    outcome: Usage | RequestError | None = None

    def hand_over(self) -> None:
        """Call the stream; on the event loop. What it raises is logged: others must not suffer from it."""
        try:
            if self.pieces:
                self.stream.pieces(self.pieces)
            if self.ended:
                self.stream.ended(self.outcome)
        except Exception as error:
            log("answer_failed", level="error", error=error)


class Begun(NamedTuple):
    """A request that this step began: seconds since it was submitted, by its priority."""

    priority: Priority
    waited: float


class StepRecord(NamedTuple):
    """One step, for the metrics. Counts are of this step, unless said otherwise.

    `tokens`: rows of the program's run, of `sequences` sequences; `made`: tokens of answers. `seconds`: of the whole
    step. `waiting`, `running`, `blocks_used`: after it. `cached`: prompt tokens of begun requests that were found in
    the prefix cache, of `prompted` in all. `first_tokens`: seconds from submission to the first token, of each request
    that got it; `token_seconds`: mean seconds of each further token, of each answer that ended; `lengths`: tokens of
    those, prompt and answer. `retried`: steps that failed and were repeated sequence by sequence.
    """

    tokens: int
    sequences: int
    made: int
    seconds: float
    waiting: int
    running: int
    blocks_used: int
    preempted: int = 0
    cached: int = 0
    prompted: int = 0
    drafted: int = 0
    accepted: int = 0
    begun: tuple[Begun, ...] = ()
    first_tokens: tuple[float, ...] = ()
    token_seconds: tuple[float, ...] = ()
    lengths: tuple[int, ...] = ()
    retried: int = 0
    non_finite: int = 0


Deliver = Callable[[Sequence[Delivery], StepRecord | None], None]
"""Called once for each step from the engine's thread; and for requests that leave before they ran, from the caller's,
without a record. It takes both to the event loop, and calls `hand_over` of each there.
"""
