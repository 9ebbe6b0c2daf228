"""The batching policy: the textbook figures, the rule, and its invariants over random histories."""

from collections import Counter
from dataclasses import dataclass, field

import pytest
from headway_runtime.batching.policy import LEVEL_SECONDS, Cost, Limits, Plan, Policy, Priority, Refusal, Ticket
from hypothesis import given, settings
from hypothesis import strategies as st

ARRIVALS = [0, 1, 2, 4, 6, 7, 8, 10, 12, 13, 14, 16, 18, 19, 20, 22]
FOREVER = float("inf")


def ticket(
    number: int,
    *,
    group: object = "a",
    rows: int = 1,
    size: int = 1,
    arrived: float = 0,
    deadline: float = FOREVER,
    sizes: tuple[int, ...] = (),
    priority: Priority = Priority.NORMAL,
) -> Ticket:
    return Ticket(number, group, rows, size, arrived, deadline, sizes, priority)


def affine(rows: int, sizes: tuple[int, ...]) -> float:
    """A run that costs 5, and 1 for each row and size."""
    return 5 + rows * sum(sizes, start=0 if sizes else 1)


def limits(max_batch: int = 4, max_wait: float = 0, capacity: int = 10_000, size: int = 10_000) -> Limits:
    return Limits(max_batch, max_wait, capacity, size)


def ids(plan: Plan) -> list[int]:
    return [t.id for t in plan.tickets]


def textbook(max_batch: int, cost: Cost | None = None) -> tuple[float, float]:
    """Mean latency and time of the last answer (ms): one device, 5 ms for a run and 1 ms for each item in it."""
    policy, now, latencies, pending = Policy(limits(max_batch), cost), 0.0, [], list(enumerate(ARRIVALS))
    while pending or len(policy):
        while pending and pending[0][1] <= now:
            number, arrived = pending.pop(0)
            assert policy.admit(ticket(number, arrived=arrived)) is None
        plan = policy.plan(now)
        if not plan.tickets:
            now = pending[0][1]
            continue
        policy.start(plan)
        now += 5 + len(plan.tickets)
        latencies += [now - t.arrived for t in plan.tickets]
    return sum(latencies) / len(ARRIVALS), now


@pytest.mark.parametrize("cost", [None, affine])
def test_the_textbook_case_takes_15_31_ms_batched_and_40_25_ms_one_at_a_time(cost: Cost | None) -> None:
    assert textbook(4, cost)[0] == pytest.approx(15.3125)
    assert textbook(1, cost) == (40.25, 96)


def test_without_a_wait_a_lone_request_runs_at_once() -> None:
    policy = Policy(limits())
    policy.admit(ticket(1))
    assert ids(policy.plan(0)) == [1]


def test_a_request_waits_for_company_no_longer_than_max_wait() -> None:
    policy = Policy(limits(max_wait=5))
    policy.admit(ticket(1, arrived=10))
    assert policy.plan(12) == Plan(wake=15)
    policy.admit(ticket(2, arrived=13))
    assert policy.plan(14.9) == Plan(wake=15)
    assert ids(policy.plan(15)) == [1, 2]


def test_a_full_group_does_not_wait() -> None:
    policy = Policy(limits(max_batch=2, max_wait=5))
    policy.admit(ticket(1))
    policy.admit(ticket(2))
    assert ids(policy.plan(0)) == [1, 2]


def test_a_full_group_may_go_before_an_older_request_that_still_waits_but_not_after_its_wait() -> None:
    policy = Policy(limits(max_batch=2, max_wait=5))
    policy.admit(ticket(1, group="a", arrived=0))
    policy.admit(ticket(2, group="b", arrived=1))
    policy.admit(ticket(3, group="b", arrived=1))
    assert ids(policy.plan(4)) == [2, 3]
    assert ids(policy.plan(5)) == [1]


def test_of_several_full_groups_the_one_with_the_oldest_request_goes_first() -> None:
    policy = Policy(limits(max_batch=2, max_wait=9))
    for number, group in enumerate("abba"):
        policy.admit(ticket(number, group=group, arrived=number))
    assert ids(policy.plan(4)) == [0, 3]


