"""Rows of a table (the embedding of each token) in fewer bits, made whole when they are looked up.

In 8 bits a scale belongs to a group of numbers of a row, as in packed weights (`linear`).
"""

from typing import Protocol

import torch
from headway_api.types import Precision

GROUP = 64  # numbers with one scale; a row whose length it does not divide has one scale for all
_AT_A_TIME = 4096  # rows


class Rows(Protocol):
    """A table [V, K]. `bytes` of memory that it holds."""

    bytes: int

    def __call__(self, indices: torch.Tensor) -> torch.Tensor:
        """Whole numbers of any shape [..], each below V; [.., K] in the type of the table that was kept. Raises
        IndexError for others.
        """


def keep(table: torch.Tensor, precision: Precision) -> Rows | None:
    """The table in this precision; None where it would be as large as it is. Raises RuntimeError for numbers that are
    not finite, where they become bytes.
    """
    if precision is Precision.INT8:
        return _Bytes(table)
    if precision is Precision.BFLOAT16 and table.dtype is not torch.bfloat16:
        return _Narrow(table)
    return None


def bytes_of(numbers: int, width: int, precision: Precision) -> int:
    """What a table of `numbers` holds that becomes smaller, its rows being `width` long."""
    return numbers + 4 * numbers // _group(width) if precision is Precision.INT8 else 2 * numbers


class _Narrow:
    def __init__(self, table: torch.Tensor) -> None:
        self._type = table.dtype
        self._rows = table.to(torch.bfloat16)
        self.bytes = 2 * table.numel()

    def __call__(self, indices: torch.Tensor) -> torch.Tensor:
        return _selected(self._rows, indices).to(self._type)


class _Bytes:
    def __init__(self, table: torch.Tensor) -> None:
        rows, width = table.shape
        self._type = table.dtype
        self._group = _group(width)
        self._rows = torch.empty((rows, width), dtype=torch.int8, device=table.device)
        self._scales = torch.empty((rows, width // self._group), device=table.device)
        for first in range(0, rows, _AT_A_TIME):
            part = table[first : first + _AT_A_TIME].float().unflatten(1, (-1, self._group))
            if not bool(part.isfinite().all()):
                raise RuntimeError("a table with numbers that are not finite cannot be kept in 8 bits")
            scales = part.abs().amax(-1) / 127
            whole = (part / scales.clamp_min(1e-30)[..., None]).round_()
            self._rows[first : first + _AT_A_TIME] = whole.flatten(1).to(torch.int8)
            self._scales[first : first + _AT_A_TIME] = scales
        self.bytes = self._rows.numel() + 4 * self._scales.numel()

    def __call__(self, indices: torch.Tensor) -> torch.Tensor:
        whole = _selected(self._rows, indices).float().unflatten(-1, (-1, self._group))
        return (whole * _selected(self._scales, indices)[..., None]).flatten(-2).to(self._type)


def _group(width: int) -> int:
    return GROUP if width % GROUP == 0 else width


def _selected(rows: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
    return rows.index_select(0, indices.flatten()).view(*indices.shape, rows.shape[1])
