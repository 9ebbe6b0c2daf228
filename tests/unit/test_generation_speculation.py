"""What is proposed, and how much."""

from array import array

import pytest
from headway_runtime.generation.sequence import Request, Sequence
from headway_runtime.generation.speculation import REST, PromptLookup, grant, learn
from headway_runtime.generation.values import Generate, Stream
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.generation_desk import FOREVER


def lookup(*tokens: int) -> PromptLookup:
    made = PromptLookup()
    made.extend(array("q", tokens))
    return made


def sequence() -> Sequence:
    stream = Stream(FOREVER, FOREVER, lambda pieces: None, lambda outcome: None)
    return Sequence(1, Request(1, Generate((1,), 10), stream, 0.0), 0, max_length=100)


def test_what_followed_the_same_words_is_proposed() -> None:
    assert lookup(5, 1, 2, 3, 4, 9, 1, 2, 3).propose(3) == (4, 9, 1)
    assert lookup(5, 1, 2, 3, 4, 9, 1, 2, 3).propose(1) == (4,)
    assert lookup(1, 2, 3, 4, 5).propose(4) == ()
    assert lookup(1).propose(4) == ()


def test_the_longest_match_counts_and_of_equals_the_latest() -> None:
    assert lookup(1, 2, 3, 4, 7, 9, 3, 4, 8, 1, 2, 3, 4).propose(1) == (7,)
    assert lookup(3, 4, 7, 3, 4, 8, 3, 4).propose(1) == (8,)


def test_what_repeats_itself_is_supposed_to_go_on() -> None:
    assert lookup(1, 2, 1, 2, 1, 2).propose(5) == (1, 2, 1, 2, 1)


@given(st.lists(st.integers(0, 2), max_size=40), st.integers(0, 40))
def test_it_does_not_matter_in_what_parts_the_tokens_come(tokens: list[int], middle: int) -> None:
    parts = PromptLookup()
    parts.extend(array("q", tokens[:middle]))
    parts.extend(array("q", tokens))
    found = parts.propose(3)
    assert found == lookup(*tokens).propose(3) == _searched(tokens, 3)


def _searched(tokens: list[int], most: int) -> tuple[int, ...]:
    """The same by looking through everything."""
    for length in (4, 3, 2):
        for begin in range(len(tokens) - length - 1, -1, -1):
            if len(tokens) >= length and tokens[begin : begin + length] == tokens[-length:]:
                followed = tokens[begin + length :]
                return tuple((followed * most)[:most])
    return ()


def test_who_is_always_right_proposes_as_much_as_is_allowed() -> None:
    made = sequence()
    for _ in range(20):
        learn(made, grant(made, 8), grant(made, 8))
    assert grant(made, 8) == 8


def test_who_is_always_wrong_proposes_one_now_and_then() -> None:
    made = sequence()
    for _ in range(30):
        learn(made, grant(made, 8), 0)
    granted = []
    for _ in range(3 * (REST + 1)):
        granted.append(grant(made, 8))
        learn(made, granted[-1], 0)
    assert sum(granted) == 3
    assert max(granted) == 1


@pytest.mark.parametrize(("chance", "drafts"), [(0.9, 11), (0.8, 5), (0.6, 2), (0.4, 1), (0.2, 0)])
def test_as_many_are_proposed_as_are_worth_a_row(chance: float, drafts: int) -> None:
    made = sequence()
    made.acceptance = chance
    assert grant(made, 16) == drafts
    assert chance**drafts >= 0.3 or not drafts
    assert chance ** (drafts + 1) < 0.3
