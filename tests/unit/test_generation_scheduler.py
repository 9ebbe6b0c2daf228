"""What the next step runs: the rule, and its bounds over random histories."""

import random

from headway_runtime.generation.values import FinishReason

from tests.unit.generation_desk import Desk, ask
from tests.unit.generation_fakes import expected, text_of


def prompt(length: int, seed: int = 0) -> tuple[int, ...]:
    return tuple(random.Random(seed * 1000 + length).choices(range(1, 61), k=length))


def test_a_lone_request_is_answered_as_the_decoder_continues_it() -> None:
    desk = Desk()
    client = desk.submit(ask(prompt(5), 20))
    desk.run()
    assert client.tokens() == expected(prompt(5), 20)
    assert client.text() == text_of(expected(prompt(5), 20))
    assert client.finish() is FinishReason.LENGTH
    assert (client.usage.prompt, client.usage.completion) == (5, 20)
