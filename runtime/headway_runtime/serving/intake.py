"""What one loaded program accepts, and what it returns: names, datatypes, shapes. Pure: no socket, no queue.

Shapes include the batch axis, and -1 where a size is symbolic.
"""

from collections.abc import Collection, Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

import torch

from headway_runtime.batching.layout import Layout, Tensors
from headway_runtime.buckets import Admission, Buckets
from headway_runtime.errors import InvalidRequestError
from headway_runtime.prepare.sizes.expression import Expr
from headway_runtime.program import Program, ShapeError, TensorSpec
from headway_runtime.program.datatypes import BY_PROTOCOL
from headway_runtime.serving.values import BytesArray, Given, Output, Request, Value

_PROTOCOL = {dtype: name for name, dtype in BY_PROTOCOL.items()}
_BOUND = 4096  # combinations of shapes that are remembered


class _Bound(NamedTuple):
    """Axis sizes by dimension, rows, bytes of the inputs, sizes along the padded dimensions, and those in which
    requests that share a run agree. `alone`: it is beyond the buckets.
    """

    sizes: dict[str, int]
    rows: int
    bytes: int
    padded: tuple[int, ...]
    apart: tuple[int, ...]
    alone: bool


class Intake:
    """Checks requests for one program, and names its outputs.

    `tables`: input name -> rows of the smallest table that its numbers index (`proof.bounds`). To look at every number
    of every request would cost more than it saves; it is done when the program has failed (`blame`).
    """

    def __init__(
        self, program: Program, layout: Layout, buckets: Buckets, tables: Mapping[str, int] | None = None
    ) -> None:
        self._program = program
        self._tables = tables or {}
        self._layout = layout
        self._buckets = buckets
        self._inputs = tuple(spec.name for spec in program.inputs)
        self._names = frozenset(self._inputs)
        self._outputs = {spec.name: position for position, spec in enumerate(program.outputs)}
        self._all = tuple(range(len(program.outputs)))
        self._dtypes = tuple(BY_PROTOCOL[spec.datatype] for spec in program.inputs)
        self._expected = tuple(zip(self._inputs, self._dtypes, strict=True))
        self._bound: dict[tuple[Sequence[int], ...], _Bound | str] = {}
        self._splits = layout.batch is not None and _shapes_known(program)

    def describe(self) -> dict[str, Any]:
        """The `inputs` and `outputs` of a metadata answer."""
        return {
            "inputs": [metadata(spec) for spec in self._program.inputs],
            "outputs": [metadata(spec) for spec in self._program.outputs],
        }

    def smallest(self, *, rows: int | None = None) -> dict[str, tuple[int, ...]]:
        """Shapes of the inputs, by name, in the smallest bucket; with so many rows, where there are rows."""
        sizes = dict(self._buckets.combinations[-1])
        if rows is not None and self._layout.batch is not None:
            sizes[self._layout.batch] = rows
        return dict(zip(self._inputs, self._program.input_shapes(sizes), strict=True))

    @property
    def splits(self) -> bool:
        """Whether a request of many rows may be computed in parts: rows leave each other alone, and the parts of an
        output fit together, because no size of it depends on the data.
        """
        return self._splits

    def request(self, given: Given) -> Request:
        """A checked request. Raises InvalidRequestError: what is wrong, in which input, and what is allowed."""
        if given.inputs.keys() != self._names:
            raise self._misnamed(given.inputs)
        tensors: list[torch.Tensor] = []
        shapes: list[Sequence[int]] = []
        for name, dtype in self._expected:
            value = given.inputs[name]
            if isinstance(value, BytesArray) or value.dtype is not dtype:
                raise _mistyped(name, dtype, value)
            tensors.append(value)
            shapes.append(value.shape)
        inputs, bound = tuple(tensors), self._bind(tuple(shapes))
        return Request(
            inputs,
            bound.sizes,
            bound.rows,
            bound.bytes,
            self._all if given.outputs is None else self._wanted(given.outputs),
            bound.padded,
            None if bound.alone else self._layout.group_of(bound.apart, inputs),
        )

    def outputs(self, request: Request, tensors: Tensors) -> tuple[Output, ...]:
        """The wanted outputs, named."""
        specs = self._program.outputs
        return tuple([Output(specs[at].name, specs[at].datatype, tensors[at]) for at in request.outputs])

    def blame(self, request: Request) -> InvalidRequestError | None:
        """What is wrong with a request on which the program failed; None when that is not known."""
        for name, tensor in zip(self._inputs, request.inputs, strict=True):
            rows = self._tables.get(name)
            if rows is None or not tensor.numel():
                continue
            odd = next((int(end) for end in tensor.to(torch.int64).aminmax() if not 0 <= end < rows), None)
            if odd is not None:
                return InvalidRequestError(f"input {name!r} holds {odd}; the model knows 0 to {rows - 1}")
        return None

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

    def _bind(self, shapes: tuple[Sequence[int], ...]) -> "_Bound":
        """What the shapes of a request's inputs say, within the program's ranges, its guards and the buckets. Requests
        of the same shapes share what is returned.
        """
        found = self._bound.get(shapes)
        if found is None:
            if len(self._bound) >= _BOUND:
                self._bound.clear()
            found = self._bound[shapes] = self._first_of_its_shapes(shapes)
        if isinstance(found, str):
            raise InvalidRequestError(found)
        return found

    def _first_of_its_shapes(self, shapes: Sequence[Sequence[int]]) -> "_Bound | str":
        """The same, or why it is refused."""
        rows, runnable = self._within_a_run(shapes)
        try:
            sizes = self._program.bind(runnable)
        except ShapeError as error:
            return str(error)
        alone = self._admission(sizes)
        if isinstance(alone, str):
            return alone
        if self._layout.batch is not None:
            sizes[self._layout.batch] = rows
        layout = self._layout
        each = zip(shapes, self._dtypes, strict=True)
        size = sum(prod(shape) * dtype.itemsize for shape, dtype in each)
        return _Bound(sizes, layout.rows(sizes), size, layout.padded_sizes(sizes), layout.apart(sizes), alone)

    def _admission(self, sizes: dict[str, int]) -> str | bool:
        """Why a run of these sizes is refused; or whether it is beyond the buckets."""
        broken = self._program.check(sizes)
        if broken is not None:
            return f"these shapes are outside what the program allows: {broken}"
        admission = self._buckets.admission(sizes)
        if admission is not Admission.REFUSED:
            return admission is Admission.OVERSIZE
        refusal = self._buckets.refusal(sizes) or "these sizes are not admitted"
        batch = self._layout.batch
        if batch is not None and sizes[batch] > self._buckets.largest(batch):
            return f"{refusal}; it is not split, because the size of an output depends on its data"
        return refusal

    def _within_a_run(self, shapes: Sequence[Sequence[int]]) -> tuple[int, Sequence[Sequence[int]]]:
        """Rows of the request, and its shapes with as many rows as one run of it has: at least what the program takes,
        and no more than the largest bucket where the request may be split.
        """
        axes, batch = self._layout.inputs, self._layout.batch
        rows = next((s[a] for s, a in zip(shapes, axes, strict=True) if a is not None and a < len(s)), 1)
        run = max(rows, self._layout.fewest)
        if self._splits and batch is not None:
            run = min(run, max(self._buckets.largest(batch), self._layout.fewest))
        if run == rows:
            return rows, shapes
        return rows, [
            s if a is None or len(s) <= a or s[a] != rows else (*s[:a], run, *s[a + 1 :])
            for s, a in zip(shapes, axes, strict=True)
        ]


def _mistyped(name: str, dtype: torch.dtype, value: Value) -> InvalidRequestError:
    found = "BYTES" if isinstance(value, BytesArray) else _PROTOCOL[value.dtype]
    return InvalidRequestError(f"input {name!r}: 'datatype' must be {_PROTOCOL[dtype]}, not {found}")


def _shapes_known(program: Program) -> bool:
    """Whether no size of an output depends on the data."""
    known = {dimension.symbol for dimension in program.dimensions.values()}
    axes = (size for spec in program.outputs for size in spec.shape if isinstance(size, Expr))
    return all(size.symbols() <= known for size in axes)


def metadata(spec: TensorSpec) -> dict[str, Any]:
    """A tensor as metadata show it; -1 where its size is symbolic."""
    shape = [-1 if isinstance(size, Expr) else size for size in spec.shape]
    return {"name": spec.name, "datatype": spec.datatype, "shape": shape}


def _list(names: Sequence[str] | Mapping[str, int]) -> str:
    return ", ".join(repr(name) for name in names) or "none"
