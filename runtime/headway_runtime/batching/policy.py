"""Which requests run together, and when: a state machine without clock, thread or tensor.

The engine calls it under one lock: `admit` when a request arrives, `plan` whenever a device is free, `start` when it
takes what `plan` proposed. Several engine threads may do so in turn. Time is passed in.

The rule, in order:
1. Requests of one *group* may share a run. The line is ordered by `Ticket.order`: by arrival, and a level of priority
   counts as having arrived a fixed time earlier.
2. When any request has waited `max_wait`, the next run contains the first in line. With `max_wait` 0 that is always so.
3. Before that, a group for which waiting cannot help runs at once: one that fills `max_batch` rows, or whose rows more
   company would not make noticeably cheaper; of several, the one whose first request is first in line.
4. Nor is a request kept until its deadline: half of the time to it is the most that it waits for company.
5. Otherwise the device waits until one of these holds.

Rules 2 to 4 name one request; `grouping` chooses its company, by cost if a cost is known. A request that alone is
larger than `max_batch` runs alone.

Hence the bounds. Once a request has waited `max_wait`, every run that starts without it contains one that is before it
in line: at most as many runs start without it as requests were before it, and none once it is first. A request
is behind one that arrives later only if that has a higher priority and arrives within the levels' difference times
`LEVEL_SECONDS`: no flow of preferred requests, however thick, keeps it waiting for longer than what was before it.
"""

from collections import OrderedDict
from collections.abc import Hashable, Sequence

from headway_runtime.batching.grouping import Cost, Curves, Group, by_cost, first_come
from headway_runtime.batching.tickets import LEVEL_SECONDS, Limits, Plan, Priority, Refusal, Ticket

__all__ = ["LEVEL_SECONDS", "Cost", "Limits", "Plan", "Policy", "Priority", "Refusal", "Ticket"]

_NEVER = float("inf")
_NOTHING = Plan()


