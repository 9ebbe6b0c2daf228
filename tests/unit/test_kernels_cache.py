"""The paged cache with the reference: what is attended to, what is copied, and everything that is refused."""

from collections.abc import Callable

import pytest
import torch
from headway_runtime.kernels.cache import PagedCache
from headway_runtime.prepare.decoder import DecoderGeometry, LayerGeometry

from tests.unit.kernel_steps import Sequences, Shape

SHAPES = {
    "grouped heads": Shape(),
    "one key head": Shape(heads=4, kv_heads=1, head_dim=64),
    "no groups": Shape(heads=3, kv_heads=3, head_dim=8),
    "a window": Shape(window=6),
    "a window of one": Shape(window=1),
    "a softcap": Shape(softcap=2.0),
    "window and softcap": Shape(window=17, softcap=5.0),
    "blocks that are just full": Shape(past=(15, 16, 0), new=(1, 16, 32)),
    "a sequence with nothing new": Shape(past=(5, 9), new=(0, 2)),
    "an odd width": Shape(head_dim=12),
}


def cache_of(shape: Shape, dtype: torch.dtype = torch.float32) -> PagedCache:
    return PagedCache(shape.geometry, blocks=shape.blocks, dtype=dtype, device=torch.device("cpu"))


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
def test_attention_is_what_it_is_said_to_be(shape: Shape) -> None:
    sequences = Sequences(shape)
    answer = sequences.run(cache_of(shape))
    assert answer.dtype == torch.float32
    assert answer.is_contiguous()
    torch.testing.assert_close(answer.double(), sequences.expected(), rtol=1e-4, atol=1e-5)


def test_a_cache_of_bfloat16_rounds_keys_and_values_only() -> None:
    sequences = Sequences(Shape())
    for tensors in (sequences.k, sequences.v):
        tensors[:] = [tensor.bfloat16().float() for tensor in tensors]
    answer = sequences.run(cache_of(sequences.shape, torch.bfloat16))
    torch.testing.assert_close(answer.double(), sequences.expected(), rtol=1e-4, atol=1e-5)


def test_tokens_without_a_slot_are_not_written() -> None:
    sequences = Sequences(Shape(past=(5,), new=(2,)))
    cache = cache_of(sequences.shape)
    expected = sequences.run(cache)
    q, k, v, *metadata, slots = sequences.now()
    again = sequences.attend(cache, [q, k * 100, v * 100, *metadata, torch.full_like(slots, -1)])
    assert torch.equal(again, expected)


def test_prompts_may_come_in_pieces() -> None:
    sequences = Sequences(Shape(past=(0,), new=(37,)))
    whole = sequences.run(cache_of(sequences.shape))
    cache = cache_of(sequences.shape)
    pieces = [sequences.attend(cache, sequences.step([(0, a, b)])) for a, b in ((0, 10), (10, 16), (16, 36), (36, 37))]
    torch.testing.assert_close(torch.cat(pieces), whole)


def test_copied_blocks_are_as_they_were_before_any_was_copied() -> None:
    geometry = DecoderGeometry(tuple(LayerGeometry(n, 2, 1, 8, 0) for n in (0, 3)), vocabulary=8)
    cache = PagedCache(geometry, blocks=4, dtype=torch.float32, device=torch.device("cpu"))
    for layer in (0, 3):
        for block in (1, 2, 3):
            mark = torch.full((1, 1, 8), float(10 * layer + block))
            cache.attend(mark.expand(1, 2, 8), mark, mark, *_places(block), layer, 1.0, 0, 0.0)
    cache.copy([(1, 2), (2, 3)])
    query = torch.ones(1, 2, 8)
    for layer in (0, 3):
        for block, source in ((1, 1), (2, 1), (3, 2)):
            *tables, slots = _places(block)
            answer = cache.attend(
                query, query[:, :1], query[:, :1], *tables, torch.full_like(slots, -1), layer, 1.0, 0, 0.0
            )
            assert answer.unique().tolist() == [10 * layer + source]
    with pytest.raises(RuntimeError, match="a block beyond 4"):
        cache.copy([(1, 4)])


def _places(block: int) -> list[torch.Tensor]:
    one, starts = torch.tensor([1], dtype=torch.int32), torch.tensor([0, 1], dtype=torch.int32)
    return [torch.tensor([[block]], dtype=torch.int32), one, starts, torch.tensor([16 * block])]


def test_bytes_are_those_of_the_geometry() -> None:
    geometry = DecoderGeometry((LayerGeometry(0, 4, 2, 64, 0), LayerGeometry(1, 4, 1, 256, 512)), vocabulary=8)
    for dtype, size in ((torch.float32, 4), (torch.bfloat16, 2)):
        cache = PagedCache(geometry, blocks=7, dtype=dtype, device=torch.device("cpu"))
        assert cache.bytes == 7 * 16 * geometry.bytes_per_token(size)


