"""Which requests run together, and when: a state machine without clock, thread or tensor.

The engine calls it under one lock: `admit` when a request arrives, `plan` whenever the device is free, `start` when it
takes what `plan` proposed. Time is passed in, in seconds of any monotonic clock.

The rule, in order:
1. Requests of one *group* (equal sizes outside the batch axis) may share a run; within a group the order of arrival
   holds.
2. When the oldest request of all has waited `max_wait`, the next run contains it.
3. Before that, a group that fills `max_batch` rows runs at once; of several, the one whose first request is oldest.
4. Otherwise the device waits, at most until rule 2 holds. With `max_wait` 0 it never waits.

A run is the longest prefix of its group that fits into `max_batch` rows; a request that alone is larger runs alone.
Hence, once a request has waited `max_wait`, every run that starts without it contains an older one: nothing overtakes
it any more.
"""

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass
from enum import IntEnum, StrEnum


class Priority(IntEnum):
    """What a client says of its request."""

    LOW = 0
    NORMAL = 1
    HIGH = 2


@dataclass(frozen=True, slots=True)
class Ticket:
    """What the policy knows of a request. Times are in seconds; `bytes` are those of its decoded inputs."""

    id: int
    group: Hashable
    rows: int
    bytes: int
    arrived: float
    deadline: float  # it must have started by then
    sizes: tuple[int, ...] = ()  # along the padded dimensions
    priority: Priority = Priority.NORMAL


@dataclass(frozen=True, slots=True)
class Limits:
    """The hot knobs that decide: rows of a run, seconds a request waits for company, rows and bytes that may wait."""

    max_batch: int
    max_wait: float
    capacity: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do now: run `tickets`; or, when there are none, look again at `wake` (None: when something arrives)."""

    tickets: tuple[Ticket, ...] = ()
    wake: float | None = None


class Refusal(StrEnum):
    """Why a request was not admitted."""

    ROWS = "rows"
    BYTES = "bytes"


class Policy:
    """The waiting line. Not thread-safe: the engine holds one lock around every call."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.rows = 0
        self.bytes = 0
        self._waiting: OrderedDict[int, Ticket] = OrderedDict()  # in order of arrival
        self._groups: dict[Hashable, _Group] = {}
        self._earliest_deadline = float("inf")  # never later than the true one

    def __len__(self) -> int:
        """Number of requests that wait."""
        return len(self._waiting)

    def admit(self, ticket: Ticket) -> Refusal | None:
        """Put a request in line, or say which bound it would break. Arrival times must not decrease."""
        if self.rows + ticket.rows > self.limits.capacity:
            return Refusal.ROWS
        if self.bytes + ticket.bytes > self.limits.bytes:
            return Refusal.BYTES
        self._waiting[ticket.id] = ticket
        group = self._groups.setdefault(ticket.group, _Group())
        group.tickets[ticket.id] = ticket
        group.rows += ticket.rows
        self.rows += ticket.rows
        self.bytes += ticket.bytes
        self._earliest_deadline = min(self._earliest_deadline, ticket.deadline)
        return None

    def cancel(self, ticket_id: int) -> Ticket | None:
        """Take a request out of line; None if it is not waiting (any more)."""
        ticket = self._waiting.get(ticket_id)
        if ticket is not None:
            self._remove(ticket)
        return ticket

    def expire(self, now: float) -> list[Ticket]:
        """Take out every request whose deadline has passed. Costs nothing while none has."""
        if now < self._earliest_deadline:
            return []
        expired = [ticket for ticket in self._waiting.values() if ticket.deadline <= now]
        for ticket in expired:
            self._remove(ticket)
        self._earliest_deadline = min((t.deadline for t in self._waiting.values()), default=float("inf"))
        return expired

    def plan(self, now: float) -> Plan:
        """What the free device should do now. Changes nothing: `start` does."""
        if not self._waiting:
            return Plan()
        oldest = next(iter(self._waiting.values()))
        due = oldest.arrived + self.limits.max_wait
        if now >= due:
            return Plan(tickets=self._prefix(self._groups[oldest.group]))
        full = [group for group in self._groups.values() if group.rows >= self.limits.max_batch]
        if full:
            return Plan(tickets=self._prefix(min(full, key=_Group.seniority)))
        return Plan(wake=due)

    def start(self, plan: Plan) -> None:
        """The engine runs this plan: its requests leave the line."""
        for ticket in plan.tickets:
            self._remove(ticket)

    def waiting(self) -> list[Ticket]:
        """Every request in line, oldest first."""
        return list(self._waiting.values())

    def _prefix(self, group: "_Group") -> tuple[Ticket, ...]:
        chosen: list[Ticket] = []
        rows = 0
        for ticket in group.tickets.values():
            rows += ticket.rows
            if chosen and rows > self.limits.max_batch:
                break
            chosen.append(ticket)
        return tuple(chosen)

    def _remove(self, ticket: Ticket) -> None:
        del self._waiting[ticket.id]
        group = self._groups[ticket.group]
        del group.tickets[ticket.id]
        group.rows -= ticket.rows
        if not group.tickets:
            del self._groups[ticket.group]
        self.rows -= ticket.rows
        self.bytes -= ticket.bytes


class _Group:
    """Requests that may share a run, in order of arrival."""

    __slots__ = ("rows", "tickets")

    def __init__(self) -> None:
        self.tickets: OrderedDict[int, Ticket] = OrderedDict()
        self.rows = 0

    def seniority(self) -> tuple[float, int]:
        """Sorts groups by their first request."""
        first = next(iter(self.tickets.values()))
        return first.arrived, first.id
