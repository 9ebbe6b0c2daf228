"""Tables in fewer bits: as near as the bits allow, and as small as they say."""

import pytest
import torch
from headway_api.types import Precision
from headway_runtime.kernels import rows


@pytest.mark.parametrize("shape", [(5000, 128), (33, 80), (3, 7)])
def test_rows_in_8_bits_are_within_half_a_step(shape: tuple[int, int]) -> None:
    table = torch.randn(shape) * torch.rand(shape[0], 1)
    table[0] = 0
    kept = rows.keep(table, Precision.INT8)
    assert kept is not None
    indices = torch.randint(0, shape[0], (2, 9))
    indices[0, 0] = 0
    found = kept(indices)
    assert found.shape == (2, 9, shape[1])
    group = rows.GROUP if shape[1] % rows.GROUP == 0 else shape[1]
    parts = table[indices].unflatten(-1, (-1, group))
    step = parts.abs().amax(-1, keepdim=True) / 127
    assert bool(((found.unflatten(-1, (-1, group)) - parts).abs() <= 0.51 * step).all())
    assert kept.bytes == table.numel() + 4 * table.numel() // group


def test_a_number_that_stands_out_costs_its_own_group_alone() -> None:
    table = torch.full((1, 128), 0.01)
    table[0, 0] = 100
    kept = rows.keep(table, Precision.INT8)
    assert kept is not None
    torch.testing.assert_close(kept(torch.tensor([0]))[0, 64:], table[0, 64:])


def test_rows_in_16_bits_are_rounded_once() -> None:
    table = torch.randn(50, 64)
    kept = rows.keep(table, Precision.BFLOAT16)
    assert kept is not None
    assert kept.bytes == table.numel() * 2
    assert torch.equal(kept(torch.tensor([7, 3])), table[[7, 3]].bfloat16().float())


def test_what_would_be_no_smaller_is_not_kept_twice() -> None:
    assert rows.keep(torch.zeros(4, 64), Precision.EXPORTED) is None
    assert rows.keep(torch.zeros(4, 64, dtype=torch.bfloat16), Precision.BFLOAT16) is None


def test_the_type_of_the_table_is_that_of_its_rows() -> None:
    kept = rows.keep(torch.randn(4, 64).bfloat16(), Precision.INT8)
    assert kept is not None
    assert kept(torch.tensor([1])).dtype == torch.bfloat16


@pytest.mark.parametrize("precision", [Precision.INT8, Precision.BFLOAT16])
@pytest.mark.parametrize("index", [4, -1])
def test_a_row_that_is_not_there_raises(index: int, precision: Precision) -> None:
    kept = rows.keep(torch.zeros(4, 64), precision)
    assert kept is not None
    with pytest.raises((IndexError, RuntimeError)):
        kept(torch.tensor([index]))


def test_numbers_that_are_not_finite_cannot_become_bytes() -> None:
    with pytest.raises(RuntimeError, match="not finite"):
        rows.keep(torch.full((2, 64), torch.inf), Precision.INT8)