def test_requests_of_several_rows_fill_a_run_without_overflowing_it() -> None:
    policy = Policy(limits(max_batch=4))
    for number, rows in enumerate([3, 2, 1]):
        policy.admit(ticket(number, rows=rows))
    assert ids(policy.plan(0)) == [0]
    policy.start(policy.plan(0))
    assert ids(policy.plan(0)) == [1, 2]


def test_a_request_larger_than_max_batch_runs_alone_and_at_once() -> None:
    policy = Policy(limits(max_batch=4, max_wait=5))
    policy.admit(ticket(1, rows=9))
    policy.admit(ticket(2))
    assert ids(policy.plan(0)) == [1]


def test_a_full_line_refuses_by_rows_and_by_bytes() -> None:
    policy = Policy(limits(capacity=3, size=10))
    assert policy.admit(ticket(1, rows=2, size=4)) is None
    assert policy.admit(ticket(2, rows=2, size=1)) is Refusal.ROWS
    assert policy.admit(ticket(3, rows=1, size=7)) is Refusal.BYTES
    assert policy.admit(ticket(4, rows=1, size=6)) is None
    assert (policy.rows, policy.bytes) == (3, 10)


def test_an_expired_request_never_runs() -> None:
    policy = Policy(limits(max_wait=10))
    policy.admit(ticket(1, deadline=5))
    policy.admit(ticket(2, deadline=7))
    assert policy.expire(4.9) == []
    assert [t.id for t in policy.expire(5)] == [1]
    assert [t.id for t in policy.expire(8)] == [2]
    assert policy.plan(100) == Plan()


def test_a_cancelled_request_leaves_its_room_to_others() -> None:
    policy = Policy(limits(capacity=1))
    policy.admit(ticket(1))
    assert policy.cancel(1) is not None
    assert policy.cancel(1) is None
    assert policy.admit(ticket(2)) is None
    assert ids(policy.plan(0)) == [2]


def test_new_limits_rule_the_next_plan() -> None:
    policy = Policy(limits(max_batch=4, max_wait=10))
    for number in range(3):
        policy.admit(ticket(number))
    assert policy.plan(1) == Plan(wake=10)
    policy.limits = limits(max_batch=2, max_wait=10)
    assert ids(policy.plan(1)) == [0, 1]
    policy.limits = limits(max_batch=4, max_wait=0)
    assert ids(policy.plan(1)) == [0, 1, 2]


def test_a_request_that_shares_with_nobody_does_not_wait() -> None:
    policy = Policy(limits(max_wait=5))
    policy.admit(ticket(1, group=None))
    policy.admit(ticket(2, group=None))
    assert ids(policy.plan(0)) == [1]
    policy.start(policy.plan(0))
    assert ids(policy.plan(0)) == [2]


def test_with_a_largest_batch_of_one_nothing_waits() -> None:
    policy = Policy(limits(max_batch=1, max_wait=5))
    policy.admit(ticket(1))
    assert ids(policy.plan(0)) == [1]


def test_nothing_is_waited_for_when_company_saves_nothing() -> None:
    policy = Policy(limits(max_batch=8, max_wait=5), cost=lambda rows, _: 3.0 * rows)
    policy.admit(ticket(1))
    policy.admit(ticket(2))
    assert ids(policy.plan(0)) == [1], "nor do those share a run who would only wait for each other's end"


def test_company_is_waited_for_until_more_of_it_would_not_be_noticed() -> None:
    policy = Policy(limits(max_batch=16, max_wait=5), cost=affine)
    for number in range(12):
        policy.admit(ticket(number))
        assert policy.plan(0) == Plan(wake=5)
    policy.admit(ticket(12))
    assert len(policy.plan(0).tickets) == 13, "each costs 1 + 5/13; at best, 1 + 5/16, it would be 5 % less"


def test_what_may_not_share_a_run_is_not_waited_for() -> None:
    """A latency target makes runs of more than two rows as good as forbidden."""
    policy = Policy(limits(max_batch=8, max_wait=5), cost=lambda rows, _: 5.0 + (rows if rows <= 2 else 1000 * rows))
    policy.admit(ticket(1))
    assert policy.plan(0) == Plan(wake=5)
    policy.admit(ticket(2))
    assert ids(policy.plan(0)) == [1, 2]
    policy.admit(ticket(3))
    assert ids(policy.plan(0)) == [1, 2]


