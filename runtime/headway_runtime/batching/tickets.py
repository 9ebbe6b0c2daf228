"""What the batching policy speaks in: requests as it sees them, the knobs it obeys, and what it decides.

Times are in seconds of any monotonic clock.
"""

from collections.abc import Hashable
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import NamedTuple

from headway_runtime.light import light

LEVEL_SECONDS = 0.25
"""By how much one level of priority moves a request forward in line."""


class Priority(IntEnum):
    """How much a request is preferred. A level is worth `LEVEL_SECONDS`: see `Ticket.order`."""

    LOW = 0
    NORMAL = 1
    HIGH = 2


@light
class Ticket:
    """What the policy knows of a request.

    `group` is what must be equal for requests to share a run; None: this one shares with nobody. `sizes` are its sizes
    along the dimensions that may be padded, in the order of `Layout.padded`. `bytes` are those of its decoded inputs.
    """

    id: int
    group: Hashable
    rows: int
    bytes: int
    arrived: float
    deadline: float  # it must have started by then
    sizes: tuple[int, ...] = ()
    priority: Priority = Priority.NORMAL

    @property
    def order(self) -> float:
        """Its place in line: a virtual time of arrival, later for lower priorities. So a request is overtaken only by
        those that arrive within the difference, and waits for no others.
        """
        return self.arrived + (Priority.HIGH - self.priority) * LEVEL_SECONDS


@dataclass(frozen=True, slots=True)
class Limits:
    """The hot knobs that decide: rows of a run, seconds a request waits for company, rows and bytes that may wait."""

    max_batch: int
    max_wait: float
    capacity: int
    bytes: int


class Plan(NamedTuple):
    """What to do now: run `tickets`; or, when there are none, look again at `wake` (None: when something arrives)."""

    tickets: tuple[Ticket, ...] = ()
    wake: float | None = None


class Refusal(StrEnum):
    """Why a request was not admitted."""

    ROWS = "rows"
    BYTES = "bytes"
