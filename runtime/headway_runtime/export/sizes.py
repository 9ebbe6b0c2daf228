"""Dynamic axis sizes as the author declares them, and as ``torch.export`` takes them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from headway_runtime.export.errors import ExportError
from headway_runtime.prepare.beside.record import is_dimension_name
from headway_runtime.program import Program

Shapes = Mapping[str, Mapping[int, "Size"]]


@dataclass(frozen=True, slots=True)
class Size:
    """A dynamic axis size: its name, the range it may have (``max`` None: unbounded), and ``step``, of which it is a
    multiple.
    """

    name: str
    min: int = 1
    max: int | None = None
    step: int = 1

    def __post_init__(self) -> None:
        if not is_dimension_name(self.name):
            raise ExportError(
                f"{self.name!r} cannot name a dimension; use lower-case letters, digits, hyphens, as in batch"
            )
        if self.min < 0 or self.step < 1 or (self.max is not None and self.max < max(2, self.min)):
            raise ExportError(f"{self}: a dynamic size has a maximum of 2 or more, and not less than its minimum")

    def __str__(self) -> str:
        step = f"/{self.step}" if self.step > 1 else ""
        return f"{self.name}:{self.min}..{'' if self.max is None else self.max}{step}"

    def holds(self, size: int) -> bool:
        """Whether an axis may have this size."""
        return self.min <= size and (self.max is None or size <= self.max) and size % self.step == 0

    @property
    def highest(self) -> int | None:
        """The largest size that it holds."""
        return None if self.max is None else self.max // self.step * self.step

    @property
    def least_traced(self) -> int:
        """The least size of an example: torch takes one row, or one step, for a constant."""
        return max(2, self.min, 2 * self.step if self.step > 1 else 2)

    def dimension(self) -> Any:
        """As a ``torch.export.Dim``, or a multiple of one."""
        name = self.name.replace("-", "_")
        if self.step == 1:
            return torch.export.Dim(name, min=self.min, max=self.max)
        high = None if self.max is None else self.max // self.step
        return self.step * torch.export.Dim(f"_{name}", min=-(-self.min // self.step), max=high)


def check(shapes: Shapes, examples: Mapping[str, torch.Tensor]) -> dict[str, Size]:
    """Hold examples against the declared sizes; the sizes by name. Raises ExportError."""
    if unknown := shapes.keys() - examples.keys():
        raise ExportError(f"dynamic_shapes names {sorted(unknown)}, but the inputs are {sorted(examples)}")
    sizes: dict[str, Size] = {}
    found: dict[str, tuple[int, str]] = {}
    for name, axes in shapes.items():
        shape = examples[name].shape
        for axis, size in axes.items():
            if sizes.setdefault(size.name, size) != size:
                raise ExportError(f"{size.name} has two ranges, {sizes[size.name]} and {size}; a name has one")
            if not 0 <= axis < len(shape):
                raise ExportError(
                    f"input {name} has {len(shape)} axes in the example, so none is number {axis} ({size})"
                )
            where = f"axis {axis} ({size.name}) of input {name}"
            if shape[axis] < size.least_traced:
                text = f"{where} is {shape[axis]} in the example, which torch.export takes for a constant"
                raise ExportError(f"{text}; make it {size.least_traced} or more there ({size} holds all the same)")
            if not size.holds(shape[axis]):
                raise ExportError(f"{where} is {shape[axis]} in the example, and {size} was declared")
            first = found.setdefault(size.name, (shape[axis], where))
            if first[0] != shape[axis]:
                raise ExportError(
                    f"{where} is {shape[axis]} in the example, but {first[1]} is {first[0]}; they have one name"
                )
    return sizes


def narrowed(declared: Mapping[str, Size], program: Program) -> list[str]:
    """Where tracing found that the program takes less than was declared, in words."""
    return [
        f"{size} was declared, and the program takes {program.range(name)}"
        for name, size in declared.items()
        if (found := program.dimensions.get(name)) is not None
        and (max(size.min, 1 if size.step == 1 else size.step) < found.min or found.max != size.highest)
    ]
