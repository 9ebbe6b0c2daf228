"""A decoder for tests of the batcher, which can be computed by hand: what it answers depends on every key it can see.

Each slot of its cache holds a number that stands for a token's keys and values: it depends on the token, its position,
and the number in the slot before it, as the block table has it. A wrong table, a slot that was not overwritten, a block
that was shared wrongly or found by mistake change the next token with near certainty.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from headway_runtime.generation.values import Tokens
from headway_runtime.prepare.decoder import BLOCK_TOKENS, DecoderFacts, DecoderGeometry, LayerGeometry
from headway_runtime.program.decoder import StepInputs
from tokenizers import Tokenizer, decoders, models

VOCABULARY = 61
CONTEXT = 4096
_MASK = (1 << 61) - 1
GARBAGE = 987654321  # what a slot holds that nobody has written


def mixed(token: int, position: int, before: int) -> int:
    return (before * 6364136223846793005 + token * 1442695040888963407 + position * 2654435761 + 97) & _MASK


def logits_of(numbers: Sequence[int]) -> np.ndarray:
    """Logits after these tokens; of any two of them, one is clearly the larger."""
    total = sum(number * (position + 1) for position, number in enumerate(numbers)) & _MASK
    ranks = (np.arange(VOCABULARY, dtype=object) * (2 * (total % 997) + 1) + total // 997) % 4093
    return np.array(ranks, np.float32) / 512


def expected(prompt: Sequence[int], count: int, stop: frozenset[int] = frozenset()) -> Tokens:
    """What the fake decoder continues a prompt with, greedily, when nothing goes wrong."""
    numbers: list[int] = []
    tokens = list(prompt)
    answer: list[int] = []
    while len(answer) < count:
        while len(numbers) < len(tokens):
            numbers.append(mixed(tokens[len(numbers)], len(numbers), numbers[-1] if numbers else 0))
        answer.append(int(logits_of(numbers).argmax()))
        tokens.append(answer[-1])
        if answer[-1] in stop:
            break
    return tuple(answer)


@dataclass
class FakeCache:
    blocks: int
    bytes: int = 0
    numbers: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.numbers = [GARBAGE] * (self.blocks * BLOCK_TOKENS)
        self.bytes = self.blocks * BLOCK_TOKENS * 64


class FakeDecoder:
    """`fails`: called with each step's inputs; what it raises, the step raises. `odd`: shifts the logits of a row."""

    def __init__(self, blocks: int = 64) -> None:
        self.cache = FakeCache(blocks)
        self.geometry = DecoderGeometry((LayerGeometry(0, 2, 1, 8, 0),), VOCABULARY)
        self.facts = DecoderFacts(context=CONTEXT, end=(0,))
        self.fails: Callable[[StepInputs], None] = lambda inputs: None
        self.odd: Callable[[Sequence[int], np.ndarray], np.ndarray] = lambda numbers, logits: logits
        self.rows: list[int] = []  # of each step
        self.logit_rows: list[int] = []
        self.copies = 0

    def copy(self, pairs: Sequence[tuple[int, int]]) -> None:
        before = list(self.cache.numbers)
        for source, target in pairs:
            self.copies += 1
            span = slice(target * BLOCK_TOKENS, (target + 1) * BLOCK_TOKENS)
            self.cache.numbers[span] = before[source * BLOCK_TOKENS : (source + 1) * BLOCK_TOKENS]

    def step(self, inputs: StepInputs) -> torch.Tensor:
        ids, positions, slots, tables, lengths, query, wanted = (tensor.tolist() for tensor in inputs)
        self._check(ids, positions, slots, tables, lengths, query)
        self.fails(inputs)
        self.rows.append(len(ids))
        self.logit_rows.append(len(wanted))
        rows: dict[int, np.ndarray] = {}
        needed = set(wanted)
        written: dict[int, int] = {}
        for owner, table in enumerate(tables):
            for row in range(query[owner], query[owner + 1]):
                at = positions[row]
                before = self.cache.numbers[_slot(table, at - 1)] if at else 0
                number = mixed(ids[row], at, before)
                assert written.setdefault(slots[row], number) == number, "two rows write into one slot"
                self.cache.numbers[slots[row]] = number
                if row in needed:
                    seen = [self.cache.numbers[_slot(table, position)] for position in range(at + 1)]
                    rows[row] = self.odd(seen, logits_of(seen))
        return torch.from_numpy(np.stack([rows[row] for row in wanted]))

    def _check(self, ids, positions, slots, tables, lengths, query) -> None:  # type: ignore[no-untyped-def]
        """What the real kernel checks, and what the contract says."""
        assert len(ids) == len(positions) == len(slots) == query[-1]
        for owner, (table, length) in enumerate(zip(tables, lengths, strict=True)):
            used = -(-length // BLOCK_TOKENS)
            assert all(0 < block < self.cache.blocks for block in table[:used])
            assert not any(table[used:])
            first, last = query[owner], query[owner + 1]
            assert positions[first:last] == list(range(length - (last - first), length))
            assert slots[first:last] == [_slot(table, position) for position in positions[first:last]]


def _slot(table: Sequence[int], position: int) -> int:
    return table[position // BLOCK_TOKENS] * BLOCK_TOKENS + position % BLOCK_TOKENS


def tokenizer() -> Tokenizer:
    """Token n is one letter or two; nothing stands between tokens."""
    words = {word_of(token): token for token in range(VOCABULARY)}
    made = Tokenizer(models.WordLevel(words, unk_token=word_of(0)))
    made.decoder = decoders.Fuse()
    return made


def word_of(token: int) -> str:
    letters = "abcdefghijklmnopqrstuvwxyz"
    return letters[token] if token < 26 else letters[token // 26].upper() + letters[token % 26]


def text_of(tokens: Sequence[int]) -> str:
    return "".join(word_of(token) for token in tokens)
