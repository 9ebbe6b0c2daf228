"""Prompts and lengths, drawn once from a seed and the same for every server. Pure."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tests.decoders import prompts

Encode = Callable[[str], Sequence[int]]


@dataclass(frozen=True, slots=True)
class Question:
    """A prompt as tokens, and how many tokens are to be answered: end tokens are ignored. `due`: seconds after the
    beginning at which it is sent, where requests come by themselves.
    """

    prompt: tuple[int, ...]
    answer: int
    due: float = 0.0


@dataclass(frozen=True, slots=True)
class Lengths:
    """Uniform, both ends included, in tokens."""

    prompt: tuple[int, int] = (16, 256)
    answer: tuple[int, int] = (16, 128)


def corpus(encode: Encode) -> tuple[int, ...]:
    """A few thousand tokens of text of many kinds."""
    return tuple(token for text in prompts.PROMPTS for token in encode(text))


def drawn(text: Sequence[int], count: int, *, lengths: Lengths, seed: int, rate: float = 0.0) -> list[Question]:
    """`count` questions: pieces of `text` from anywhere. With a `rate` they come by a Poisson process of so many a
    second, else all at once.
    """
    chance, due, found = random.Random(seed), 0.0, []
    for _ in range(count):
        due += chance.expovariate(rate) if rate else 0.0
        length, answer = chance.randint(*lengths.prompt), chance.randint(*lengths.answer)
        at = chance.randrange(len(text) - length)
        found.append(Question(tuple(text[at : at + length]), answer, due))
    return found
