"""The batching policy: the textbook figures, the rule, and its invariants over random histories."""

from collections import Counter
from dataclasses import dataclass, field

import pytest
from headway_runtime.batching.policy import Limits, Plan, Policy, Refusal, Ticket
from hypothesis import given, settings
from hypothesis import strategies as st

ARRIVALS = [0, 1, 2, 4, 6, 7, 8, 10, 12, 13, 14, 16, 18, 19, 20, 22]
FOREVER = float("inf")


def ticket(
    number: int, *, group: object = "a", rows: int = 1, size: int = 1, arrived: float = 0, deadline: float = FOREVER
) -> Ticket:
    return Ticket(number, group, rows, size, arrived, deadline)  # type: ignore[arg-type]


def limits(max_batch: int = 4, max_wait: float = 0, capacity: int = 10_000, size: int = 10_000) -> Limits:
    return Limits(max_batch, max_wait, capacity, size)


def ids(plan: Plan) -> list[int]:
    return [t.id for t in plan.tickets]


def textbook(max_batch: int) -> tuple[float, float]:
    """Mean latency and time of the last answer (ms): one device, 5 ms for a run and 1 ms for each item in it."""
    policy, now, latencies, pending = Policy(limits(max_batch)), 0.0, [], list(enumerate(ARRIVALS))
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


def test_the_textbook_case_takes_15_31_ms_batched_and_40_25_ms_one_at_a_time() -> None:
    assert textbook(4)[0] == pytest.approx(15.3125)
    assert textbook(1) == (40.25, 96)


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


@dataclass
class History:
    """A random day: arrivals, cancellations, knob changes and runs, with what came of each request."""

    policy: Policy
    now: float = 0
    free_at: float = 0
    admitted: dict[int, Ticket] = field(default_factory=dict)
    refused: set[int] = field(default_factory=set)
    fates: list[tuple[str, int]] = field(default_factory=list)

    def arrive(self, group: str, rows: int, patience: float) -> None:
        new = ticket(
            len(self.admitted) + len(self.refused),
            group=group,
            rows=rows,
            size=rows,
            arrived=self.now,
            deadline=self.now + patience,
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
        """The device, if it is free: expire, plan, check the rule, start."""
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
            assert plan.wake == line[0].arrived + self.policy.limits.max_wait > self.now, "work that is due is done"
        else:
            assert plan.wake is None

    def _check_run(self, line: list[Ticket], run: tuple[Ticket, ...]) -> None:
        bounds = self.policy.limits
        assert len({t.group for t in run}) == 1
        assert sum(t.rows for t in run) <= bounds.max_batch or len(run) == 1
        assert list(run) == [t for t in line if t.group == run[0].group][: len(run)], "the order of arrival holds"
        for left in line:
            if left not in run and self.now >= left.arrived + bounds.max_wait:
                assert any(t.id < left.id for t in run), "after its wait nothing younger goes before a request"
        following = [t for t in line if t.group == run[0].group][len(run) :]
        if following:
            assert sum(t.rows for t in run) + following[0].rows > bounds.max_batch, "no room is left empty"


STEP = st.one_of(
    st.tuples(st.just("arrive"), st.sampled_from("abc"), st.integers(1, 6), st.sampled_from([2.0, 20.0, FOREVER])),
    st.tuples(st.just("cancel"), st.integers(0, 50)),
    st.tuples(st.just("wait"), st.sampled_from([0.5, 1, 3, 9])),
    st.tuples(st.just("knobs"), st.integers(1, 6), st.sampled_from([0, 2, 7]), st.integers(1, 20)),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(STEP, max_size=60), st.integers(1, 6), st.sampled_from([0, 2, 7]))
def test_over_any_history_no_request_is_lost_or_run_twice_and_none_is_overtaken_after_its_wait(
    steps: list[tuple[object, ...]], max_batch: int, max_wait: float
) -> None:
    history = History(Policy(limits(max_batch, max_wait, capacity=20)))
    for kind, *arguments in steps:
        if kind == "wait":
            history.now += arguments[0]  # type: ignore[operator]
        elif kind == "knobs":
            history.policy.limits = limits(*arguments)  # type: ignore[arg-type]
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
