"""How the shapes of a request determine the sizes of a program's dimensions, and what export assumed of them. Their
names and ranges come from ``prepare.dimensions``. Pure: no tensors.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from headway_runtime.prepare.errors import Refusal
from headway_runtime.prepare.sizes import expression as ex
from headway_runtime.prepare.sizes.dimensions import (
    Dimension,
    DimensionError,
    Named,
    TensorSpec,
    batch_of,
    name_dimensions,
)
from headway_runtime.program.errors import ProgramError, ShapeError

__all__ = ["Dimension", "Dimensions", "TensorSpec", "batch_of", "resolve"]


@dataclass(frozen=True, slots=True)
class Dimensions(Named):
    """All dynamic sizes of one program, and what export assumed of them."""

    guards: tuple[ex.Expr, ...]

    def bind(self, shapes: Sequence[Sequence[int]]) -> dict[str, int]:
        """Sizes by dimension name for the shapes of all inputs, in order. Raises ShapeError."""
        if len(shapes) != len(self.inputs):
            raise ShapeError(f"{len(self.inputs)} inputs are needed, {len(shapes)} given", input_name="", axis=None)
        for spec, shape in zip(self.inputs, shapes, strict=True):
            if len(shape) != len(spec.shape):
                text = f"input {spec.name} has {len(spec.shape)} axes ({self.describe(spec)}), {len(shape)} given"
                raise ShapeError(text, input_name=spec.name, axis=None)
        sizes: dict[str, int] = {}
        values: dict[str, int] = {}
        for dimension in self.by_name.values():
            axis = self.axes[dimension.symbol]
            size = shapes[axis.input][axis.axis]
            value = axis.symbol_of(size)
            if value is None or size < dimension.min or (dimension.max is not None and size > dimension.max):
                spec = self.inputs[axis.input]
                text = f"input {spec.name}, axis {axis.axis} ({dimension.name}) is {size}; "
                text += f"allowed is {self.range(dimension.name)}"
                raise ShapeError(text, input_name=spec.name, axis=axis.axis)
            sizes[dimension.name], values[dimension.symbol] = size, value
        self._check_axes(shapes, values)
        return sizes

    def _check_axes(self, shapes: Sequence[Sequence[int]], values: Mapping[str, int]) -> None:
        """Every axis, fixed or dynamic, has the size that the symbols give it."""
        for spec, shape in zip(self.inputs, shapes, strict=True):
            for axis, (declared, size) in enumerate(zip(spec.shape, shape, strict=True)):
                if isinstance(declared, int):
                    needed: ex.Number = declared
                elif declared.operator == "symbol":  # almost every dynamic axis, on the path of every request
                    needed = values[str(declared.value)]
                else:
                    needed = ex.evaluate(declared, values)
                if size != needed:
                    why = "" if isinstance(declared, int) else f" ({self.render(declared)}, as in the other inputs)"
                    text = f"input {spec.name}, axis {axis} is {size}; it must be {needed}{why}"
                    raise ShapeError(text, input_name=spec.name, axis=axis)

    def check(self, sizes: Mapping[str, int]) -> str | None:
        """None when the program may run at these sizes; else the violated rule in words."""
        values: dict[str, int] = {}
        for name, dimension in self.by_name.items():
            if name not in sizes:
                return f"no size for dimension {name}"
            size = sizes[name]
            value = self.axes[dimension.symbol].symbol_of(size)
            if value is None or size < dimension.min or (dimension.max is not None and size > dimension.max):
                return f"{name} = {size}, and the program allows {self.range(name)}"
            values[dimension.symbol] = value
        if unknown := sizes.keys() - self.by_name.keys():
            return f"the program has no dimension {min(unknown)}"
        for guard in self.guards:
            try:
                holds = bool(ex.evaluate(guard, values))
            except ex.EvaluationError:
                holds = False
            if not holds:
                given = ", ".join(f"{name} = {size}" for name, size in sizes.items())
                return f"the program was exported for sizes with {self.render(guard)}, which {given} violates"
        return None

    def require(self, shapes: Sequence[Sequence[int]]) -> None:
        """Raise ShapeError unless the program may run with inputs of these shapes."""
        if (violated := self.check(self.bind(shapes))) is not None:
            raise ShapeError(violated, input_name="", axis=None)

    def starting_at(self, name: str, value: int) -> "Dimensions":
        """The same, with this value of its symbol as the least of a dimension."""
        dimension = self.by_name[name]
        least = replace(dimension, min=self.axes[dimension.symbol].size_of(value))
        return replace(self, by_name={**self.by_name, name: least})

    def shape(self, spec: TensorSpec, sizes: Mapping[str, int]) -> tuple[int, ...]:
        """Shape of an input or output at these sizes; KeyError when it depends on data."""
        values: dict[str, int] = {}
        for name, dimension in self.by_name.items():
            value = self.axes[dimension.symbol].symbol_of(sizes[name])
            if value is None:
                raise ShapeError(f"{name} = {sizes[name]} is not possible", input_name=spec.name, axis=None)
            values[dimension.symbol] = value
        return tuple(n if isinstance(n, int) else int(ex.evaluate(n, values)) for n in spec.shape)


def resolve(
    inputs: tuple[TensorSpec, ...],
    outputs: tuple[TensorSpec, ...],
    *,
    ranges: Mapping[str, tuple[int, int | None]],
    guards: tuple[ex.Expr, ...],
    recorded: Iterable[tuple[str, int, str]],
    configured: Mapping[str, str],
) -> Dimensions:
    """Name and bound every dimension, as ``name_dimensions`` does. Raises ProgramError."""
    try:
        named = name_dimensions(inputs, outputs, ranges=ranges, guards=guards, recorded=recorded, configured=configured)
    except (DimensionError, Refusal) as error:
        raise ProgramError(error.condition, error.reason, str(error), field=error.field) from None
    return Dimensions(named.inputs, named.by_name, named.axes, guards)