def test_when_the_one_that_wanted_company_leaves_those_behind_it_need_not_wait() -> None:
    policy = Policy(limits(max_batch=8, max_wait=5), cost=affine)
    policy.admit(ticket(1, sizes=(1,)))
    policy.admit(ticket(2, sizes=(500,)))
    assert policy.plan(0) == Plan(wake=5)
    policy.cancel(1)
    assert ids(policy.plan(0)) == [2]


def test_a_cost_that_becomes_known_ends_a_wait_that_cannot_help() -> None:
    policy = Policy(limits(max_batch=8, max_wait=5))
    policy.admit(ticket(1))
    assert policy.plan(0) == Plan(wake=5)
    policy.cost = lambda rows, _: 3.0 * rows
    assert ids(policy.plan(0)) == [1]
    policy.cost = None
    assert policy.plan(0) == Plan(wake=5)


def test_nobody_waits_for_company_longer_than_half_of_the_time_to_the_deadline() -> None:
    policy = Policy(limits(max_wait=10))
    policy.admit(ticket(1, arrived=0))
    policy.admit(ticket(2, arrived=1, deadline=5, group="b"))
    policy.admit(ticket(3, arrived=1, group="b"))
    assert policy.plan(2) == Plan(wake=3)
    assert ids(policy.plan(3)) == [2, 3]
    policy.start(policy.plan(3))
    assert policy.plan(3) == Plan(wake=10)


def test_a_level_of_priority_is_worth_a_fixed_time_in_line() -> None:
    policy = Policy(limits(max_batch=1))
    policy.admit(ticket(1, arrived=0, priority=Priority.LOW))
    policy.admit(ticket(2, arrived=0, priority=Priority.NORMAL))
    policy.admit(ticket(3, arrived=0.9 * LEVEL_SECONDS, priority=Priority.HIGH))
    policy.admit(ticket(4, arrived=1.1 * LEVEL_SECONDS, priority=Priority.HIGH))
    served = []
    while len(policy):
        served += ids(policy.plan(1))
        policy.start(policy.plan(1))
    assert served == [3, 2, 4, 1]


def test_a_flood_of_preferred_requests_delays_a_low_one_by_two_levels_and_no_more() -> None:
    policy, now, number = Policy(limits(max_batch=1)), 0.0, 1
    policy.admit(ticket(0, priority=Priority.LOW))
    while True:  # one arrives every 10 ms, and each takes 10 ms: the line never empties
        policy.admit(ticket(number, arrived=now, priority=Priority.HIGH))
        plan = policy.plan(now)
        policy.start(plan)
        if ids(plan) == [0]:
            break
        now, number = now + 0.01, number + 1
    assert now == pytest.approx(2 * LEVEL_SECONDS, abs=0.02)


def test_a_due_request_gets_the_device_to_work_even_if_another_goes_first() -> None:
    policy = Policy(limits(max_wait=0.1))
    policy.admit(ticket(1, arrived=0, priority=Priority.LOW))
    policy.admit(ticket(2, arrived=0.05, priority=Priority.HIGH, group="b"))
    assert policy.plan(0.06) == Plan(wake=0.1)
    assert ids(policy.plan(0.1)) == [2]


