"""What prompts have in common is computed once, as long as there is room to keep it."""

from dataclasses import replace

import pytest
from headway_runtime.generation import holdings

from tests.unit.generation_desk import Client, Desk, ask, prompt, rows
from tests.unit.generation_fakes import expected


def test_a_common_beginning_is_computed_once() -> None:
    desk = Desk()
    shared = prompt(100)
    first = desk.submit(ask((*shared, 1, 2), 5))
    desk.run()
    second = desk.submit(ask((*shared, 3, 4), 5))
    assert rows(desk.step()) == {2: 6}  # 96 of 102 are found
    desk.run()
    assert (first.usage.cached, second.usage.cached) == (0, 96)
    assert second.tokens() == expected((*shared, 3, 4), 5)


def test_a_common_beginning_is_computed_once_even_when_all_come_at_once() -> None:
    desk = Desk(step_tokens=64)
    shared = prompt(150)
    clients = [desk.submit(ask((*shared, number), 2)) for number in range(1, 9)]
    desk.run()
    assert sum(record.tokens for record in desk.records) <= 151 + 7 * 7 + 8
    for number, client in enumerate(clients, 1):
        assert client.tokens() == expected((*shared, number), 2)
    assert [record.cached for record in desk.records if record.cached] == [7 * 144]


def test_a_short_prompt_does_not_wait_for_a_long_one_that_shares_less_than_it_has() -> None:
    desk = Desk(blocks=100, max_length=1000, step_tokens=64)
    desk.submit(ask((*prompt(32), *prompt(600, 1)), 2))
    short = desk.submit(ask((*prompt(32), 5), 2))
    desk.run()
    assert short.at[0] == 2  # in the second step: after the blocks that both have


def test_without_the_prefix_cache_requests_share_nothing_and_find_nothing() -> None:
    desk = Desk(prefix_cache=False)
    for _ in range(2):
        client = desk.submit(ask(prompt(100), 2))
        desk.run()
        assert client.usage.cached == 0
    desk.scheduler.settings = replace(desk.scheduler.settings, prefix_cache=True)
    for cached in (0, 96):
        client = desk.submit(ask(prompt(100), 2))
        desk.run()
        assert client.usage.cached == cached


def test_what_is_found_longest_ago_makes_room_first_and_ends_before_beginnings() -> None:
    desk = Desk(blocks=13, max_length=100)
    for seed in range(3):
        desk.submit(ask(prompt(49, seed), 1))  # three full blocks and one that is not
        desk.run()
    desk.submit(ask(prompt(50, 9), 14))  # takes the three that hold nothing, and the one that was released first
    desk.run()
    assert [_found(desk, seed) for seed in range(3)] == [2, 3, 3]


@pytest.mark.parametrize("drafts", [0, 4])
def test_keys_of_refused_drafts_are_never_found(drafts: int) -> None:
    """Repetitive prompts make prompt lookup propose much, most of which is refused."""
    desk = Desk(drafts=drafts)
    words = (1, 2, 3, 4) * 12
    first = desk.submit(ask(words, 300))
    desk.run()
    again = desk.submit(ask((*words, *first.tokens()[:280]), 20))
    desk.run()
    assert first.tokens() == expected(words, 300)
    assert again.tokens() == first.tokens()[280:]
    assert again.usage.cached >= 304
    assert (first.usage.drafted > first.usage.accepted) == bool(drafts)


def _found(desk: Desk, seed: int) -> int:
    """Blocks of the prompt that need not be computed."""
    client = Client()
    desk.offer(ask(prompt(49, seed), 1), client)
    request = client.request
    assert request is not None
    found = len(holdings.found(desk.scheduler.pool, request.sequences[0]))
    desk.scheduler.drop(request)
    return found
