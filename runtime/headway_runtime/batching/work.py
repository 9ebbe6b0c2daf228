"""What goes into the engine and what comes out of it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from headway_runtime.batching.layout import Tensors
from headway_runtime.batching.policy import Ticket
from headway_runtime.errors import RequestError
from headway_runtime.light import light


@light
class Work:
    """One admitted request, or a part of one. `slot` is called with the result, on the event loop; the engine only
    carries it back.
    """

    ticket: Ticket
    inputs: Tensors
    sizes: dict[str, int]
    slot: Any
    gone: Callable[[], bool]

    @property
    def rows(self) -> int:
        """Rows of the request."""
        return self.ticket.rows


@light
class Answer:
    """What a request gets: its rows of every output, how long it waited (seconds), and how many rows ran with it."""

    outputs: Tensors
    waited: float
    batch_rows: int


@light
class Outcome:
    """A finished request: its slot, and its answer or error; None when the client has gone."""

    slot: Any
    result: Answer | RequestError | None


@dataclass(frozen=True, slots=True)
class RunRecord:
    """One run of the program, for the metrics: axis sizes by dimension as planned, and what came of it.

    `seconds` is how long the device was busy with it, repetitions included. A cell is one position of one row along
    the padded dimensions: `real_cells` are those of requests, `run_cells` with what they were filled up by.
    """

    sizes: dict[str, int]
    requests: int
    rows: int
    seconds: float
    real_cells: int = 0
    run_cells: int = 0
    retried: int = 0  # runs that were repeated in halves
    out_of_memory: int = 0  # of those, for lack of memory
    non_finite: int = 0  # requests whose answer holds NaN or infinity


Deliver = Callable[[Sequence[Outcome], RunRecord | None], None]
"""Called from an engine thread and, for requests that leave the line early, from the caller's."""
