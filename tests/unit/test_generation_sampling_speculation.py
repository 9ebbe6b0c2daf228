"""Speculation, company and repetition leave an answer as it is: token by token, for each way to sample."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest
import torch
from headway_runtime.generation.sampling import Ask, Sampler, State
from headway_runtime.generation.values import Sampling, Tokens

from tests.unit.sampling_models import Model, asked

VOCABULARY = 24
MODEL = Model(VOCABULARY)
PROMPT = (1, 2, 3)
WAYS = [
    Sampling(temperature=0),
    Sampling(seed=7),
    Sampling(seed=-3, temperature=1.4, top_p=0.9),
    Sampling(seed=2**70, top_k=6, min_p=0.01),
    Sampling(temperature=0, repetition_penalty=1.3),
    Sampling(seed=1, presence_penalty=0.4, frequency_penalty=0.3, logit_bias={4: 2.0}),
]
Drafts = Callable[[Tokens], Tokens]


def alone(sampling: Sampling, length: int = 40, index: int = 0) -> Tokens:
    """The answer without anything else."""
    sampler = Sampler(VOCABULARY)
    state = sampler.open(asked(sampling, prompt=PROMPT), index)
    tokens = PROMPT
    for _ in range(length):
        tokens += sampler.sample(MODEL.after(tokens)[None], [Ask(state, 0)])[0].tokens
    return tokens


def rows(tokens: Tokens, drafts: Tokens) -> list[torch.Tensor]:
    return [MODEL.after(tokens + drafts[:ahead]) for ahead in range(len(drafts) + 1)]


def speculated(sampling: Sampling, draft: Callable[[Sampler, State, Tokens], Tokens], length: int = 40) -> Tokens:
    """The same with drafts, and how many of them were accepted goes into the last element."""
    sampler = Sampler(VOCABULARY)
    state = sampler.open(asked(sampling, prompt=PROMPT), 0)
    tokens, accepted = PROMPT, 0
    while len(tokens) < len(PROMPT) + length:
        drafts = draft(sampler, state, tokens)
        [chosen] = sampler.sample(torch.stack(rows(tokens, drafts)), [Ask(state, 0, drafts)])
        assert chosen.tokens[: chosen.accepted] == drafts[: chosen.accepted]
        assert len(chosen.tokens) == chosen.accepted + 1
        accepted += chosen.accepted
        tokens += chosen.tokens
        assert state.position == len(tokens) - len(PROMPT)
    return (*tokens[: len(PROMPT) + length], accepted)


@pytest.mark.parametrize("sampling", WAYS, ids=str)
def test_drafts_leave_the_answer_as_it_is(sampling: Sampling) -> None:
    wanted = alone(sampling)
    generator = np.random.default_rng(0)

    def half_right(_: Sampler, state: State, tokens: Tokens) -> Tokens:
        right = wanted[len(tokens) : len(tokens) + int(generator.integers(0, 5))]
        return tuple(token if generator.random() < 0.7 else int(generator.integers(VOCABULARY)) for token in right)

    *tokens, accepted = speculated(sampling, half_right)
    assert tuple(tokens) == wanted
    assert accepted > 8


@pytest.mark.parametrize("sampling", WAYS, ids=str)
def test_a_draft_program_guesses_with_the_answers_own_numbers(sampling: Sampling) -> None:
    """One that thinks alike is right nearly always, also where the answer is drawn from a flat distribution."""
    near = MODEL.near(0.1)

    def guessed(sampler: Sampler, state: State, tokens: Tokens) -> Tokens:
        drafts: Tokens = ()
        for _ in range(4):
            drafts += tuple(sampler.guess(near.after(tokens + drafts)[None], [state], [drafts]))
        return drafts

    *tokens, accepted = speculated(sampling, guessed, 60)
    assert tuple(tokens) == alone(sampling, 60)
    assert accepted >= 60 * 0.65


@pytest.mark.parametrize("sampling", WAYS, ids=str)
def test_company_leaves_the_answer_as_it_is(sampling: Sampling) -> None:
    sampler = Sampler(VOCABULARY)
    others = [*WAYS, Sampling(), Sampling(temperature=2.0)]
    states = [sampler.open(asked(each, prompt=PROMPT), number) for number, each in enumerate(others)]
    mine = sampler.open(asked(sampling, prompt=PROMPT), 0)
    tokens, strangers = PROMPT, [PROMPT] * len(others)
    for turn in range(40):
        running = range(turn % len(others))  # some come and go
        logits = torch.stack([*(MODEL.after(strangers[other]) for other in running), MODEL.after(tokens)])
        *rest, chosen = sampler.sample(
            logits, [*(Ask(states[other], row) for row, other in enumerate(running)), Ask(mine, len(running))]
        )
        for other, each in zip(running, rest, strict=True):
            strangers[other] += each.tokens
        tokens += chosen.tokens
    assert tokens == alone(sampling)


def test_answers_of_one_seed_differ_by_their_index_and_others_by_their_seed() -> None:
    flat = Sampling(seed=1, temperature=2.0)
    answers = {alone(flat, index=index) for index in range(5)} | {alone(Sampling(seed=2, temperature=2.0))}
    assert len(answers) == 6
    assert alone(flat, index=3) == alone(flat, index=3)
    assert alone(Sampling(temperature=2.0)) != alone(Sampling(temperature=2.0))


def test_an_end_token_among_the_drafts_is_the_last() -> None:
    sampler = Sampler(4)
    state = sampler.open(asked(Sampling(temperature=0), stop_tokens=frozenset({2})), 0)
    logits = torch.eye(4)[[1, 2, 3, 3]]
    [chosen] = sampler.sample(logits, [Ask(state, 0, (1, 2, 3))])
    assert (chosen.tokens, chosen.accepted) == ((1, 2), 2)


def test_each_answer_looks_at_its_own_rows() -> None:
    sampler = Sampler(4)
    states: Sequence[State] = [sampler.open(asked(Sampling(temperature=0), logprobs=1), 0) for _ in range(3)]
    logits = torch.eye(4)[[1, 2, 3, 0, 1, 2]]
    chosen = sampler.sample(logits, [Ask(states[0], 4), Ask(states[1], 0, (1, 3, 3)), Ask(states[2], 5)])
    assert [(each.tokens, each.accepted) for each in chosen] == [((1,), 0), ((1, 2), 1), ((2,), 0)]
    assert [[told.token for told in each.logprobs] for each in chosen] == [[1], [1, 2], [2]]