class Policy:
    """The waiting line. Not thread-safe: the engine holds one lock around every call."""

    def __init__(self, limits: Limits, cost: Cost | None = None, *, left_out: float = 0.0) -> None:
        """`cost` is that of runs in which nothing is left out; `left_out` as for `grouping.Curves`."""
        self.rows = 0
        self.bytes = 0
        self._limits = limits
        self._cost = cost
        self._left_out = left_out
        self._curves: Curves | None = None
        self._lines: tuple[OrderedDict[int, Ticket], ...] = tuple(OrderedDict() for _ in Priority)  # by arrival
        self._groups: dict[Hashable, Group] = {}
        self._eager: dict[Hashable, Group] = {}  # those for which waiting cannot help, apart from
        self._changed: dict[Hashable, Group] = {}  # those that are to be judged again
        self._earliest_deadline = _NEVER  # never later than the true one
        self._chosen: tuple[Ticket, ...] = ()  # the latest choice, while nothing has changed
        self._renew()

    @property
    def limits(self) -> Limits:
        """The knobs in force; new ones rule from the next plan on."""
        return self._limits

    @limits.setter
    def limits(self, limits: Limits) -> None:
        self._limits = limits
        self._renew()

    @property
    def cost(self) -> Cost | None:
        """What a run costs; None: not known. A new one rules from the next plan on."""
        return self._cost

    @cost.setter
    def cost(self, cost: Cost | None) -> None:
        self._cost = cost
        self._renew()

    def __len__(self) -> int:
        """Number of requests that wait."""
        return sum(map(len, self._lines))

    def admit(self, ticket: Ticket) -> Refusal | None:
        """Put a request in line, or say which bound it would break. Arrival times must not decrease."""
        limits = self._limits
        if self.rows + ticket.rows > limits.capacity:
            return Refusal.ROWS
        if self.bytes + ticket.bytes > limits.bytes:
            return Refusal.BYTES
        self._chosen = ()
        self._lines[ticket.priority][ticket.id] = ticket
        key = _group_key(ticket)
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = Group()
        group.add(ticket)
        self.rows += ticket.rows
        self.bytes += ticket.bytes
        if ticket.deadline < self._earliest_deadline:
            self._earliest_deadline = ticket.deadline
        self._changed[key] = group
        return None

    def cancel(self, ticket_id: int) -> Ticket | None:
        """Take a request out of line; None if it is not waiting (any more)."""
        ticket = next((line[ticket_id] for line in self._lines if ticket_id in line), None)
        if ticket is not None:
            self._leave([ticket])
        return ticket

    def expire(self, now: float) -> list[Ticket]:
        """Take out every request whose deadline has passed. Costs nothing while none has."""
        if now < self._earliest_deadline:
            return []
        expired = [ticket for ticket in self.waiting() if ticket.deadline <= now]
        self._leave(expired)
        self._earliest_deadline = min((t.deadline for line in self._lines for t in line.values()), default=_NEVER)
        return expired

    def plan(self, now: float) -> Plan:
        """What a free device should do now. Changes nothing: `start` does."""
        heads = [next(iter(line.values())) for line in self._lines if line]
        if not heads:
            return _NOTHING
        oldest = min([ticket.arrived for ticket in heads])
        due = oldest + self._limits.max_wait
        if now >= due:
            return Plan(self._run(min(heads, key=_place) if len(heads) > 1 else heads[0]))
        if self._changed:
            self._judge()
        if self._eager:
            return Plan(self._run(min((group.first() for group in self._eager.values()), key=_place)))
        if (oldest + self._earliest_deadline) / 2 < due:
            hurried = min((ticket for line in self._lines for ticket in line.values()), key=_halfway)
            if now >= _halfway(hurried):
                return Plan(self._run(hurried))
            due = min(due, _halfway(hurried))
        return Plan(wake=due)

    def start(self, plan: Plan) -> None:
        """The engine runs this plan: its requests leave the line."""
        self._leave(plan.tickets)

    def waiting(self) -> list[Ticket]:
        """Every request in line, the first to arrive first."""
        return sorted(
            (t for line in self._lines for t in line.values()), key=lambda ticket: (ticket.arrived, ticket.id)
        )

    def _run(self, anchor: Ticket) -> tuple[Ticket, ...]:
        """The anchor and its company."""
        if not self._chosen or self._chosen[0] is not anchor:
            self._chosen = self._choose(anchor)
        return self._chosen

    def _choose(self, anchor: Ticket) -> tuple[Ticket, ...]:
        most = self._limits.max_batch
        if anchor.group is None or anchor.rows >= most:
            return (anchor,)
        group = self._groups[(anchor.group,)]
        if self._curves is None:
            return first_come(group, anchor, most)
        return by_cost(group, anchor, most, self._curves)

    def _leave(self, tickets: Sequence[Ticket]) -> None:
        """They are out of line."""
        self._chosen = ()
        for ticket in tickets:
            del self._lines[ticket.priority][ticket.id]
            key = _group_key(ticket)
            group = self._groups[key]
            group.remove(ticket)
            self.rows -= ticket.rows
            self.bytes -= ticket.bytes
            if group.count:
                self._changed[key] = group
            else:
                del self._groups[key]
                self._eager.pop(key, None)
                self._changed.pop(key, None)

    def _renew(self) -> None:
        cost, most = self._cost, self._limits.max_batch
        self._curves = None if cost is None else Curves(cost, most, left_out=self._left_out)
        self._chosen = ()
        self._changed = dict(self._groups)

    def _judge(self) -> None:
        """Keep `_eager` true: once for a plan, and not for each request."""
        for key, group in self._changed.items():
            if not isinstance(key, tuple) or self._sated(group):  # it shares with nobody, or needs no more
                self._eager[key] = group
            else:
                self._eager.pop(key, None)
        self._changed.clear()

    def _sated(self, group: Group) -> bool:
        """Whether more company would not help, as if all rows had the sizes of the first."""
        most = self._limits.max_batch
        if group.rows >= most:
            return True
        return self._curves is not None and group.rows >= self._curves.enough(group.first().sizes)


def _group_key(ticket: Ticket) -> Hashable:
    """Where its group is kept: a tuple, or the request's own number when it shares with nobody."""
    return ticket.id if ticket.group is None else (ticket.group,)


def _place(ticket: Ticket) -> tuple[float, int]:
    return ticket.order, ticket.id


def _halfway(ticket: Ticket) -> float:
    return (ticket.arrived + ticket.deadline) / 2
