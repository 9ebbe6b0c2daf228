"""The Open Inference Protocol's documents: metadata out, inference requests in, answers out. Pure: no socket, no queue.

Shapes include the batch axis, and -1 where a size is symbolic. `parameters` are accepted and ignored, as the protocol
says of those a server does not know.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import orjson
import torch

from headway_runtime.batching.layout import Layout, Tensors
from headway_runtime.buckets import Buckets
from headway_runtime.errors import InvalidRequestError
from headway_runtime.prepare.sizes.expression import Expr
from headway_runtime.program import Program, ShapeError, TensorSpec
from headway_runtime.program.datatypes import BY_PROTOCOL
from headway_runtime.protocols import tensors

PLATFORM = "pytorch_pt2"


@dataclass(frozen=True, slots=True)
class Request:
    """A decoded inference request: inputs in the program's order, axis sizes by dimension, positions of the outputs."""

    id: str | None
    inputs: Tensors
    sizes: dict[str, int]
    bytes: int
    outputs: tuple[int, ...]


class Signature:
    """What one loaded program accepts and returns; decodes requests and encodes answers for it."""

    def __init__(self, program: Program, layout: Layout, buckets: Buckets) -> None:
        self._program = program
        self._layout = layout
        self._buckets = buckets
        self._inputs = {spec.name: position for position, spec in enumerate(program.inputs)}
        self._outputs = {spec.name: position for position, spec in enumerate(program.outputs)}
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

    def decode(self, body: bytes | bytearray) -> Request:
        """Parse and check a request. Raises InvalidRequestError: what is wrong, in which input, and what is allowed."""
        document = _object(body)
        given = _named(document.get("inputs"), "inputs", self._inputs)
        missing = [name for name in self._inputs if name not in given]
        if missing:
            raise InvalidRequestError(f"input {missing[0]!r} is missing; this model takes {_list(self._inputs)}")
        arrays = [_array(spec, given[spec.name]) for spec in self._program.inputs]
        sizes = self._bind([array.shape for array in arrays])
        return Request(
            id=_identifier(document.get("id")),
            inputs=tuple(torch.from_numpy(array) for array in arrays),
            sizes=sizes,
            bytes=sum(array.nbytes for array in arrays),
            outputs=self._wanted(document.get("outputs")),
        )

    def encode(self, request: Request, outputs: Tensors, identity: Mapping[str, str]) -> bytes:
        """The answer's body; `identity` holds `model_name` and `model_version`."""
        document: dict[str, Any] = dict(identity)
        if request.id is not None:
            document["id"] = request.id
        document["outputs"] = [_answer(self._program.outputs[at], outputs[at]) for at in request.outputs]
        return orjson.dumps(document, option=orjson.OPT_SERIALIZE_NUMPY)

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

    def _bind(self, shapes: Sequence[tuple[int, ...]]) -> dict[str, int]:
        """Axis sizes by symbol, within the program's ranges, its guards, and the buckets' ceilings."""
        rows, padded = self._fill_up(shapes)
        try:
            sizes = self._program.bind(padded)
        except ShapeError as error:
            raise InvalidRequestError(str(error)) from None
        key = tuple(sizes.values())
        if key not in self._checked:
            if len(self._checked) >= 4096:
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

    def _fill_up(self, shapes: Sequence[tuple[int, ...]]) -> tuple[int, Sequence[tuple[int, ...]]]:
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

    def _wanted(self, asked: object) -> tuple[int, ...]:
        if asked is None or asked == []:
            wanted = tuple(range(len(self._program.outputs)))
        else:
            wanted = tuple(self._outputs[name] for name in _named(asked, "outputs", self._outputs))
        for position in wanted:
            spec = self._program.outputs[position]
            if spec.datatype not in tensors.NUMPY:
                raise InvalidRequestError(f"output {spec.name!r}: {tensors.no_json(spec.datatype)}")
        return wanted


def server_metadata() -> dict[str, Any]:
    """GET /v2."""
    return {"name": "headway", "version": version("headway"), "extensions": []}


def error_body(message: str) -> bytes:
    """The protocol's error document."""
    return orjson.dumps({"error": message})


def _object(body: bytes | bytearray) -> dict[str, Any]:
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise InvalidRequestError(f"the body is not JSON: {error}") from None
    if not isinstance(document, dict):
        raise InvalidRequestError("the body must be a JSON object with an array 'inputs'")
    return document


def _identifier(value: object) -> str | None:
    if value is not None and not isinstance(value, str):
        raise InvalidRequestError("'id' must be a string")
    return value


def _named(value: object, what: str, known: Mapping[str, int]) -> dict[str, dict[str, Any]]:
    """The entries of `inputs` or `outputs` by name, each known and only once."""
    if not isinstance(value, list):
        raise InvalidRequestError(f"{what!r} must be an array; this model's are {_list(known)}")
    entries: dict[str, dict[str, Any]] = {}
    for entry in value:
        name = entry.get("name") if isinstance(entry, dict) else None
        if not isinstance(name, str):
            raise InvalidRequestError(f"every entry of {what!r} must be an object with a 'name'")
        if name not in known:
            raise InvalidRequestError(f"{what[:-1]} {name[:100]!r} is not one of this model's: {_list(known)}")
        if name in entries:
            raise InvalidRequestError(f"{what[:-1]} {name!r} is given twice")
        entries[name] = entry
    return entries


def _array(spec: TensorSpec, entry: Mapping[str, Any]) -> tensors.Array:
    datatype, shape = entry.get("datatype"), entry.get("shape")
    if datatype != spec.datatype:
        raise InvalidRequestError(f"input {spec.name!r}: 'datatype' must be {spec.datatype}, not {datatype!r:.40}")
    if not isinstance(shape, list) or not all(type(size) is int and 0 <= size < 2**40 for size in shape):
        raise InvalidRequestError(
            f"input {spec.name!r}: 'shape' must be an array of whole numbers; this model's is {_shape(spec)}"
        )
    if "data" not in entry:
        raise InvalidRequestError(f"input {spec.name!r}: 'data' is missing")
    return tensors.decode(spec.name, spec.datatype, shape, entry["data"])


def _answer(spec: TensorSpec, tensor: torch.Tensor) -> dict[str, Any]:
    return {
        "name": spec.name,
        "datatype": spec.datatype,
        "shape": list(tensor.shape),
        "data": tensors.encode(tensor.numpy()),
    }


def _metadata(spec: TensorSpec) -> dict[str, Any]:
    return {"name": spec.name, "datatype": spec.datatype, "shape": _shape(spec)}


def _shape(spec: TensorSpec) -> list[int]:
    return [-1 if isinstance(size, Expr) else size for size in spec.shape]


def _list(names: Mapping[str, int]) -> str:
    return ", ".join(repr(name) for name in names) or "none"
