"""Native attention, at every level that this processor has, against the reference and against itself."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from headway_runtime.kernels import attention_cuda, reference
from headway_runtime.kernels.cache import PagedCache
from headway_runtime.kernels.checks import Metadata
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.kernel_levels import LEVELS, error, library, pieces_of, same_bits
from tests.unit.kernel_steps import Sequences, Shape

BOUND = 1e-4
"""Of a float32 answer; measured: below 1e-6 for ordinary numbers."""


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@st.composite
def shapes(draw: st.DrawFn) -> Shape:
    kv_heads, group = draw(st.integers(1, 4)), draw(st.sampled_from([1, 2, 3, 4, 9, 25]))
    tokens = st.sampled_from([0, 1, 2, 15, 16, 17, 63, 64, 65, 130, 255, 256, 257, 530])
    sequences = draw(st.integers(1, 4))
    past = tuple(draw(tokens) for _ in range(sequences))
    new = tuple(draw(st.sampled_from([0, 1, 1, 1, 2, 5, 13, 40])) for _ in range(sequences))
    return Shape(
        heads=kv_heads * group,
        kv_heads=kv_heads,
        head_dim=draw(st.sampled_from([8, 16, 24, 40, 64, 80, 96, 128, 256])),
        past=past,
        new=new if any(new) else (1, *new[1:]),
        scale=draw(st.sampled_from([0.05, 0.125, 1.0])),
        window=draw(st.sampled_from([0, 0, 1, 7, 16, 64, 100, 256, 1000])),
        softcap=draw(st.sampled_from([0.0, 0.0, 1.0, 50.0])),
    )


def cache_of(shape: Shape, level: int | None, dtype: torch.dtype = torch.float32, threads: int = 1) -> PagedCache:
    """None: the reference."""
    cache = PagedCache(shape.geometry, blocks=shape.blocks, dtype=dtype)
    cache.use(None if level is None else library(level, threads))
    return cache


@settings(max_examples=60, deadline=None)
@given(shape=shapes(), dtype=st.sampled_from([torch.float32, torch.bfloat16]), seed=st.integers(0, 2**32))
@pytest.mark.parametrize("level", LEVELS)
def test_every_level_answers_like_the_reference(level: int, shape: Shape, dtype: torch.dtype, seed: int) -> None:
    sequences = Sequences(shape, seed=seed)
    native, plain = cache_of(shape, level, dtype), cache_of(shape, None, dtype)
    assert error(sequences.run(native), sequences.run(plain)) < BOUND
    for ours, theirs in zip(native._pools[0], plain._pools[0], strict=True):
        assert torch.equal(ours, theirs)


@settings(max_examples=30, deadline=None)
@given(shape=shapes(), size=st.sampled_from([1, 3, 16, 50]), threads=st.sampled_from([1, 2, 5]))
@pytest.mark.parametrize("level", LEVELS)
def test_an_answer_has_the_same_bits_whatever_is_beside_it(level: int, shape: Shape, size: int, threads: int) -> None:
    sequences = Sequences(shape)
    together = sequences.run(cache_of(shape, level))
    alone = cache_of(shape, level, threads=threads)
    if any(shape.past):
        sequences.attend(alone, sequences.past())
    spans = [(length - new, length) for length, new in zip(shape.lengths, shape.new, strict=True)]
    answers = [sequences.attend(alone, sequences.step(pieces)) for pieces in pieces_of(spans, size)]
    assert same_bits(torch.cat(answers), together)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("past", [300, 3000])
def test_one_long_sequence_is_shared_among_threads_without_a_change(level: int, past: int) -> None:
    shape = Shape(heads=8, kv_heads=1, head_dim=256, past=(past,), new=(1,), scale=0.06)
    sequences = Sequences(shape)
    alone, shared = (sequences.run(cache_of(shape, level, threads=threads)) for threads in (1, 2))
    assert same_bits(alone, shared)
    assert error(alone, sequences.expected()) < BOUND


@pytest.mark.parametrize("level", LEVELS)
def test_queries_keys_and_values_are_read_where_they_are(level: int) -> None:
    shape = Shape(heads=4, kv_heads=2, head_dim=16, past=(3, 20), new=(2, 5))
    sequences = Sequences(shape)
    expected = sequences.run(cache_of(shape, level))
    q, k, v, *rest = sequences.now()
    joined = torch.cat([q.flatten(1), k.flatten(1), v.flatten(1)], 1)  # one projection for all three
    parts = [part.unflatten(1, (-1, 16)) for part in joined.split([64, 32, 32], 1)]
    across = [tensor.transpose(0, 1).contiguous().transpose(0, 1) for tensor in (q, k, v)]
    every_other = [torch.stack([tensor, tensor], -1)[..., 0] for tensor in (q, k, v)]
    for laid_out in (parts, across, every_other):
        assert not any(tensor.is_contiguous() for tensor in laid_out)
        cache = cache_of(shape, level)
        sequences.attend(cache, sequences.past())
        assert same_bits(sequences.attend(cache, [*laid_out, *rest]), expected)
    negated = [torch._neg_view(-tensor) for tensor in (q, k, v)]  # memory that holds the negatives
    cache = cache_of(shape, level)
    sequences.attend(cache, sequences.past())
    assert same_bits(sequences.attend(cache, [*negated, *rest]), expected)


@pytest.mark.parametrize("level", LEVELS)
def test_large_scores_neither_overflow_nor_vanish(level: int) -> None:
    sequences = Sequences(Shape(past=(70,), new=(3,), scale=30.0), spread=5.0)
    assert error(sequences.run(cache_of(sequences.shape, level)), sequences.expected()) < BOUND


@pytest.mark.parametrize("level", LEVELS)
def test_what_is_not_a_number_stays_within_its_sequence(level: int) -> None:
    shape = Shape(past=(5, 30), new=(2, 2))
    sequences = Sequences(shape)
    expected = sequences.run(cache_of(shape, level))
    sequences.k[0][2, 0, 3] = float("nan")
    cache = cache_of(shape, level)
    for pool in cache._pools[0]:
        pool[0] = float("nan")  # nobody's block
    answer = sequences.run(cache)
    assert answer[:2, :2].isnan().all()
    assert not answer[:2, 2:].isnan().any()
    assert same_bits(answer[2:], expected[2:])


@pytest.mark.parametrize("level", LEVELS)
def test_a_value_after_the_end_of_a_sequence_is_not_seen(level: int) -> None:
    shape = Shape(past=(3,), new=(1,))
    sequences = Sequences(shape)
    cache = cache_of(shape, level)
    expected = sequences.run(cache_of(shape, level))
    for pool in cache._pools[0]:
        pool.fill_(float("nan"))
    assert same_bits(sequences.run(cache), expected)


def test_a_program_in_bfloat16_gets_bfloat16() -> None:
    sequences = Sequences(Shape())
    q, k, v, *rest = sequences.now()
    cache = cache_of(sequences.shape, 0)
    answer = sequences.attend(cache, [q.bfloat16(), k.bfloat16(), v.bfloat16(), *rest])
    assert answer.dtype == torch.bfloat16


def test_a_head_that_the_kernels_have_no_room_for_is_the_references() -> None:
    for dim in (12, 520):
        sequences = Sequences(Shape(heads=2, kv_heads=1, head_dim=dim, past=(3,), new=(2,)))
        assert error(sequences.run(cache_of(sequences.shape, 0)), sequences.expected()) < BOUND


@settings(max_examples=60, deadline=None)
@given(shape=shapes())
def test_the_path_for_gpus_answers_like_the_reference(shape: Shape) -> None:
    sequences = Sequences(replace(shape, head_dim=16))
    cache = cache_of(sequences.shape, None)
    expected = sequences.run(cache)
    q, _, _, *metadata = sequences.now()
    for pool in cache._pools[0]:
        pool[0] = float("nan")
    named = {"scale": shape.scale, "window": shape.window, "softcap": shape.softcap}
    answer = attention_cuda.attend(q, *cache._pools[0], Metadata(*metadata), **named)
    assert error(answer, expected) < BOUND
    assert same_bits(reference.attend(q, *cache._pools[0], Metadata(*metadata), **named), expected)
