"""Runs of the program as the engine makes them: rows of one batch, filled up to a common size, and every row's answers
cut out again.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import nan
from typing import Any

import torch

from headway_runtime.batching.layout import Layout
from headway_runtime.buckets import Sizes
from headway_runtime.logs import log
from headway_runtime.program import Program
from headway_runtime.program.datatypes import BY_PROTOCOL
from headway_runtime.program.ragged import Real, Skips
from headway_runtime.proof.deciders import Decider, deciders
from headway_runtime.proof.fills import is_mask

Filler = Callable[[int, tuple[int, ...]], torch.Tensor]
"""What stands around a row: (number of the input, shape) -> a tensor of this shape."""

Answers = list[torch.Tensor]
"""The outputs of one row, and then the scores behind its decisions, without the batch axis."""


class OutOfTimeError(Exception):
    """The trial has taken as long as it may."""


@dataclass(frozen=True, slots=True)
class Row:
    """One row: inputs with a batch of 1, and their sizes."""

    inputs: Sequence[torch.Tensor]
    sizes: Sizes


class Runs:
    """Runs of one program, for so many ``seconds``. ``layout`` has a batch. ``behind``: the prepared document, where
    the scores behind decisions are to be seen. While there are ``skips``, each run that is filled up is made once more
    without products of what fills it up; they are None once that has changed an answer.
    """

    def __init__(
        self, program: Program, layout: Layout, seconds: float, *, behind: Mapping[str, Any] | None = None
    ) -> None:
        self.program = program
        self.layout = layout
        self.batch = layout.batch or ""
        self.seconds = seconds
        self._deadline = time.monotonic() + seconds
        self.names = [f"output {spec.name}" for spec in program.outputs]
        self.deciders: list[Decider] = []
        if behind is not None and program.device.type == "cpu":
            self.deciders = deciders(behind)
        values = [decider.scores for decider in self.deciders]
        self._scores = program.inside(values) if values else None
        self.names += [f"the scores behind output {program.outputs[d.output].name}" for d in self.deciders]
        self.unread: set[int] = set()  # deciders whose scores have no axis of rows in front
        self.skips: Skips | None = None

    def alone(self, row: Row, count: int = 1) -> Answers:
        """The row's answers in a run of its own, or among ``count`` copies of itself."""
        return self.together([row] * count, row.sizes, None)[0]

    def together(
        self, rows: Sequence[Row], sizes: Sizes, filler: Filler | None, *, fewest: int | None = None
    ) -> list[Answers]:
        """The answers of all rows in one run, each row filled up to these sizes, in a batch of ``fewest`` at least (as
        the layout says). Raises what the program raises, and ValueError when an output is smaller than a row needs.
        """
        fewest = self.layout.fewest if fewest is None else fewest
        if time.monotonic() > self._deadline:
            raise OutOfTimeError
        inputs = self._joined(rows, self.program.input_shapes({**sizes, self.batch: 1}), filler, fewest)
        total = max(len(rows), fewest)
        answers = self._answers(inputs, rows, total, None)
        if self.skips is not None and any(row.sizes != sizes for row in rows):
            began = time.monotonic()
            if not self._unmoved(self.skips, inputs, rows, sizes, answers):
                self.skips = None
            self._deadline += time.monotonic() - began  # of the trials of padding, which this is beside
        return answers

    def _answers(self, inputs: list[torch.Tensor], rows: Sequence[Row], total: int, real: Real | None) -> list[Answers]:
        found = [tensor.cpu() for tensor in self.program.run(inputs, real)]
        scores = [] if self._scores is None else list(self._scores(inputs, real))
        self.unread |= {at for at, t in enumerate(scores) if t.dim() == 0 or t.shape[0] != total}
        return [self._parted(found, scores, row, number) for number, row in enumerate(rows)]

    def _unmoved(
        self, skips: Skips, inputs: list[torch.Tensor], rows: Sequence[Row], sizes: Sizes, expected: list[Answers]
    ) -> bool:
        """Whether all answers are the same in every bit when products of what fills the run up are left out."""
        total = max(len(rows), self.layout.fewest)
        lengths = [row.sizes[skips.dimension] for row in rows]
        real = skips.real([*lengths, *lengths[-1:] * (total - len(rows))], sizes[skips.dimension])
        try:
            found = self._answers(inputs, rows, total, real)
        except Exception as error:
            log("padding_not_skipped", dimension=skips.dimension, error_type=type(error).__name__)
            return False
        every = zip(expected, found, strict=True)
        return all(same(one, other) for mine, again in every for one, other in zip(mine, again, strict=True))

    def _joined(
        self, rows: Sequence[Row], shapes: Sequence[tuple[int, ...]], filler: Filler | None, fewest: int
    ) -> list[torch.Tensor]:
        joined = []
        for at, axis in enumerate(self.layout.inputs):
            if axis is None:
                joined.append(rows[0].inputs[at])
                continue
            parts = [_filled(row.inputs[at], shapes[at], at, filler) for row in rows]
            parts += [parts[-1]] * max(0, fewest - len(rows))
            joined.append(torch.cat(parts, dim=axis))
        return joined

    def _parted(self, outputs: Answers, scores: Answers, row: Row, number: int) -> Answers:
        shapes = self.program.output_shapes({**row.sizes, self.batch: 1})
        mine = []
        for tensor, shape, axis in zip(outputs, shapes, self.layout.outputs, strict=True):
            if axis is None:
                mine.append(tensor)
                continue
            mine.append(_cut(tensor.narrow(axis, number, 1), shape).select(axis, 0))
        return [*mine, *(t if at in self.unread else t[number] for at, t in enumerate(scores))]


def strange(program: Program, layout: Layout, usual: Row, factor: float) -> Row:
    """A row that holds what nobody should: its floating-point numbers, masks apart, times a factor such as NaN."""
    inputs = [
        tensor * factor if tensor.is_floating_point() and axis is not None and not is_mask(spec) else tensor
        for spec, tensor, axis in zip(program.inputs, usual.inputs, layout.inputs, strict=True)
    ]
    return Row(inputs, usual.sizes)


def factors(program: Program) -> tuple[float, ...]:
    """What makes rows of this program strange; rows of whole numbers only are strange enough by being others."""
    floats = any(BY_PROTOCOL[spec.datatype].is_floating_point and not is_mask(spec) for spec in program.inputs)
    return (nan, 1000.0) if floats else (1.0,)


def same(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two answers are equal; NaN is what NaN is."""
    return one.shape == other.shape and bool(((one == other) | (one.isnan() & other.isnan())).all())


def _filled(tensor: torch.Tensor, shape: tuple[int, ...], at: int, filler: Filler | None) -> torch.Tensor:
    """The tensor in the first corner of one of this shape."""
    if tuple(tensor.shape) == shape or filler is None:
        return tensor
    larger = filler(at, shape)
    larger[tuple(slice(0, size) for size in tensor.shape)] = tensor
    return larger


def _cut(tensor: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
    """The first corner of this shape."""
    for axis, size in enumerate(shape):
        if tensor.shape[axis] < size:
            raise ValueError(f"an output has {tensor.shape[axis]} on axis {axis} where {size} are needed")
        tensor = tensor.narrow(axis, 0, size)
    return tensor
