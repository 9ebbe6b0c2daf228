"""Which shapes a run has: as many rows as its requests have together, and along each padded dimension the longest.

Where the engine needs static shapes (a captured graph), a run takes those of the smallest bucket that holds it
instead; on a processor that would only be wasted (5 x 32 tokens cost 18.6 ms, padded to 8 x 32 they cost 28.9).
Shapes and guards are worked out once for each combination of sizes.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Protocol, TypeVar

import torch

from headway_runtime.batching.layout import Declared, Layout, Shape, Tensors
from headway_runtime.program import Program
from headway_runtime.program.ragged import Real

_REMEMBERED = 65_536
WORTH = 0.98
"""Share of a run's cells that are real, beyond which leaving the others out takes as long as it saves."""

V = TypeVar("V")
Key = tuple[int, ...]

Sizes = Mapping[str, int]
Bucket = Callable[[Sizes], Sizes | None]
"""The static shapes that hold these sizes; None when none do, and the run takes its own."""


class Piece(Protocol):
    """A request as the assembly sees it: its inputs, its axis sizes by dimension, its rows."""

    @property
    def inputs(self) -> Tensors: ...
    @property
    def sizes(self) -> Sizes: ...
    @property
    def rows(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Joint:
    """A run of `rows` rows of requests. `sizes` are those the program sees, `shapes` those of its inputs (None: no
    request is changed for it).

    A cell is one position of one row: `real` counts those that requests brought, `run` those that ran. `left_out`: how
    long the rows really are, where products leave out what fills them up.
    """

    sizes: Sizes
    shapes: tuple[Shape, ...] | None
    real: int
    run: int
    rows: int
    left_out: Real | None = None


class Assembly:
    """Joins requests to runs and parts their answers, for one program. Used by several threads at once."""

    def __init__(self, program: Program, layout: Layout, bucket: Bucket | None = None) -> None:
        self._program = program
        self._layout = layout
        self._bucket = bucket
        self._inputs: dict[Key, tuple[Shape, ...]] = {}
        self._outputs: dict[Key, tuple[Declared, ...]] = {}
        self._refused: dict[Key, str | None] = {}

    def joint(self, pieces: Sequence[Piece]) -> Joint:
        """What a run of these requests looks like."""
        first, layout = pieces[0], self._layout
        if layout.batch is None:
            return Joint(first.sizes, None, 1, 1, 1)
        rows = sum([piece.rows for piece in pieces])
        sizes = {**first.sizes, layout.batch: max(rows, layout.fewest)}
        for name in layout.padded:
            sizes[name] = max([piece.sizes[name] for piece in pieces])
        static = None if self._bucket is None else self._bucket(sizes)
        sizes = sizes if static is None else dict(static)
        real = rows
        if layout.padded:
            real = sum([piece.rows * prod([piece.sizes[name] for name in layout.padded]) for piece in pieces])
        run = sizes[layout.batch] * prod([sizes[name] for name in layout.padded])
        grown = static is not None or any(
            piece.sizes[name] != sizes[name] for piece in pieces for name in layout.padded
        )
        if not grown:
            return Joint(sizes, None, real, run, rows)
        left_out = self._left_out(pieces, sizes) if static is None and real < WORTH * run else None
        return Joint(sizes, self._shapes(sizes), real, run, rows, left_out)

    def _left_out(self, pieces: Sequence[Piece], sizes: Sizes) -> Real | None:
        skips, batch = self._layout.skips, self._layout.batch
        if skips is None or batch is None:
            return None
        lengths = [piece.sizes[skips.dimension] for piece in pieces for _ in range(piece.rows)]
        lengths += lengths[-1:] * (sizes[batch] - len(lengths))  # copies of the last one
        return skips.real(lengths, sizes[skips.dimension])

    def refused(self, joint: Joint) -> str | None:
        """Why the program does not allow a run of these sizes, though it allows each request; None when it does."""
        key = tuple(joint.sizes.values())
        if (found := self._refused.get(key, "")) != "":
            return found
        return _remember(self._refused, key, self._program.check(joint.sizes))

    def join(self, pieces: Sequence[Piece], joint: Joint) -> list[torch.Tensor]:
        """The inputs of the run."""
        return self._layout.join([piece.inputs for piece in pieces], joint.rows, joint.shapes)

    def part(self, outputs: Sequence[torch.Tensor], pieces: Sequence[Piece], joint: Joint) -> list[Tensors]:
        """Each request's outputs: as those of the request alone. Raises ValueError as `Layout.part` does."""
        rows = [piece.rows for piece in pieces]
        if joint.shapes is None:
            return self._layout.part(outputs, rows)
        total = joint.sizes[self._layout.batch or ""]
        return self._layout.part(outputs, rows, total, [self._own(piece, joint) for piece in pieces])

    def _own(self, piece: Piece, joint: Joint) -> tuple[Declared, ...] | None:
        """Shapes of a request's outputs, were it alone; None when it was not padded."""
        if all(piece.sizes[name] == joint.sizes[name] for name in self._layout.padded):
            return None
        key = tuple(piece.sizes.values())
        if (found := self._outputs.get(key)) is not None:
            return found
        shapes = tuple([self._program.declared_shape(spec, piece.sizes) for spec in self._program.outputs])
        return _remember(self._outputs, key, shapes)

    def _shapes(self, sizes: Sizes) -> tuple[Shape, ...]:
        key = tuple(sizes.values())
        if (found := self._inputs.get(key)) is not None:
            return found
        return _remember(self._inputs, key, self._program.input_shapes(sizes))


def _remember(known: dict[Key, V], key: Key, value: V) -> V:
    """Keep a value; begin anew when there are too many, so that requests cannot fill the memory."""
    if len(known) >= _REMEMBERED:
        known.clear()
    known[key] = value
    return value
