"""What one loaded program accepts, and what it returns: names, datatypes, shapes. Pure: no socket, no queue.

Shapes include the batch axis, and -1 where a size is symbolic.
"""

import hashlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import orjson
import torch

from headway_runtime.batching.layout import Layout, Tensors
from headway_runtime.buckets import Buckets
from headway_runtime.errors import InvalidRequestError
from headway_runtime.prepare.sizes.expression import Expr
from headway_runtime.program import Program, ShapeError, TensorSpec
from headway_runtime.program.datatypes import BY_PROTOCOL
from headway_runtime.serving.values import BytesArray, Given, Output, Request, Value

_PROTOCOL = {dtype: name for name, dtype in BY_PROTOCOL.items()}
_CHECKED = 4096  # combinations of sizes whose guards are remembered


class Intake:
    """Checks requests for one program, and names its outputs."""

    def __init__(self, program: Program, layout: Layout, buckets: Buckets) -> None:
        self._program = program
        self._layout = layout
        self._buckets = buckets
        self._inputs = tuple(spec.name for spec in program.inputs)
        self._outputs = {spec.name: position for position, spec in enumerate(program.outputs)}
        self._all = tuple(range(len(program.outputs)))
        self._dtypes = tuple(BY_PROTOCOL[spec.datatype] for spec in program.inputs)
        self._checked: dict[tuple[int, ...], str | None] = {}

    def describe(self) -> dict[str, Any]:
        """The `inputs` and `outputs` of a metadata answer."""
        return {
            "inputs": [_metadata(spec) for spec in self._program.inputs],
            "outputs": [_metadata(spec) for spec in self._program.outputs],
        }

    def hash(self) -> str:
        """Equal for programs with the same names, datatypes and shapes."""
        return hashlib.sha256(orjson.dumps(self.describe(), option=orjson.OPT_SORT_KEYS)).hexdigest()[:16]

    def request(self, given: Given) -> Request:
        """A checked request. Raises InvalidRequestError: what is wrong, in which input, and what is allowed."""
        if len(given.inputs) != len(self._inputs) or any(name not in given.inputs for name in self._inputs):
            raise self._misnamed(given.inputs)
        inputs = tuple(self._tensor(at, given.inputs[name]) for at, name in enumerate(self._inputs))
        sizes = self._bind([tensor.shape for tensor in inputs])
        return Request(
            inputs,
            sizes,
            rows=self._layout.rows(sizes),
            bytes=sum(tensor.nbytes for tensor in inputs),
            outputs=self._all if given.outputs is None else self._wanted(given.outputs),
        )

    def outputs(self, request: Request, tensors: Tensors) -> tuple[Output, ...]:
        """The wanted outputs, named."""
        specs = self._program.outputs
        return tuple(Output(specs[at].name, specs[at].datatype, tensors[at]) for at in request.outputs)

    def no_rows(self, request: Request) -> Tensors:
        """The outputs of a request without rows, which is answered without running."""
        try:
            shapes = self._program.output_shapes(request.sizes)
        except KeyError:
            raise InvalidRequestError("a request without rows: the shape of an output depends on the data") from None
        return tuple(
            torch.empty(shape, dtype=BY_PROTOCOL[spec.datatype])
            for spec, shape in zip(self._program.outputs, shapes, strict=True)
        )

    def _tensor(self, at: int, value: Value) -> torch.Tensor:
        spec = self._program.inputs[at]
        if isinstance(value, BytesArray):
            raise InvalidRequestError(f"input {spec.name!r}: 'datatype' must be {spec.datatype}, not BYTES")
        if value.dtype != self._dtypes[at]:
            raise InvalidRequestError(
                f"input {spec.name!r}: 'datatype' must be {spec.datatype}, not {_PROTOCOL[value.dtype]}"
            )
        return value

    def _misnamed(self, given: Collection[str]) -> InvalidRequestError:
        unknown = next((name for name in given if name not in self._inputs), None)
        if unknown is not None:
            return InvalidRequestError(f"input {unknown[:100]!r} is not one of this model's: {_list(self._inputs)}")
        missing = next(name for name in self._inputs if name not in given)
        return InvalidRequestError(f"input {missing!r} is missing; this model takes {_list(self._inputs)}")

    def _wanted(self, names: Sequence[str]) -> tuple[int, ...]:
        unknown = next((name for name in names if name not in self._outputs), None)
        if unknown is not None:
            raise InvalidRequestError(f"output {unknown[:100]!r} is not one of this model's: {_list(self._outputs)}")
        return tuple(self._outputs[name] for name in names)

    def _bind(self, shapes: Sequence[Sequence[int]]) -> dict[str, int]:
        """Axis sizes by dimension, within the program's ranges, its guards, and the buckets' ceilings."""
        rows, padded = self._fill_up(shapes)
        try:
            sizes = self._program.bind(padded)
        except ShapeError as error:
            raise InvalidRequestError(str(error)) from None
        key = tuple(sizes.values())
        if key not in self._checked:
            if len(self._checked) >= _CHECKED:
                self._checked.clear()
            self._checked[key] = self._program.check(sizes)
        broken = self._checked[key]
        if broken is not None:
            raise InvalidRequestError(f"these shapes are outside what the program allows: {broken}")
        for name, size in sizes.items():
            largest = self._buckets.largest(name)
            if size > largest:
                field = f"spec.batching.shapeBuckets.{name}"
                raise InvalidRequestError(f"{name} is {size}; at most {largest} is admitted, the largest of {field}")
        if self._layout.batch is not None:
            sizes[self._layout.batch] = rows
        return sizes

    def _fill_up(self, shapes: Sequence[Sequence[int]]) -> tuple[int, Sequence[Sequence[int]]]:
        """Rows of the request, and its shapes with at least as many rows as the program takes."""
        axes = self._layout.inputs
        rows = next((s[a] for s, a in zip(shapes, axes, strict=True) if a is not None and a < len(s)), 1)
        fewest = self._layout.fewest
        if rows >= fewest:
            return rows, shapes
        return rows, [
            s if a is None or len(s) <= a or s[a] != rows else (*s[:a], fewest, *s[a + 1 :])
            for s, a in zip(shapes, axes, strict=True)
        ]


def _metadata(spec: TensorSpec) -> dict[str, Any]:
    shape = [-1 if isinstance(size, Expr) else size for size in spec.shape]
    return {"name": spec.name, "datatype": spec.datatype, "shape": shape}


def _list(names: Sequence[str] | Mapping[str, int]) -> str:
    return ", ".join(repr(name) for name in names) or "none"
