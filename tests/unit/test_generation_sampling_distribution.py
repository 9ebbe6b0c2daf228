"""What is drawn has the distribution that the filters leave, with the seed's numbers and nothing else's."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from headway_runtime.generation.sampling import Ask, Sampler
from headway_runtime.generation.sampling.randomness import exponentials, key
from headway_runtime.generation.values import Sampling
from transformers import MinPLogitsWarper, TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

from tests.unit.sampling_models import asked

DRAWS = 6000


def expected(logits: torch.Tensor, sampling: Sampling) -> np.ndarray:
    """Probabilities [V] by transformers' own filters, in vLLM's order."""
    scores = logits[None].double()
    scores = TemperatureLogitsWarper(float(sampling.temperature))(None, scores)
    if sampling.min_p:
        scores = MinPLogitsWarper(sampling.min_p)(None, scores)
    if sampling.top_k:
        scores = TopKLogitsWarper(sampling.top_k)(None, scores)
    if sampling.top_p < 1:
        scores = TopPLogitsWarper(sampling.top_p)(None, scores)
    return torch.softmax(scores[0], -1).numpy()


def counted(logits: torch.Tensor, sampling: Sampling, draws: int = DRAWS) -> np.ndarray:
    """How often each token came first, over answers 0, 1, 2... of one seed."""
    sampler = Sampler(logits.numel())
    asks = [Ask(sampler.open(asked(sampling), index), 0) for index in range(draws)]
    return np.bincount([each.tokens[0] for each in sampler.sample(logits[None], asks)], minlength=logits.numel())


def improbable(times: np.ndarray, probabilities: np.ndarray) -> float:
    """How many standard deviations Pearson's chi-square is above its mean; tokens that are rare count together."""
    wanted = probabilities * times.sum()
    rare = wanted < 5
    observed = np.append(times[~rare], times[rare].sum())
    mean = np.append(wanted[~rare], wanted[rare].sum())
    observed, mean = observed[mean > 0], mean[mean > 0]
    freedom = observed.size - 1
    square = ((observed - mean) ** 2 / mean).sum()
    return (square - freedom) / math.sqrt(2 * freedom)


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(),
        Sampling(temperature=0.6),
        Sampling(temperature=1.7),
        Sampling(top_k=5),
        Sampling(top_p=0.8),
        Sampling(min_p=0.01),
        Sampling(top_k=100, min_p=0.02),
        Sampling(temperature=1.3, top_k=9, top_p=0.9, min_p=0.02),
        Sampling(temperature=0.8, top_p=0.95),
    ],
    ids=str,
)
def test_tokens_are_drawn_as_transformers_filters_leave_them(sampling: Sampling) -> None:
    logits = torch.from_numpy(np.random.default_rng(3).standard_normal(200).astype(np.float32)) * 3
    wanted = expected(logits, sampling)
    times = counted(logits, replace(sampling, seed=11))

    assert not times[wanted == 0].any()
    assert improbable(times, wanted) < 4


def test_the_many_unlikely_tokens_get_their_share() -> None:
    logits = torch.zeros(20_000)
    logits[7] = 13.5  # about as much as all of the others
    wanted = torch.softmax(logits.double(), -1).numpy()
    times = counted(logits, Sampling(seed=5))

    assert improbable(np.array([times[7], times.sum() - times[7]]), np.array([wanted[7], 1 - wanted[7]])) < 4
    others = np.delete(times, 7)[:19_000].reshape(19, 1000).sum(1)
    assert improbable(others, np.full(19, 1 / 19)) < 4


def test_a_row_that_is_flat_is_drawn_evenly() -> None:
    times = counted(torch.zeros(20_480), Sampling(seed=6), draws=4000)  # more than race

    assert improbable(times.reshape(64, -1).sum(1), np.full(64, 1 / 64)) < 4


def test_the_numbers_of_a_draw_are_exponential_and_of_no_place_alike() -> None:
    keys = [key(seed, index, position) for seed in range(10) for index in range(10) for position in range(100)]
    numbers = np.array([exponentials(each, np.arange(100)) for each in keys])
    uniforms = 1 - np.exp(-numbers)

    assert len(set(keys)) == len(keys)
    assert improbable(np.bincount((uniforms * 1000).astype(int).ravel(), minlength=1000), np.full(1000, 1e-3)) < 4
    for near in (uniforms[1:, 0] - uniforms[:-1, 0], uniforms[:, 1] - uniforms[:, 0]):
        assert abs(near.std() - math.sqrt(1 / 6)) < 0.01  # of two that know nothing of each other


def test_what_has_no_weight_is_never_drawn() -> None:
    logits = torch.full((40_000,), -math.inf)
    logits[5::7] = 0  # fewer than race one by one
    logits[20_000:] = 0  # and more
    for several in (logits[:20_000], logits):
        times = counted(several, Sampling(seed=9), draws=300)
        assert not times[several.numpy() == -math.inf].any()


def test_a_candidates_number_does_not_depend_on_the_other_candidates() -> None:
    some, all_of_them = np.array([5, 900, 70_000]), np.arange(100_000)
    assert (exponentials(key(1, 0, 9), all_of_them)[some] == exponentials(key(1, 0, 9), some)).all()