@dataclass
class History:
    """A random day: arrivals, cancellations, knob changes and runs, with what came of each request."""

    policy: Policy
    now: float = 0
    free_at: float = 0
    admitted: dict[int, Ticket] = field(default_factory=dict)
    refused: set[int] = field(default_factory=set)
    fates: list[tuple[str, int]] = field(default_factory=list)
    passed: Counter[int] = field(default_factory=Counter)
    before: dict[int, int] = field(default_factory=dict)

    def arrive(self, group: str, rows: int, patience: float, size: int, priority: Priority) -> None:
        new = ticket(
            len(self.admitted) + len(self.refused),
            group=group if group != "alone" else None,
            rows=rows,
            size=rows,
            arrived=self.now,
            deadline=self.now + patience,
            sizes=(size,) if self.policy.cost else (),
            priority=priority,
        )
        if self.policy.admit(new) is None:
            self.admitted[new.id] = new
        else:
            self.refused.add(new.id)

    def cancel(self, choice: int) -> None:
        if line := self.policy.waiting():
            victim = line[choice % len(line)]
            assert self.policy.cancel(victim.id) is victim
            self.fates.append(("cancelled", victim.id))

    def work(self) -> None:
        """A device, if one is free: expire, plan, check the rule, start."""
        if self.now < self.free_at:
            return
        self.fates += [("expired", t.id) for t in self.policy.expire(self.now)]
        line = self.policy.waiting()
        plan = self.policy.plan(self.now)
        assert self.policy.plan(self.now) == plan, "planning changes nothing"
        if plan.tickets:
            self._check_run(line, plan.tickets)
            self.policy.start(plan)
            self.fates += [("ran", t.id) for t in plan.tickets]
            self.free_at = self.now + 3 + len(plan.tickets)
        elif line:
            wait = self.policy.limits.max_wait
            due = min(min(t.arrived + wait, (t.arrived + t.deadline) / 2) for t in line)
            assert plan.wake == due > self.now, "work that is due is done"
        else:
            assert plan.wake is None

    def _check_run(self, line: list[Ticket], run: tuple[Ticket, ...]) -> None:
        bounds = self.policy.limits
        assert len({t.group for t in run}) == 1
        assert run[0].group is not None or len(run) == 1
        assert len(set(run)) == len(run)
        assert sum(t.rows for t in run) <= bounds.max_batch or len(run) == 1
        ordered = sorted(line, key=place)
        for at, left in enumerate(ordered):
            if left in run or self.now < left.arrived + bounds.max_wait:
                continue
            assert any(place(t) < place(left) for t in run), "none goes before a due request that is first in line"
            self.passed[left.id] += 1
            self.before.setdefault(left.id, at)
            if left.priority is Priority.HIGH:  # nobody that comes later can be before it
                assert self.passed[left.id] <= self.before[left.id]
        if self.policy.cost is None and len({t.priority for t in line}) == 1:
            following = [t for t in line if t.group == run[0].group]
            if run[0].group is not None:
                assert list(run) == following[: len(run)], "the order of arrival holds"
                rest = following[len(run) :]
                assert not rest or sum(t.rows for t in run) + rest[0].rows > bounds.max_batch, "no room is left empty"


def place(of: Ticket) -> tuple[float, int]:
    return of.order, of.id


ARRIVE = st.tuples(
    st.just("arrive"),
    st.sampled_from(["a", "b", "alone"]),
    st.integers(1, 6),
    st.sampled_from([2.0, 20.0, FOREVER]),
    st.integers(1, 9),
    st.sampled_from(Priority),
)
STEP = st.one_of(
    ARRIVE,
    ARRIVE,
    st.tuples(st.just("cancel"), st.integers(0, 50)),
    st.tuples(st.just("wait"), st.sampled_from([0.1, 0.5, 1, 3, 9])),
    st.tuples(st.just("knobs"), st.integers(1, 6), st.sampled_from([0, 2, 7]), st.integers(1, 20)),
)
COSTS = st.sampled_from([None, affine, lambda rows, sizes: 1.0 * rows * sizes[0], lambda rows, sizes: 9.0 + sizes[0]])


@settings(max_examples=400, deadline=None)
@given(st.lists(STEP, max_size=60), st.integers(1, 6), st.sampled_from([0, 2, 7]), COSTS)
def test_over_any_history_no_request_is_lost_or_run_twice_and_none_is_overtaken_beyond_the_bound(
    steps: list[tuple[object, ...]], max_batch: int, max_wait: float, cost: Cost | None
) -> None:
    history = History(Policy(limits(max_batch, max_wait, capacity=20), cost))
    for kind, *arguments in steps:
        if kind == "wait":
            history.now += arguments[0]  # type: ignore[operator]
        elif kind == "knobs":
            history.policy.limits = limits(*arguments)  # type: ignore[arg-type]
            history.passed.clear()
            history.before.clear()
        else:
            getattr(history, str(kind))(*arguments)
        history.work()
        line = history.policy.waiting()
        assert (history.policy.rows, history.policy.bytes, len(history.policy)) == (
            sum(t.rows for t in line),
            sum(t.bytes for t in line),
            len(line),
        )
    for _ in range(200):
        history.now += 10
        history.work()
    assert Counter(number for _, number in history.fates) == Counter(history.admitted.keys())
    assert len(history.policy) == 0
