"""What is done to a row before a token is drawn, and what is told of it."""

import math

import numpy as np
import pytest
import torch
from headway_runtime.generation.sampling import Ask, Sampler, prompt_logprobs
from headway_runtime.generation.sampling.lanes import at_least, largest, padded
from headway_runtime.generation.values import Sampling
from transformers import RepetitionPenaltyLogitsProcessor

from tests.unit.sampling_models import asked, one

GREEDY = Sampling(temperature=0)


def greedy(**other: object) -> Sampling:
    return Sampling(temperature=0, **other)


def test_greedy_takes_the_likeliest_and_the_first_of_equals() -> None:
    sampler = Sampler(5)
    assert one(sampler, [0, 3, 1, 3, 2], sampler.open(asked(GREEDY), 0)).tokens == (1,)


def test_the_repetition_penalty_is_transformers() -> None:
    logits = torch.from_numpy(np.random.default_rng(0).standard_normal(100).astype(np.float32))
    history = (5, 17, 17, 3)
    wanted = RepetitionPenaltyLogitsProcessor(1.7)(torch.tensor([history]), logits[None].clone())[0]
    sampler = Sampler(100)
    for leader in range(100):  # a bias tells what each logit has become
        state = sampler.open(asked(greedy(repetition_penalty=1.7), prompt=history), 0)
        row = torch.full((100,), -50.0)
        row[leader] = logits[leader]
        rival = (leader + 1) % 100
        row[rival] = wanted[leader] * 1.0 - 1e-4 if rival not in history else -50.0
        if rival not in history:
            assert one(sampler, row, state).tokens == (leader,)
            row[rival] = wanted[leader] + 1e-4
            assert one(sampler, row, sampler.open(asked(greedy(repetition_penalty=1.7), prompt=history), 0)).tokens == (
                rival,
            )


def test_presence_counts_once_and_frequency_each_time_and_the_prompt_not_at_all() -> None:
    sampler = Sampler(4)
    state = sampler.open(asked(greedy(presence_penalty=1.0, frequency_penalty=0.5), prompt=(0, 0, 0)), 0)
    # token 0 leads by 2.6: after four of them, 1.0 + 0.5 * 4 are subtracted
    made = [one(sampler, [3.0, 0.4, -9, -9], state).tokens[0] for _ in range(6)]
    assert made == [0, 0, 0, 0, 1, 0]


def test_a_bias_is_added_before_anything_is_chosen() -> None:
    sampler = Sampler(4)
    assert one(sampler, [3, 2, 1, 0], sampler.open(asked(greedy(logit_bias={3: 3.5})), 0)).tokens == (3,)
    assert one(sampler, [3, 2, 1, 0], sampler.open(asked(greedy(logit_bias={0: -100})), 0)).tokens == (1,)


def test_a_bias_of_a_token_that_there_is_not_does_nothing() -> None:
    sampler = Sampler(4)
    state = sampler.open(asked(greedy(logit_bias={4: 100, 70: 100, -1: 100}), prompt=(99,)), 0)
    assert one(sampler, [3, 2, 1, 0], state).tokens == (0,)


def test_end_tokens_are_held_off_until_the_answer_is_long_enough() -> None:
    sampler = Sampler(4)
    for sampling in (GREEDY, Sampling(temperature=0.1, seed=1)):
        state = sampler.open(asked(sampling, stop_tokens=frozenset({0, 1}), min_tokens=2), 0)
        made = [one(sampler, [30, 20, 10, 0], state).tokens[0] for _ in range(3)]
        assert made == [2, 2, 0]


