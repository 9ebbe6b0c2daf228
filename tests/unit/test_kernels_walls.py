"""Nothing outside of cache and arguments is read or written: each lies between pages that kill whoever touches them."""

import ctypes
import faulthandler
import random

import pytest
import torch
from headway_runtime.kernels.checks import Metadata
from headway_runtime.kernels.library import Library

from tests.hostile.forked import fate
from tests.unit.kernel_levels import LEVELS, guarded, library
from tests.unit.kernel_steps import Sequences, Shape

SHAPES = [
    Shape(heads=1, kv_heads=1, head_dim=8, past=(0,), new=(1,)),
    Shape(heads=9, kv_heads=3, head_dim=64, past=(5, 0, 66), new=(1, 3, 7), window=9),
    Shape(heads=4, kv_heads=1, head_dim=256, past=(300, 15), new=(1, 1), softcap=3.0),
    Shape(heads=6, kv_heads=2, head_dim=40, past=(0, 63), new=(33, 1)),
]


class Step:
    """One call of the native operator, with walls around everything it gets."""

    def __init__(self, shape: Shape, *, at_end: bool, dtype: torch.dtype = torch.float32) -> None:
        torch.set_num_threads(1)
        sequences = Sequences(shape)
        self.shape = shape
        *tensors, tables, lengths, starts, slots = sequences.now()
        used = max(len(table) for table in sequences.tables)
        arguments = [*tensors, tables[:, :used].contiguous(), lengths, starts, slots]
        sizes = (shape.blocks, shape.kv_heads, shape.head_dim, 16)
        out = torch.empty(len(slots), shape.heads, shape.head_dim)
        everything = [*arguments, out, torch.ones(sizes, dtype=dtype), torch.ones(sizes, dtype=dtype)]
        walled = [guarded(tensor, at_end=at_end) for tensor in everything]
        self.q, self.k, self.v, *metadata, self.out, self.keys, self.values = walled
        self.metadata = Metadata(*metadata)

    def run(self, native: Library) -> None:
        shape = self.shape
        tensors = (self.q, self.k, self.v, self.out, self.keys, self.values, *self.metadata)
        strides = (*self.q.stride()[:2], *self.k.stride()[:2], *self.v.stride()[:2])
        counts = (len(self.q), *self.metadata.block_tables.shape, shape.blocks, shape.heads, shape.kv_heads)
        native.attend(
            pointers=tuple(tensor.data_ptr() for tensor in tensors),
            sizes=(*strides, *counts, shape.head_dim, shape.window, int(self.keys.dtype == torch.bfloat16)),
            scale=shape.scale,
            softcap=shape.softcap,
        )


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("at_end", [True, False])
@pytest.mark.parametrize("shape", SHAPES, ids=range(len(SHAPES)))
def test_attention_stays_within_what_it_is_given(shape: Shape, at_end: bool, level: int) -> None:
    for dtype in (torch.float32, torch.bfloat16):
        assert fate(lambda dtype=dtype: Step(shape, at_end=at_end, dtype=dtype).run(library(level))) == "returned"


@pytest.mark.parametrize("threads", [1, 2])
def test_no_metadata_leads_outside(threads: int) -> None:
    """Random numbers in tables, lengths, starts and slots: answered or refused, never fatal."""

    def play() -> None:
        dice = random.Random(7)
        native = Library(threads=threads)
        refused = 0
        for _ in range(400):
            step = Step(dice.choice(SHAPES), at_end=dice.random() < 0.5)
            for _ in range(dice.choice([1, 1, 2, 3])):
                tensor = dice.choice(step.metadata).view(-1)
                extremes = [-1, 0, 1, 15, 16, 17, 2**31 - 1, -(2**31), step.shape.blocks, 16 * step.shape.blocks]
                tensor[dice.randrange(len(tensor))] = dice.choice(extremes)
            try:
                step.run(native)
            except RuntimeError:
                refused += 1
        assert 100 < refused < 390

    assert fate(play) == "returned"


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("at_end", [True, False])
@pytest.mark.parametrize("kind", [0, 1, 2])
def test_a_product_stays_within_what_it_is_given(kind: int, at_end: bool, level: int) -> None:
    def multiply() -> None:
        torch.set_num_threads(1)
        native = library(level)
        for m, n, k in ((1, 1, 1), (1, 64, 64), (7, 65, 100), (13, 127, 63), (100, 3, 1030)):
            x, bias = (guarded(torch.randn(*shape), at_end=at_end) for shape in ((m, k), (n,)))
            packed = guarded(torch.zeros(native.linear_bytes(kind, n, k), dtype=torch.uint8), at_end=at_end)
            native.linear_pack(kind, guarded(torch.randn(n, k), at_end=at_end), packed)
            y = guarded(torch.empty(m, n), at_end=at_end)
            native.linear((x.data_ptr(), packed.data_ptr(), bias.data_ptr(), y.data_ptr(), 0), m, (n, k), kind)

    assert fate(multiply) == "returned"


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("at_end", [True, False])
@pytest.mark.parametrize("kind", [0, 1, 2])
def test_a_product_of_some_rows_stays_within_what_it_is_given_whatever_the_lengths(
    kind: int, at_end: bool, level: int
) -> None:
    """Lengths come from our engine, and are checked all the same: what is not refused is computed in bounds."""

    def multiply() -> None:
        torch.set_num_threads(1)
        native, draw, refused = library(level), random.Random(kind), 0
        for number in range(120):
            m, n, k = draw.choice(((6, 64, 64), (7, 65, 100), (12, 3, 1030), (200, 70, 33)))
            x, bias = (guarded(torch.randn(*shape), at_end=at_end) for shape in ((m, k), (n,)))
            packed = guarded(torch.zeros(native.linear_bytes(kind, n, k), dtype=torch.uint8), at_end=at_end)
            native.linear_pack(kind, torch.randn(n, k), packed)
            y = guarded(torch.full((m, n), 7.0), at_end=at_end)
            batch = draw.choice([1, 2, m, m // 2, m + 1, 5])
            most = m // batch + (draw.random() < 0.2)
            values = [draw.choice([0, 1, most, draw.randint(0, most)]) for _ in range(batch)]
            if draw.random() < 0.2:
                values[draw.randrange(batch)] = draw.choice([-1, m + 1, 1 << 40, -(1 << 62), (1 << 63) - 1])
            lengths = guarded(torch.tensor(values), at_end=at_end)
            at = (x.data_ptr(), packed.data_ptr(), bias.data_ptr(), y.data_ptr(), lengths.data_ptr())
            try:
                native.linear(at, m, (n, k), kind, batch)
            except RuntimeError:
                refused += 1
                assert bool((y == 7).all()), number
        assert 20 < refused < 100

    assert fate(multiply) == "returned"


def test_the_walls_kill() -> None:
    for at_end, place in ((True, 8), (False, -1)):
        address = guarded(torch.zeros(8), at_end=at_end).data_ptr() + 4 * place

        def read(address: int = address) -> None:
            faulthandler.disable()
            ctypes.string_at(address, 4)

        assert fate(read) == "SIGSEGV"
