"""Who is preferred goes first, and what others give way to: slots, blocks, each once."""

from typing import Any

import pytest
from headway_runtime.batching.tickets import LEVEL_SECONDS, Priority
from headway_runtime.generation import admission

from tests.unit.generation_desk import Desk, ask, prompt, rows, running
from tests.unit.generation_fakes import expected


def test_a_priority_goes_before_those_that_came_a_little_earlier_only() -> None:
    desk = Desk(max_sequences=1)
    desk.submit(ask(prompt(5, 0), 3))
    desk.step(0)
    early = desk.submit(ask(prompt(5, 1), 1), priority=Priority.LOW)
    desk.now = 1.9 * LEVEL_SECONDS
    preferred = desk.submit(ask(prompt(5, 2), 1), priority=Priority.HIGH)
    desk.now = 2.1 * LEVEL_SECONDS
    late = desk.submit(ask(prompt(5, 3), 1), priority=Priority.HIGH)
    desk.run()
    assert preferred.at < early.at < late.at


def test_a_flow_of_preferred_requests_keeps_nobody_from_ending() -> None:
    desk = Desk(blocks=13, max_length=150, max_sequences=4)
    desk.submit(ask(prompt(20, 1), 40), priority=Priority.HIGH)
    low = desk.submit(ask(prompt(40, 2), 80), priority=Priority.LOW)
    steps = 0
    while not low.ended:
        if steps % 3 == 0:
            desk.submit(ask(prompt(20, 10 + steps), 30), priority=Priority.HIGH)
        desk.step(LEVEL_SECONDS / 2)
        steps += 1
        assert steps < 150
    assert sum(record.preempted for record in desk.records) > 0
    assert low.tokens() == expected(prompt(40, 2), 80)


def test_a_preferred_request_takes_the_slot_of_the_last_that_is_less_so() -> None:
    desk = Desk(max_sequences=3)
    low = [desk.submit(ask(prompt(5, seed), 30), priority=Priority.LOW) for seed in range(2)]
    normal = desk.submit(ask(prompt(5, 2), 30))
    desk.step(10)
    high = desk.submit(ask(prompt(5, 3), 4), priority=Priority.HIGH)
    assert rows(desk.step()) == {1: 1, 3: 1, 4: 5}
    desk.run()
    assert high.at[0] == 11
    assert [client.at[-1] for client in (low[0], normal)] == [39, 39]
    assert low[1].at[-1] == 39 + 4  # it came back when the preferred one had ended
    for seed, client in enumerate((*low, normal)):
        assert client.tokens() == expected(prompt(5, seed), 30)


def test_a_preferred_request_takes_blocks_from_no_more_than_it_must() -> None:
    desk = Desk(blocks=33, max_length=500, max_sequences=16)
    others = [desk.submit(ask(prompt(100, seed), 10), priority=Priority(seed % 2)) for seed in range(4)]
    for _ in range(4):
        desk.step(10)
    assert all(map(running, others))
    high = desk.submit(ask(prompt(60, 9), 4), priority=Priority.HIGH)
    desk.step()
    assert running(high)
    assert [running(client) for client in others] == [True, True, False, True]
    desk.run()
    for seed, client in enumerate(others):
        assert client.tokens() == expected(prompt(100, seed), 10)


def test_a_step_is_planned_in_a_few_looks_at_the_line_however_many_could_displace(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each look takes as long as the line, and the event loop waits at the engine's lock meanwhile."""
    looks = 0
    look = admission.beginners

    def counted(*arguments: Any, **named: Any) -> admission.Beginners:
        nonlocal looks
        looks += 1
        return look(*arguments, **named)

    desk = Desk(blocks=2000, max_sequences=32, step_tokens=64)
    for number in range(32):
        desk.submit(ask((number + 1,), 200), priority=Priority.LOW)
    desk.step()
    clients = [desk.submit(ask(prompt(100, number), 2), priority=Priority.HIGH) for number in range(200)]
    monkeypatch.setattr(admission, "beginners", counted)
    most = 0
    while not all(client.ended for client in clients):
        looks = 0
        desk.step()
        most = max(most, looks)
    assert most <= 20
    assert any(record.preempted for record in desk.records), "some do displace others"


def test_one_waits_for_those_only_that_it_cannot_displace() -> None:
    desk = Desk(max_sequences=2)
    for priority in (Priority.LOW, Priority.LOW, Priority.LOW, Priority.NORMAL):
        desk.submit(ask(prompt(5, priority), 30), priority=priority)
    desk.step(10)
    assert [desk.scheduler.before(priority) for priority in Priority] == [4, 1, 0]
    desk.submit(ask(prompt(6), 30), priority=Priority.HIGH)
    desk.step()
    assert [desk.scheduler.before(priority) for priority in Priority] == [5, 2, 1]
    gave_way = [sequence for sequence in desk.scheduler.line if sequence.gave_way]
    assert [sequence.request.priority for sequence in gave_way] == [Priority.LOW]


def test_nobody_gives_way_where_that_would_not_be_enough_or_to_an_equal() -> None:
    desk = Desk(blocks=33, max_length=500, max_sequences=16)
    equal = desk.submit(ask(prompt(300, 1), 40), priority=Priority.HIGH)
    low = desk.submit(ask(prompt(100, 2), 40), priority=Priority.LOW)
    desk.step(10)
    desk.submit(ask(prompt(250, 3), 4), priority=Priority.HIGH)
    desk.step()
    assert running(equal)
    assert running(low)
    assert not desk.records[-1].preempted


def test_growth_takes_blocks_from_the_less_preferred_whoever_came_first() -> None:
    desk = Desk(blocks=9, max_length=100)
    low = desk.submit(ask(prompt(40, 1), 40), priority=Priority.LOW)
    desk.step(10)
    high = desk.submit(ask(prompt(20, 2), 70), priority=Priority.HIGH)
    desk.run()
    assert high.at[-1] == 10 + 70
    assert low.at[-1] > high.at[-1]
    assert low.tokens() == expected(prompt(40, 1), 40)


def test_nobody_gives_way_to_one_that_waits_for_anothers_blocks() -> None:
    desk = Desk(max_sequences=2, step_tokens=32, blocks=100)
    shared = prompt(200, 7)
    low = desk.submit(ask(prompt(5, 1), 30), priority=Priority.LOW)
    desk.submit(ask((*shared, 1), 2), priority=Priority.HIGH)
    desk.step(0)
    high = desk.submit(ask((*shared, 2), 2), priority=Priority.HIGH)
    while not running(high):
        assert running(low)
        desk.step(0)
    assert not running(low)
    desk.run()
    assert high.usage.cached == 192


def test_who_gave_way_once_runs_to_its_end() -> None:
    """However many preferred ones come, it waits for one of them, and no more."""
    desk = Desk(max_sequences=1)
    low = desk.submit(ask(prompt(5, 1), 40), priority=Priority.LOW)
    for number in range(30):
        desk.step(LEVEL_SECONDS)
        desk.submit(ask(prompt(6, 10 + number), 5), priority=Priority.HIGH)
    while not low.ended:
        desk.step(LEVEL_SECONDS)
    assert sum(record.preempted for record in desk.records) == 1
    assert low.at[-1] - low.at[0] == (39 + 5) * LEVEL_SECONDS
    assert low.tokens() == expected(prompt(5, 1), 40)
