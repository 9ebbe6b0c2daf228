"""Where the rows are: which axis of each input and output is the batch axis, and how requests are joined and parted
along it.

Only requests that agree in everything else share a run: equal sizes outside the batch axis, and equal bytes in the
inputs that have no batch axis at all (`group_key`).
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import torch

from headway_runtime.prepare.sizes.expression import Expr
from headway_runtime.program import Program, TensorSpec

Tensors = tuple[torch.Tensor, ...]


@dataclass(frozen=True, slots=True)
class Layout:
    """`batch` is the batch dimension; None when requests run one at a time, and `reason` then says why.

    An axis is None where there are no rows. `fewest` is the smallest batch the program takes: fewer rows are filled up
    with copies of the last one.
    """

    batch: str | None
    reason: str | None
    inputs: tuple[int | None, ...]
    outputs: tuple[int | None, ...]
    fewest: int = 1

    @classmethod
    def of(cls, program: Program) -> "Layout":
        """The layout of a program. A program that cannot be batched has no batch axis anywhere."""
        batch, reason = program.batch, program.not_batchable
        symbol = None if batch is None else program.dimensions[batch].symbol
        odd = next((spec.name for spec in program.inputs if symbol is not None and not _plain(spec, symbol)), None)
        if batch is None or symbol is None or odd is not None:
            reason = reason or f"a size of input {odd} is computed from the batch size"
            return cls(None, reason, (None,) * len(program.inputs), (None,) * len(program.outputs))
        return cls(
            batch,
            None,
            tuple(_axis(spec, symbol) for spec in program.inputs),
            tuple(_axis(spec, symbol) for spec in program.outputs),
            max(1, program.dimensions[batch].min),
        )

    def rows(self, sizes: Mapping[str, int]) -> int:
        """Rows of a request: 1 when the program is not batched."""
        return 1 if self.batch is None else sizes[self.batch]

    def group_key(self, sizes: Mapping[str, int], inputs: Sequence[torch.Tensor]) -> Hashable:
        """Requests with equal keys may share a run. None: this program's requests never share one."""
        if self.batch is None:
            return None
        others = tuple(size for name, size in sizes.items() if name != self.batch)
        shared = tuple(t.numpy().tobytes() for t, axis in zip(inputs, self.inputs, strict=True) if axis is None)
        return others, shared

    def join(self, requests: Sequence[Sequence[torch.Tensor]], rows: int) -> list[torch.Tensor]:
        """One list of inputs with all the rows, in order; `rows` is their sum."""
        fill = max(0, self.fewest - rows) if self.batch is not None else 0
        if len(requests) == 1 and not fill:
            return list(requests[0])
        joined: list[torch.Tensor] = []
        for parts, axis in zip(zip(*requests, strict=True), self.inputs, strict=True):
            if axis is None:
                joined.append(parts[0])
                continue
            last = parts[-1].narrow(axis, parts[-1].shape[axis] - 1, 1)
            joined.append(torch.cat([*parts, *[last] * fill], dim=axis))
        return joined

    def part(self, outputs: Sequence[torch.Tensor], rows: Sequence[int]) -> list[Tensors]:
        """Give every request its rows back. Raises ValueError when the program returned another number of rows."""
        if self.batch is None:
            return [tuple(outputs)]
        total = max(sum(rows), self.fewest)
        for index, (tensor, axis) in enumerate(zip(outputs, self.outputs, strict=True)):
            if axis is not None and tensor.shape[axis] != total:
                raise ValueError(
                    f"output {index} has {tensor.shape[axis]} rows on axis {axis} where {total} were put in"
                )
        parted: list[Tensors] = []
        start = 0
        for count in rows:
            parted.append(
                tuple(
                    tensor if axis is None else tensor.narrow(axis, start, count)
                    for tensor, axis in zip(outputs, self.outputs, strict=True)
                )
            )
            start += count
        return parted


def _axis(spec: TensorSpec, symbol: str) -> int | None:
    """The axis that is exactly the batch symbol."""
    return next(
        (axis for axis, size in enumerate(spec.shape) if isinstance(size, Expr) and size.is_symbol(symbol)), None
    )


def _plain(spec: TensorSpec, symbol: str) -> bool:
    """Whether the batch symbol stands in at most one axis, and there alone: what joining by concatenation needs."""
    mentions = [size for size in spec.shape if isinstance(size, Expr) and symbol in size.symbols()]
    return not mentions or (len(mentions) == 1 and mentions[0].is_symbol(symbol))
