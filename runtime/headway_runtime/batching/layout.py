"""Where the rows are: which axis of each input and output is the batch axis, and how requests are joined and parted
along it.

Requests that share a run agree in every size but the batch, and those of `padded` dimensions, and in the bytes of the
inputs that have no batch axis at all (`group_key`). Along a padded dimension each is filled up to the longest of the
run, with the input's pad value; its answer is cut back to what the request alone would have got.

Pure tensor work; which shapes a run has, `batching.assembly` decides.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import TypeAlias

import torch

from headway_runtime.prepare.sizes.expression import Expr
from headway_runtime.program import Program, TensorSpec
from headway_runtime.program.ragged import Skips

Tensors: TypeAlias = tuple[torch.Tensor, ...]
Shape: TypeAlias = tuple[int, ...]
Declared: TypeAlias = tuple[int | None, ...]
"""A shape with None for each axis that depends on the data."""


@dataclass(frozen=True, slots=True)
class Layout:
    """`batch` is the batch dimension; None when requests run one at a time, and `reason` then says why.

    An axis is None where there are no rows. `fewest` is the smallest batch the program takes: fewer rows are filled up
    with copies of the last one. `padded` are the dimensions along which requests of different sizes may share a run,
    and `fills` the pad value of each input (None: it has no padded axis). `skips` are products of the program that may
    leave out what fills a run up along the one padded dimension; None: nothing is left out.
    """

    batch: str | None
    reason: str | None
    inputs: tuple[int | None, ...]
    outputs: tuple[int | None, ...]
    fewest: int = 1
    padded: tuple[str, ...] = ()
    fills: tuple[float | bool | None, ...] = ()
    skips: Skips | None = None

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

    def apart(self, sizes: Mapping[str, int]) -> tuple[int, ...]:
        """In what the sizes of requests that share a run agree."""
        return tuple(  # what is empty is no shorter request: the proof of padding does not speak of it
            [size if name not in self.padded else not size for name, size in sizes.items() if name != self.batch]
        )

    def group_key(self, sizes: Mapping[str, int], inputs: Sequence[torch.Tensor]) -> Hashable:
        """Requests with equal keys may share a run. None: this program's requests never share one."""
        return self.group_of(self.apart(sizes), inputs)

    def group_of(self, apart: tuple[int, ...], inputs: Sequence[torch.Tensor]) -> Hashable:
        """The same, of what `apart` says."""
        if self.batch is None:
            return None
        if None not in self.inputs:
            return apart
        return apart, tuple([_content(t) for t, axis in zip(inputs, self.inputs, strict=True) if axis is None])

    def padded_sizes(self, sizes: Mapping[str, int]) -> tuple[int, ...]:
        """A request's sizes along the padded dimensions."""
        return tuple([sizes[name] for name in self.padded])

    def join(
        self, requests: Sequence[Sequence[torch.Tensor]], rows: int, shapes: Sequence[Shape] | None = None
    ) -> list[torch.Tensor]:
        """One list of inputs with all the rows, in order; `rows` is their sum.

        `shapes` are those of the joint inputs, which is what smaller requests are padded to, and the batch filled up
        to; None: all requests have the same sizes, and the batch needs no more than `fewest` rows.
        """
        if shapes is None:
            fill = max(0, self.fewest - rows) if self.batch is not None else 0
            if len(requests) == 1 and not fill:
                return list(requests[0])
            return [
                parts[0] if axis is None else _concatenated(parts, axis, fill)
                for parts, axis in zip(zip(*requests, strict=True), self.inputs, strict=True)
            ]
        fills = self.fills or (None,) * len(self.inputs)
        return [
            _padded(parts, shape, axis, fill)
            for parts, shape, axis, fill in zip(zip(*requests, strict=True), shapes, self.inputs, fills, strict=True)
        ]

    def part(
        self,
        outputs: Sequence[torch.Tensor],
        rows: Sequence[int],
        total: int | None = None,
        shapes: Sequence[Sequence[Declared] | None] | None = None,
    ) -> list[Tensors]:
        """Give every request its rows back. Raises ValueError when the program returned another number of rows.

        `total` is the number of rows that ran, with those that only filled the batch up. `shapes` are the shapes of
        each request's outputs, were it alone; None for a request that was not padded.
        """
        if self.batch is None:
            return [tuple(outputs)]
        total = max(sum(rows), self.fewest) if total is None else total
        for index, (tensor, axis) in enumerate(zip(outputs, self.outputs, strict=True)):
            if axis is not None and tensor.shape[axis] != total:
                raise ValueError(
                    f"output {index} has {tensor.shape[axis]} rows on axis {axis} where {total} were put in"
                )
        if len(rows) == 1 and rows[0] == total:
            parted = [tuple(outputs)]
        else:
            cuts = [*rows, total - sum(rows)]  # the last part only filled the batch up
            each = [
                repeat(tensor, len(rows)) if axis is None else tensor.split(cuts, axis)[: len(rows)]
                for tensor, axis in zip(outputs, self.outputs, strict=True)
            ]
            parted = list(zip(*each, strict=True))
        if shapes is None:
            return parted
        return [
            mine if own is None else tuple([_cut(tensor, shape) for tensor, shape in zip(mine, own, strict=True)])
            for mine, own in zip(parted, shapes, strict=True)
        ]

    def split(self, inputs: Tensors, rows: int, most: int) -> list[tuple[int, Tensors]]:
        """A request of `rows` rows in parts of at most `most`, as even as can be: (rows, inputs) of each."""
        parts = -(-rows // most)
        base, more = divmod(rows, parts)
        counts = [base + (number < more) for number in range(parts)]
        found: list[tuple[int, Tensors]] = []
        start = 0
        for count in counts:
            found.append(
                (
                    count,
                    tuple(
                        [
                            tensor if axis is None else tensor.narrow(axis, start, count)
                            for tensor, axis in zip(inputs, self.inputs, strict=True)
                        ]
                    ),
                )
            )
            start += count
        return found

    def rejoin(self, parts: Sequence[Tensors]) -> Tensors:
        """The outputs of all parts of a request, in their order, as those of the whole."""
        return tuple(
            [
                outputs[0] if axis is None else torch.cat(outputs, dim=axis)
                for outputs, axis in zip(zip(*parts, strict=True), self.outputs, strict=True)
            ]
        )


def _content(tensor: torch.Tensor) -> tuple[Shape, bytes]:
    """Equal for equal tensors, also of element types that NumPy does not have."""
    return tuple(tensor.shape), tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def _concatenated(parts: Sequence[torch.Tensor], axis: int, fill: int) -> torch.Tensor:
    if not fill:
        return torch.cat(parts, dim=axis)
    last = parts[-1].narrow(axis, parts[-1].shape[axis] - 1, 1)
    return torch.cat([*parts, *[last] * fill], dim=axis)


def _padded(parts: Sequence[torch.Tensor], shape: Shape, axis: int | None, fill: float | bool | None) -> torch.Tensor:
    """One buffer of this shape, into which each part is copied once; rows beyond theirs repeat the last."""
    first = parts[0]
    if axis is None or (len(parts) == 1 and first.shape == shape):
        return first
    if all(part.shape == (*shape[:axis], part.shape[axis], *shape[axis + 1 :]) for part in parts):
        return _concatenated(parts, axis, shape[axis] - sum(part.shape[axis] for part in parts))
    buffer = torch.full(shape, 0 if fill is None else fill, dtype=first.dtype)
    start = 0
    for part in parts:
        end = start + part.shape[axis]
        place = [slice(size) for size in part.shape]
        place[axis] = slice(start, end)
        buffer[tuple(place)] = part
        start = end
    if start < shape[axis]:  # zeros would do for most programs, and give NaN where every key of a softmax is masked
        buffer.narrow(axis, start, shape[axis] - start).copy_(buffer.narrow(axis, start - 1, 1))
    return buffer


def _cut(tensor: torch.Tensor, shape: Declared) -> torch.Tensor:
    for axis, size in enumerate(shape):
        if size is not None and size < tensor.shape[axis]:
            tensor = tensor.narrow(axis, 0, size)
    return tensor


def _axis(spec: TensorSpec, symbol: str) -> int | None:
    """The axis that is exactly the batch symbol."""
    return next(
        (axis for axis, size in enumerate(spec.shape) if isinstance(size, Expr) and size.is_symbol(symbol)), None
    )


def _plain(spec: TensorSpec, symbol: str) -> bool:
    """Whether the batch symbol stands in at most one axis, and there alone: what joining by concatenation needs."""
    mentions = [size for size in spec.shape if isinstance(size, Expr) and symbol in size.symbols()]
    return not mentions or (len(mentions) == 1 and mentions[0].is_symbol(symbol))
