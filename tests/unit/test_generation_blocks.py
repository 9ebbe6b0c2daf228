"""Blocks of the cache: whose they are, and what can be found again."""

from array import array

import pytest
from headway_runtime.generation.blocks import BlockPool
from headway_runtime.generation.prefix import chain
from headway_runtime.generation.sequence import Request, Sequence
from headway_runtime.generation.values import Generate, Stream
from headway_runtime.prepare.decoder import BLOCK_TOKENS
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.unit.generation_desk import FOREVER


def key(number: int) -> bytes:
    return number.to_bytes(32, "big")


def test_block_0_belongs_to_nobody_and_every_other_one_can_be_taken() -> None:
    pool = BlockPool(4)
    assert sorted(pool.take() for _ in range(3)) == [1, 2, 3]
    assert (pool.available, pool.used, pool.total) == (0, 3, 3)


def test_what_was_released_can_be_found_until_its_room_is_needed() -> None:
    pool = BlockPool(4)
    first, second = pool.take(), pool.take()
    pool.seal(first, key(1))
    pool.seal(second, key(2))
    pool.release(second)
    pool.release(first)
    assert pool.available == 3
    assert (pool.find(key(1)), pool.find(key(2))) == (first, second)
    pool.take()  # the one that holds nothing
    assert pool.find(key(2)) == second
    assert pool.take() == second  # the one that was released first
    assert (pool.find(key(1)), pool.find(key(2))) == (first, None)


def test_a_block_that_was_found_is_kept_from_being_taken() -> None:
    pool = BlockPool(3)
    block = pool.take()
    pool.seal(block, key(1))
    pool.release(block)
    pool.share(block)
    pool.share(block)
    assert pool.uses(block) == 2
    assert pool.take() != block
    assert pool.available == 0
    pool.release(block)
    assert pool.available == 0
    pool.release(block)
    assert pool.available == 1


def test_equal_blocks_become_one() -> None:
    pool = BlockPool(4)
    first, second = pool.take(), pool.take()
    assert pool.seal(first, key(1)) == first
    assert pool.seal(second, key(1)) == first
    assert (pool.uses(first), pool.uses(second)) == (2, 0)
    assert pool.used == 1


def test_a_block_that_is_released_too_often_is_a_mistake() -> None:
    pool = BlockPool(3)
    block = pool.take()
    pool.release(block)
    with pytest.raises(AssertionError, match=f"block {block} was released more often"):
        pool.release(block)


TOKENS = st.lists(st.integers(0, 3), max_size=5 * BLOCK_TOKENS)


@given(first=TOKENS, second=TOKENS)
def test_keys_are_equal_as_far_as_all_tokens_are(first: list[int], second: list[int]) -> None:
    keys = [list(chain(b"", array("q", tokens), 0)) for tokens in (first, second)]
    assert [len(each) for each in keys] == [len(first) // BLOCK_TOKENS, len(second) // BLOCK_TOKENS]
    for number, (one, other) in enumerate(zip(*keys, strict=False), 1):
        same = first[: number * BLOCK_TOKENS] == second[: number * BLOCK_TOKENS]
        assert (one == other) == same


@given(tokens=TOKENS, first=st.integers(0, 4))
def test_keys_can_be_gone_on_with(tokens: list[int], first: int) -> None:
    ids = array("q", tokens)
    keys = list(chain(b"salt", ids, 0))
    known = min(first, len(keys))
    assert list(chain(keys[known - 1] if known else b"salt", ids, known)) == keys[known:]
    assert not set(keys) & set(chain(b"another", ids, 0))


def test_a_sequence_that_has_grown_has_the_keys_of_one_that_was_always_as_long() -> None:
    stream = Stream(FOREVER, FOREVER, lambda pieces: None, lambda outcome: None)

    def sequence(prompt: tuple[int, ...]) -> Sequence:
        return Sequence(1, Request(1, Generate(prompt, 10), stream, 0.0, b"salt"), 0, max_length=100)

    grown, whole = sequence(tuple(range(20))), sequence(tuple(range(60)))
    grown.key(0)
    grown.tokens.extend(range(20, 60))
    assert [grown.key(number) for number in range(3)] == [whole.key(number) for number in range(3)]


class Pool(RuleBasedStateMachine):
    """Against sets and counts: no block is lost, had twice, or found when it holds something else."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = BlockPool(6)
        self.uses: dict[int, int] = {}
        self.keys: dict[int, int] = {}  # what each block holds, by what sealed it

    @precondition(lambda self: self.pool.available)
    @rule()
    def take(self) -> None:
        block = self.pool.take()
        assert block not in self.uses
        assert 1 <= block <= 5
        self.uses[block] = 1
        self.keys.pop(block, None)

    @precondition(lambda self: self.uses)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        block = data.draw(st.sampled_from(sorted(self.uses)))
        self.pool.release(block)
        self.uses[block] -= 1
        if not self.uses[block]:
            del self.uses[block]

    @rule(number=st.integers(0, 3))
    def find(self, number: int) -> None:
        block = self.pool.find(key(number))
        if block is not None:
            assert self.keys[block] == number
            self.pool.share(block)
            self.uses[block] = self.uses.get(block, 0) + 1

    @precondition(lambda self: any(block not in self.keys for block in self.uses))
    @rule(data=st.data(), number=st.integers(0, 3))
    def seal(self, data: st.DataObject, number: int) -> None:
        fresh = sorted(block for block, uses in self.uses.items() if block not in self.keys and uses == 1)
        block = data.draw(st.sampled_from(fresh))
        known = self.pool.seal(block, key(number))
        if known == block:
            self.keys[block] = number
        else:
            assert self.keys[known] == number
            del self.uses[block]
            self.uses[known] = self.uses.get(known, 0) + 1

    @invariant()
    def counts(self) -> None:
        assert self.pool.available == self.pool.total - len(self.uses)
        assert all(self.pool.uses(block) == self.uses.get(block, 0) for block in range(6))
        for number in range(4):
            block = self.pool.find(key(number))
            assert block is None or self.keys[block] == number


TestPool = Pool.TestCase
