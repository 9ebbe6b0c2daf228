"""What goes into a program and comes out of it, and which sizes are dynamic: all that its document says without running
it.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from headway_runtime.prepare.sizes import expression as ex
from headway_runtime.program import dimensions as dims
from headway_runtime.program.datatypes import PROTOCOL
from headway_runtime.program.dimensions import Dimension, TensorSpec
from headway_runtime.program.errors import ProgramError


class Interface:
    """Inputs, outputs, and dimensions by name."""

    def __init__(
        self, *, inputs: tuple[TensorSpec, ...], outputs: tuple[TensorSpec, ...], dimensions: dims.Dimensions
    ) -> None:
        self.inputs = inputs
        self.outputs = outputs
        self.dimensions: Mapping[str, Dimension] = dimensions.by_name
        self._dimensions = dimensions

    def bind(self, shapes: Sequence[Sequence[int]]) -> dict[str, int]:
        """Sizes by dimension name for the shapes of all inputs. Raises ShapeError naming input, axis and allowed
        range.
        """
        return self._dimensions.bind(shapes)

    def check(self, sizes: Mapping[str, int]) -> str | None:
        """None when ranges and guards hold for these sizes; else the violated rule in words."""
        return self._dimensions.check(sizes)

    def input_shapes(self, sizes: Mapping[str, int]) -> tuple[tuple[int, ...], ...]:
        """Shape of each input at these sizes."""
        return tuple(self._dimensions.shape(spec, sizes) for spec in self.inputs)

    def output_shapes(self, sizes: Mapping[str, int]) -> tuple[tuple[int, ...], ...]:
        """Shape of each output at these sizes; KeyError when one depends on the data."""
        return tuple(self._dimensions.shape(spec, sizes) for spec in self.outputs)

    def declared_shape(self, spec: TensorSpec, sizes: Mapping[str, int]) -> tuple[int | None, ...]:
        """Shape of an output at these sizes, with None for each axis that depends on the data."""

        def size(axis: int | ex.Expr) -> int | None:
            try:
                return self._dimensions.shape(TensorSpec(spec.name, spec.datatype, (axis,)), sizes)[0]
            except KeyError:
                return None

        return tuple(size(axis) for axis in spec.shape)

    def size_of(self, name: str, value: int) -> int:
        """The size of a dimension at which its symbol has this value."""
        return self._dimensions.axes[self.dimensions[name].symbol].size_of(value)

    def start_at(self, name: str, value: int) -> None:
        """Refuse from here on what is smaller, along a dimension, than this value of its symbol makes it."""
        self._dimensions = self._dimensions.starting_at(name, value)
        self.dimensions = self._dimensions.by_name

    def start_as(self, other: "Interface") -> None:
        """Take the sizes that another opening of the same program takes."""
        self._dimensions, self.dimensions = other._dimensions, other.dimensions

    def describe(self, spec: TensorSpec) -> str:
        """Shape in words: ``[batch, sequence]``."""
        return self._dimensions.describe(spec)

    def range(self, name: str) -> str:
        """What a dimension may be, in words: ``1 to 64``."""
        return self._dimensions.range(name)


def specs(document: Mapping[str, Any], side: str) -> tuple[TensorSpec, ...]:
    """The ``inputs`` or ``outputs`` of a document. Raises ProgramError."""
    return tuple(_spec(item) for item in document[side])


def resolved(
    document: Mapping[str, Any], *, configured: Mapping[str, str], guards: tuple[ex.Expr, ...] = ()
) -> dims.Dimensions:
    """All dynamic sizes of a document, named. ``guards``: those that hold besides its own. Raises ProgramError."""
    return dims.resolve(
        specs(document, "inputs"),
        specs(document, "outputs"),
        ranges={name: (r["min"], r["max"]) for name, r in document["symbols"].items()},
        guards=(*(ex.from_json(g) for g in document["guards"]), *guards),
        recorded=[(name, axis, dimension) for name, axis, dimension in document.get("dimensions", [])],
        configured=configured,
    )


def _spec(item: Mapping[str, Any]) -> TensorSpec:
    if item["dtype"] not in PROTOCOL:
        message = f"{item['name']} has element type {item['dtype']}, which the Open Inference Protocol cannot carry"
        raise ProgramError("ArtifactVerified", "UnsupportedProgram", message)
    sizes = (ex.from_json(n) for n in item["shape"])
    shape = tuple(int(e.value) if e.operator == "const" else e for e in sizes)
    size = ex.from_json(item["size"]) if "size" in item else None
    return TensorSpec(item["name"], PROTOCOL[item["dtype"]], shape, size)
