"""Tensors in gRPC messages, both ways. Pure.

A request's tensors are raw bytes, or numbers in the field of their datatype; the answer's are as the request's were,
and raw where a datatype has no field (FP16, BF16).
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from headway_runtime.errors import InvalidRequestError, UnsupportedEncodingError
from headway_runtime.program.datatypes import BY_PROTOCOL
from headway_runtime.protocols import binary
from headway_runtime.protocols.grpc.proto import inference_pb2 as pb
from headway_runtime.protocols.tensors import MAX_AXES, PIECE, check_texts
from headway_runtime.serving.values import BytesArray, Given, Reply, Value

FIELDS = {
    "BOOL": "bool_contents",
    **dict.fromkeys(("INT8", "INT16", "INT32"), "int_contents"),
    "INT64": "int64_contents",
    **dict.fromkeys(("UINT8", "UINT16", "UINT32"), "uint_contents"),
    "UINT64": "uint64_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
    "BYTES": "bytes_contents",
}
_LARGEST = 2**40  # of an axis
_SHARED_MEMORY = "shared_memory_region"
_CLASSES = "classification"


def given(request: pb.ModelInferRequest) -> Given:
    """What a request gives. Raises InvalidRequestError, or UnsupportedEncodingError for shared memory."""
    raw = request.raw_input_contents
    if raw and len(raw) != len(request.inputs):
        raise InvalidRequestError(f"{len(raw)} raw_input_contents for {len(request.inputs)} inputs; give one for each")
    inputs: dict[str, Value] = {}
    for at, entry in enumerate(request.inputs):
        name = entry.name
        if name in inputs:
            raise InvalidRequestError(f"input {name[:100]!r} is given twice")
        if _SHARED_MEMORY in entry.parameters:
            raise UnsupportedEncodingError(f"input {name[:100]!r}: shared memory is not read here; send the tensor")
        shape = _shape(name, entry.shape)
        if raw and entry.HasField("contents"):
            raise InvalidRequestError(f"input {name[:100]!r} has contents, beside raw_input_contents; give one of both")
        inputs[name] = (
            from_raw(name, entry.datatype, shape, raw[at])
            if raw
            else from_contents(name, entry.datatype, shape, entry.contents)
        )
    if not request.outputs:
        return Given(inputs)
    names, classes = _wanted(request)
    return Given(inputs, names, classes)


def fill(answer: pb.ModelInferResponse, reply: Reply, *, raw: bool) -> None:
    """Write the outputs into an answer."""
    for name, number in reply.parameters.items():
        answer.parameters[name].int64_param = number
    raw = raw or any(output.datatype not in FIELDS for output in reply.outputs)
    for output in reply.outputs:
        entry = answer.outputs.add(name=output.name, datatype=output.datatype, shape=output.value.shape)
        if raw:
            answer.raw_output_contents.append(binary.encode(output.value))
        else:
            getattr(entry.contents, FIELDS[output.datatype]).extend(_elements(output.value))


def from_raw(name: str, datatype: str, shape: tuple[int, ...], data: bytes) -> Value:
    """A tensor from its bytes. Raises InvalidRequestError naming the input when they do not fit."""
    if datatype != "BYTES":
        wanted = math.prod(shape) * _dtype(name, datatype).itemsize
        if len(data) != wanted:
            raise InvalidRequestError(
                f"input {name[:100]!r}: {len(data)} bytes; shape {list(shape)} of {datatype} needs {wanted}"
            )
    return binary.decode(name[:100], datatype, shape, data, 0, len(data))


def from_contents(name: str, datatype: str, shape: tuple[int, ...], contents: pb.InferTensorContents) -> Value:
    """A tensor from numbers. Raises InvalidRequestError naming the input when they do not fit."""
    field = FIELDS.get(datatype)
    if field is None:
        _dtype(name, datatype)
        raise InvalidRequestError(f"input {name[:100]!r}: {datatype} has no contents; send raw_input_contents")
    values: Sequence[Any] = getattr(contents, field)
    count = math.prod(shape)
    if len(values) != count:
        given_ = ", ".join(f"{len(each)} {field.name}" for field, each in contents.ListFields()) or "none"
        raise InvalidRequestError(
            f"input {name[:100]!r}: shape {list(shape)} of {datatype} needs {count} {field}; there are {given_}"
        )
    if datatype == "BYTES":
        check_texts(name[:100], count)
        return BytesArray(shape, tuple(values))
    return torch.from_numpy(_numbers(name, datatype, values)).reshape(shape)


def _numbers(name: str, datatype: str, values: Sequence[Any]) -> np.ndarray[Any, np.dtype[Any]]:
    wanted = np.dtype({"BOOL": "bool", "FP32": "float32", "FP64": "float64"}.get(datatype, datatype.lower()))
    array = np.empty(len(values), wanted)
    try:
        for at in range(0, len(values), PIECE):  # with pauses for other threads
            part = values[at : at + PIECE]
            array[at : at + PIECE] = np.fromiter(part, wanted, len(part))
        return array
    except OverflowError:
        limits = np.iinfo(wanted)
        raise InvalidRequestError(
            f"input {name[:100]!r}: a value is outside {datatype}, {limits.min} to {limits.max}"
        ) from None


def _elements(value: Value) -> Sequence[Any]:
    return value.items if isinstance(value, BytesArray) else value.reshape(-1).tolist()


def _dtype(name: str, datatype: str) -> torch.dtype:
    dtype = BY_PROTOCOL.get(datatype)
    if dtype is None:
        known = ", ".join((*BY_PROTOCOL, "BYTES"))
        raise InvalidRequestError(f"input {name[:100]!r}: datatype {datatype[:40]!r} is none of {known}")
    return dtype


def _shape(name: str, shape: Sequence[int]) -> tuple[int, ...]:
    if len(shape) > MAX_AXES:
        raise InvalidRequestError(f"input {name[:100]!r}: 'shape' has {len(shape)} axes; at most {MAX_AXES} are read")
    if not all(0 <= size < _LARGEST for size in shape):
        raise InvalidRequestError(f"input {name[:100]!r}: 'shape' {list(shape)} has a size that no tensor has")
    return tuple(shape)


def _wanted(request: pb.ModelInferRequest) -> tuple[tuple[str, ...], dict[str, int]]:
    """Names of the outputs that are asked for, and of how many of them the best classes."""
    classes: dict[str, int] = {}
    names: dict[str, None] = {}
    for output in request.outputs:
        name = output.name
        if name in names:
            raise InvalidRequestError(f"output {name[:100]!r} is asked for twice")
        names[name] = None
        if _SHARED_MEMORY in output.parameters:
            raise UnsupportedEncodingError(f"output {name[:100]!r}: shared memory is not written; take the tensor")
        if _CLASSES in output.parameters:
            most = output.parameters[_CLASSES]
            classes[name] = most.int64_param or most.uint64_param
            if not 0 < classes[name] < 2**31:
                raise InvalidRequestError(f"output {name[:100]!r}: {_CLASSES!r} must be a number of classes")
    return tuple(names), classes