Change = Callable[[list[torch.Tensor]], object]
Q, K, V, TABLES, LENGTHS, STARTS, SLOTS = range(7)


def put(argument: int, at: int | tuple[int, int], value: int) -> Change:
    return lambda step: step[argument].__setitem__(at, value)


def become(argument: int, change: Callable[[torch.Tensor], torch.Tensor]) -> Change:
    return lambda step: step.__setitem__(argument, change(step[argument]))


REFUSED: dict[str, tuple[Change, str]] = {
    "a slot beyond the cache": (put(SLOTS, 0, 16 * Shape().blocks), "a slot beyond"),
    "a huge slot": (put(SLOTS, 3, 2**62), "a slot beyond"),
    "a slot below -1": (put(SLOTS, 0, -2), "a slot beyond"),
    "a block beyond the cache": (put(TABLES, (2, 1), Shape().blocks), "a block beyond"),
    "a negative block": (put(TABLES, (0, 0), -1), "a block beyond"),
    "a length beyond the table": (put(LENGTHS, 2, 16 * 4 + 1), "longer than its block table"),
    "a negative length": (put(LENGTHS, 0, -5), "shorter than what is added"),
    "a length that lacks the new tokens": (put(LENGTHS, 1, 2), "shorter than what is added"),
    "starts that go back": (put(STARTS, 1, 5), "goes back"),
    "starts beyond the tokens": (put(STARTS, 3, 12), "does not go from 0"),
    "starts short of the tokens": (put(STARTS, 3, 10), "does not go from 0"),
    "starts that begin late": (put(STARTS, 0, 1), "does not go from 0"),
    "fewer slots than tokens": (become(SLOTS, lambda t: t[:-1]), "q is"),
    "fewer keys": (become(K, lambda t: t[:-1]), "k is"),
    "keys of other heads": (become(K, lambda t: t[:, :1]), "k is"),
    "values of another width": (become(V, lambda t: t[..., :8]), "v is"),
    "queries of other heads": (become(Q, lambda t: t.repeat(1, 2, 1)), "q is"),
    "flat queries": (become(Q, lambda t: t.flatten(1)), "q is"),
    "integer queries": (become(Q, lambda t: t.int()), "q is torch.int32"),
    "mixed types": (become(V, lambda t: t.double()), "v torch.float64"),
    "tables of 64 bits": (become(TABLES, lambda t: t.long()), "block_tables is torch.int64"),
    "lengths of 64 bits": (become(LENGTHS, lambda t: t.long()), "seq_lens is torch.int64"),
    "starts of 64 bits": (become(STARTS, lambda t: t.long()), "query_start_loc is torch.int64"),
    "slots of 32 bits": (become(SLOTS, lambda t: t.int()), "slot_mapping is torch.int32"),
    "a flat table": (become(TABLES, lambda t: t[0]), "block_tables has 1 axes"),
    "fewer lengths": (become(LENGTHS, lambda t: t[:-1]), "seq_lens is"),
    "fewer starts": (become(STARTS, lambda t: t[:-1]), "query_start_loc is"),
    "another device": (become(Q, lambda t: t.to("meta")), "not all arguments are on cpu"),
}


@pytest.mark.parametrize(("change", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_what_would_reach_outside_is_refused_and_nothing_is_written(change: Change, message: str) -> None:
    sequences = Sequences(Shape())
    cache = cache_of(sequences.shape)
    sequences.attend(cache, sequences.past())
    step = sequences.now()
    change(step)
    with pytest.raises(RuntimeError, match=message):
        sequences.attend(cache, step)
    untouched = cache_of(sequences.shape)
    sequences.attend(untouched, sequences.past())
    nothing = [*sequences.now()[:6], torch.full_like(sequences.now()[SLOTS], -1)]
    assert torch.equal(sequences.attend(cache, nothing), sequences.attend(untouched, nothing))


@pytest.mark.parametrize(
    "numbers",
    [(1, 1.0, 0, 0.0), (0, float("nan"), 0, 0.0), (0, 1.0, -1, 0.0), (0, 1.0, 0, -1.0), (0, 1.0, 0, float("inf"))],
)
def test_numbers_that_mean_nothing_are_refused(numbers: tuple[int, float, int, float]) -> None:
    sequences = Sequences(Shape())
    with pytest.raises(RuntimeError, match="paged attention"):
        cache_of(sequences.shape).attend(*sequences.now(), *numbers)


def test_a_geometry_whose_heads_do_not_divide_is_refused() -> None:
    geometry = DecoderGeometry((LayerGeometry(0, 3, 2, 8, 0),), vocabulary=8)
    with pytest.raises(RuntimeError, match="layer 0"):
        PagedCache(geometry, blocks=2, dtype=torch.float32, device=torch.device("cpu"))
