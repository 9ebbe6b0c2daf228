"""Inputs as real as the artifact allows, of any size: what the warm-up and the trials run.

They are cut and repeated out of the artifact's samples: golden ones, else the example inputs of a plain export. Where
there are none they are made up: whole numbers below the size of the table that they index (else 0 and 1), ones for
masks, normal and uniform numbers for the rest. All of it is a function of the artifact and of a seed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from headway_runtime.buckets import Sizes
from headway_runtime.parity import read_samples
from headway_runtime.prepare import repack
from headway_runtime.prepare.sizes.expression import Expr
from headway_runtime.program import Program, TensorSpec
from headway_runtime.program.datatypes import BY_PROTOCOL
from headway_runtime.proof.bounds import id_bounds
from headway_runtime.proof.fills import Number, hiding, is_length, is_mask, mentions, showing

Tensors = tuple[torch.Tensor, ...]


@dataclass(frozen=True, slots=True)
class Material:
    """What inputs are made of. ``samples`` are inputs of the program, in order, of any size; ``bounds`` and ``padding``
    are by input name: ids stay below the bound, the author recorded the pad value.
    """

    program: Program
    samples: tuple[Tensors, ...] = ()
    golden: bool = False
    bounds: Mapping[str, int] = field(default_factory=dict)
    padding: Mapping[str, Number] = field(default_factory=dict)

    @property
    def origin(self) -> str:
        """Where the inputs come from, in words."""
        if not self.samples:
            return "made-up inputs"
        return "golden samples" if self.golden else "the example inputs"

    def sources(self) -> tuple["Material", ...]:
        """Itself, and what is made up: samples may be all zeros, and the program fail on what is made up."""
        return (self, replace(self, samples=())) if self.samples else (self,)

    def row(self, sizes: Sizes, number: int, *, world: int = 0) -> list[torch.Tensor]:
        """Inputs of these sizes, one for each ``number``. Inputs without a batch axis are the same in one ``world``."""
        shapes = self.program.input_shapes(sizes)
        if not self.samples:
            return [
                self._made_up(spec, shape, sizes, number if self._has_rows(spec) else world)
                for spec, shape in zip(self.program.inputs, shapes, strict=True)
            ]
        mine, theirs = self._sample(number), self._sample(world)
        picks = self._picks(mine[0], mine[1], number)
        made = []
        for at, (spec, shape) in enumerate(zip(self.program.inputs, shapes, strict=True)):
            rows = self._has_rows(spec)
            cut = _cut(spec, (mine if rows else theirs)[0][at], shape, picks if rows else {})
            made.append(self._within(spec, cut, sizes))
        return made

    def _has_rows(self, spec: TensorSpec) -> bool:
        batch = self.program.batch
        return batch is None or mentions(spec, self.program.dimensions[batch].symbol)

    def _sample(self, number: int) -> tuple[Tensors, int]:
        """The sample, and the row of it, that this number takes: all rows of all samples in turn."""
        rows = [(sample, row) for sample in self.samples for row in range(self._rows(sample))]
        return rows[number % len(rows)]

    def _rows(self, sample: Tensors) -> int:
        sizes = self._sizes(sample)
        return 1 if self.program.batch is None else sizes.get(self.program.dimensions[self.program.batch].symbol, 1)

    def _sizes(self, sample: Tensors) -> dict[str, int]:
        """The sizes that the plain axes of a sample give their symbols."""
        return {
            str(declared.value): size
            for spec, tensor in zip(self.program.inputs, sample, strict=True)
            for declared, size in zip(spec.shape, tensor.shape, strict=True)
            if isinstance(declared, Expr) and declared.operator == "symbol"
        }

    def _picks(self, sample: Tensors, row: int, number: int) -> dict[str, list[int]]:
        """By symbol: which positions of the sample's axis are taken, in turn. The row comes first; other axes start
        elsewhere for each number, and positions that a mask hides are left out: no row is padding only.
        """
        batch = self.program.batch
        first = None if batch is None else self.program.dimensions[batch].symbol
        picks: dict[str, list[int]] = {}
        for symbol, size in self._sizes(sample).items():
            if symbol == first:
                picks[symbol] = [(row + i) % size for i in range(size)]
                continue
            shown = self._shown(sample, symbol, row, size)
            start = number % len(shown)
            picks[symbol] = shown[start:] + shown[:start]
        return picks

    def _shown(self, sample: Tensors, symbol: str, row: int, size: int) -> list[int]:
        """Positions along a symbol that no mask hides in this row; all when none is left."""
        shown = torch.ones(size, dtype=torch.bool)
        for spec, tensor in zip(self.program.inputs, sample, strict=True):
            axis, rows = _axis(spec, symbol), self._batch_axis(spec)
            if axis is None or not is_mask(spec):
                continue
            own = tensor if rows is None else tensor.narrow(rows, row, 1)
            shown &= (own != hiding(spec, self.padding)).movedim(axis, 0).reshape(size, -1).any(1)
        return torch.nonzero(shown).flatten().tolist() or list(range(size))

    def _batch_axis(self, spec: TensorSpec) -> int | None:
        batch = self.program.batch
        return None if batch is None else _axis(spec, self.program.dimensions[batch].symbol)

    def _within(self, spec: TensorSpec, tensor: torch.Tensor, sizes: Sizes) -> torch.Tensor:
        """Lengths no longer than what they measure."""
        if not is_length(spec):
            return tensor
        return tensor.clamp(max=self._length(sizes))

    def _length(self, sizes: Sizes) -> int:
        return min((size for name, size in sizes.items() if name != self.program.batch), default=1)

    def _made_up(self, spec: TensorSpec, shape: tuple[int, ...], sizes: Sizes, number: int) -> torch.Tensor:
        dtype = BY_PROTOCOL[spec.datatype]
        random = torch.Generator().manual_seed(1_000_003 * number + len(spec.name) + sum(map(ord, spec.name)))
        if is_mask(spec):
            return torch.full(shape, showing(spec, self.padding), dtype=dtype)
        if is_length(spec):
            return torch.full(shape, self._length(sizes), dtype=dtype)
        if dtype.is_floating_point:
            made = torch.rand if number % 3 == 2 else torch.randn
            return made(shape, generator=random).to(dtype)
        bound = 2 if dtype is torch.bool else min(self.bounds.get(spec.name, 2), _largest(dtype))
        return torch.randint(0, bound, shape, generator=random).to(dtype)


def gather(directory: Path, document: tuple[str, Mapping[str, Any]], program: Program) -> Material:
    """The material of a prepared program. ``document``: its name and its content, as ``load.read_document`` has it."""
    name, content = document
    found = read_samples(repack.samples_file(directory, name))
    answered = [sample for sample in found if sample.outputs]
    return Material(
        program,
        tuple(sample.inputs for sample in answered or found if _usable(program, sample.inputs)),
        bool(answered),
        id_bounds(content),
        content.get("facts", {}).get("padding", {}),
    )


def realistic(material: Material, sizes: Sizes) -> list[torch.Tensor]:
    """Inputs of these sizes, every row another one."""
    program = material.program
    if program.batch is None or sizes[program.batch] == 0:
        return material.row(sizes, 0)
    symbol = program.dimensions[program.batch].symbol
    if any(mentions(spec, symbol) and _axis(spec, symbol) is None for spec in program.inputs):
        return material.row(sizes, 0)
    rows = [material.row({**sizes, program.batch: 1}, number) for number in range(sizes[program.batch])]
    return [
        parts[0] if (axis := _axis(spec, symbol)) is None else torch.cat(parts, dim=axis)
        for spec, parts in zip(program.inputs, zip(*rows, strict=True), strict=True)
    ]


def _usable(program: Program, inputs: Tensors) -> bool:
    """Whether rows can be cut out of a sample: the types and fixed sizes are the program's, and nothing is empty."""
    return all(
        BY_PROTOCOL[spec.datatype] == tensor.dtype
        and tensor.dim() == len(spec.shape)
        and tensor.numel() > 0
        and all(n == size for n, size in zip(spec.shape, tensor.shape, strict=True) if isinstance(n, int))
        for spec, tensor in zip(program.inputs, inputs, strict=True)
    )


def _cut(
    spec: TensorSpec, tensor: torch.Tensor, shape: Sequence[int], picks: Mapping[str, Sequence[int]]
) -> torch.Tensor:
    """A part of a tensor of this shape; axes that are too short are repeated."""
    for axis, (declared, wanted) in enumerate(zip(spec.shape, shape, strict=True)):
        plain = isinstance(declared, Expr) and declared.operator == "symbol"
        symbol = str(declared.value) if plain and isinstance(declared, Expr) else ""
        if symbol not in picks and wanted == tensor.shape[axis]:
            continue
        places = picks.get(symbol, range(tensor.shape[axis]))
        index = torch.arange(wanted) % len(places)
        tensor = tensor.index_select(axis, torch.tensor(list(places), dtype=torch.int64)[index])
    return tensor


def _axis(spec: TensorSpec, symbol: str) -> int | None:
    return next((axis for axis, n in enumerate(spec.shape) if isinstance(n, Expr) and n.is_symbol(symbol)), None)


def _largest(dtype: torch.dtype) -> int:
    return int(torch.iinfo(dtype).max)