@pytest.mark.parametrize("vocabulary", [7, 64, 1000, 70_001])
def test_logprobs_are_those_of_the_logits_as_they_are(vocabulary: int) -> None:
    logits = torch.from_numpy(np.random.default_rng(0).standard_normal(vocabulary).astype(np.float32)) * 4
    wanted = torch.log_softmax(logits.double(), -1)
    sampler = Sampler(vocabulary)
    biased = Sampling(temperature=0.1, logit_bias={3: 100.0}, top_k=1, repetition_penalty=2.0, seed=0)
    state = sampler.open(asked(biased, logprobs=5), 0)

    told = one(sampler, logits, state).logprobs[0]

    assert told.token == 3
    assert told.logprob == pytest.approx(float(wanted[3]), abs=1e-5)
    values, ids = wanted.topk(5)
    assert [token for token, _ in told.top] == ids.tolist()
    assert [logprob for _, logprob in told.top] == pytest.approx(values.tolist(), abs=1e-5)


def test_only_the_chosen_ones_logprob_is_told_where_no_other_is_asked_for() -> None:
    sampler = Sampler(4)
    told = one(sampler, [0, 0, 0, 0], sampler.open(asked(GREEDY, logprobs=0), 0)).logprobs
    assert told[0].top == ()
    assert told[0].logprob == pytest.approx(math.log(1 / 4))
    assert one(sampler, [0, 0, 0, 0], sampler.open(asked(GREEDY), 0)).logprobs == ()


def test_a_prompts_logprobs_are_its_tokens_by_the_rows_before_them() -> None:
    logits = torch.randn(6, 300, generator=torch.Generator().manual_seed(0))
    tokens = [5, 299, 0, 17, 64, 5]
    wanted = torch.log_softmax(logits, -1)
    told = prompt_logprobs(logits, tokens, 2)
    assert [each.logprob for each in told] == pytest.approx(
        [float(wanted[row, token]) for row, token in enumerate(tokens)], abs=1e-5
    )
    assert [[token for token, _ in each.top] for each in told] == wanted.topk(2).indices.tolist()


@pytest.mark.parametrize("sampling", [GREEDY, Sampling(seed=1), Sampling(top_k=2, seed=1), Sampling(top_p=0.5, seed=1)])
def test_logits_that_are_not_finite_are_the_least_likely_and_told(sampling: Sampling) -> None:
    sampler = Sampler(4)
    for bad in (math.nan, math.inf):
        chosen = one(sampler, [bad, 50.0, 0, bad], sampler.open(asked(sampling, logprobs=4), 0))
        assert (chosen.tokens, chosen.finite) == ((1,), False)
        assert chosen.logprobs[0].top[-1][1] >= -9999
        nothing = one(sampler, [bad] * 4, sampler.open(asked(sampling), 0))
        assert (len(nothing.tokens), nothing.finite) == (1, False)
    ruled_out = one(sampler, [-math.inf, 0, -math.inf, -math.inf], sampler.open(asked(sampling), 0))
    assert (ruled_out.tokens, ruled_out.finite) == ((1,), True)


@pytest.mark.parametrize("size", [1, 63, 64, 65, 1000, 5000])
def test_the_largest_are_found_with_their_equals(size: int) -> None:
    generator = np.random.default_rng(size)
    for values in (generator.standard_normal(size), generator.integers(0, 9, size), np.zeros(size)):
        row = np.full(padded(size), -np.inf, np.float32)
        row[:size] = values
        for count in {1, min(2, size), size // 3 or 1, size}:
            least = np.sort(row[:size])[-count]
            assert largest(row, count).tolist() == np.flatnonzero(row >= least).tolist()
            assert at_least(row, least).tolist() == np.flatnonzero(row >= least).tolist()


def test_the_logits_are_not_changed() -> None:
    logits = torch.randn(1, 100, generator=torch.Generator().manual_seed(0))
    before = logits.clone()
    sampler = Sampler(100)
    sampling = Sampling(seed=1, logit_bias={1: 5.0}, presence_penalty=1.0)
    sampler.sample(logits, [Ask(sampler.open(asked(sampling, logprobs=3), 0), 0)])
    assert torch.equal(logits, before)
