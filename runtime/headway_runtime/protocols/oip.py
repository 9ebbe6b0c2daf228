"""The Open Inference Protocol's documents: inference requests in, answers out. Pure: no socket, no queue.

A body is JSON, or JSON followed by tensors (the binary tensor extension). `parameters` that are not known are accepted
and ignored, as the protocol says; those that ask for another meaning of the data are refused.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.metadata import version
from typing import Any

import orjson
import torch

from headway_runtime.errors import InvalidRequestError
from headway_runtime.light import light
from headway_runtime.protocols import binary, tensors
from headway_runtime.protocols.pieces import Numbers, check_count, json_object, lift
from headway_runtime.serving.values import BytesArray, Given, Output, Reply, Value

PLATFORM = "pytorch_pt2"
EXTENSIONS = ("binary_tensor_data", "classification", "model_configuration", "statistics")

_SHARED_MEMORY = "shared_memory_region"


@light
class Question:
    """A decoded request: its `id`, what it gives, and which outputs it wants in binary: `chosen` by name, else all."""

    identifier: str | None
    given: Given
    in_binary: bool = False
    chosen: Mapping[str, bool] = field(default_factory=dict)


@light
class Written:
    """The body of an answer. `json_length`: bytes of the JSON before the tensors; None when all of it is JSON."""

    parts: tuple[bytes, ...]
    length: int
    json_length: int | None = None


def decode(body: bytes | bytearray, json_length: int | None = None, *, in_pieces: bool = False) -> Question:
    """The request. Raises InvalidRequestError: what is wrong, and where. `in_pieces`: with pauses for other threads."""
    text = body if json_length is None else _front(body, json_length)
    lifted: Mapping[str, Numbers] = {}
    if in_pieces:
        text, lifted = lift(bytes(text))
        check_count(text)
    document = json_object(text, " with an array 'inputs'")
    reader = _Reader(body, json_length, lifted)
    inputs: dict[str, Value] = {}
    for name, entry in _named(document.get("inputs"), "inputs").items():
        inputs[name] = reader.tensor(name, entry)
    reader.end()
    identifier, asked, parameters = document.get("id"), document.get("outputs"), document.get("parameters")
    if identifier is not None and not isinstance(identifier, str):
        raise InvalidRequestError("'id' must be a string")
    in_binary = parameters is not None and _flag(parameters, "binary_data_output", "the request") is True
    if not asked:
        return Question(identifier, Given(inputs), in_binary)
    wanted = _wanted(_named(asked, "outputs"))
    return Question(identifier, Given(inputs, tuple(wanted.names), wanted.classes), in_binary, wanted.in_binary)


def encode(question: Question, reply: Reply, identity: bytes) -> Written:
    """The answer's body; `identity` is what `identify` returns. Raises InvalidRequestError: not for JSON."""
    heads: list[bytes] = []
    tails: list[bytes] = []
    for output in reply.outputs:
        described = _described(output.name, output.datatype, output.value.shape)
        if question.chosen.get(output.name, question.in_binary):
            tail = binary.encode(output.value)
            heads.append(b'%b,"parameters":{"binary_data_size":%d}}' % (described, len(tail)))
            tails.append(tail)
        else:
            heads.append(b"".join((described, b',"data":', _data(output), b"}")))
    named = b"" if question.identifier is None else b',"id":' + orjson.dumps(question.identifier)
    more = b',"parameters":' + orjson.dumps(dict(reply.parameters)) if reply.parameters else b""
    text = b"".join((identity, named, more, b',"outputs":[', b",".join(heads), b"]}"))
    if not tails:
        return Written((text,), len(text))
    return Written((text, *tails), len(text) + sum(map(len, tails)), len(text))


def identify(model: str, revision: str) -> bytes:
    """The begin of every answer."""
    return orjson.dumps({"model_name": model, "model_version": revision})[:-1]


def server_metadata() -> dict[str, Any]:
    """GET /v2."""
    return {"name": "headway", "version": version("headway"), "extensions": list(EXTENSIONS)}


def error_body(message: str) -> bytes:
    """The protocol's error document."""
    return orjson.dumps({"error": message})


class _Reader:
    """Takes the tensors of a request, in the order of its inputs."""

    __slots__ = ("_at", "_body", "_lifted", "_numbers_only")

    def __init__(self, body: bytes | bytearray, json_length: int | None, lifted: Mapping[str, Numbers]) -> None:
        self._body = body
        self._lifted = lifted
        self._at = len(body) if json_length is None else json_length
        self._numbers_only = json_length is None and not _holds(body, b"true", 1) and not _holds(body, b"false", 2)

    def tensor(self, name: str, entry: Mapping[str, Any]) -> Value:
        """The next one. Raises InvalidRequestError."""
        datatype, shape = entry.get("datatype"), _shape(name, entry.get("shape"))
        if not isinstance(datatype, str):
            raise InvalidRequestError(f"input {name[:100]!r}: 'datatype' must be a datatype such as FP32")
        parameters = entry.get("parameters")
        size = None if parameters is None else _size(name, parameters)
        if size is not None:
            return self._binary(name[:100], datatype, shape, entry, size)
        if "data" not in entry:
            raise InvalidRequestError(f"input {name[:100]!r}: 'data' is missing")
        data = entry["data"]
        if datatype == "BYTES":
            return BytesArray(tuple(shape), tensors.texts(name[:100], shape, data))
        if self._lifted and isinstance(data, str) and data in self._lifted:
            return torch.from_numpy(tensors.decode_parts(name[:100], datatype, shape, self._lifted[data]))
        return torch.from_numpy(tensors.decode(name[:100], datatype, shape, data, numbers_only=self._numbers_only))

    def end(self) -> None:
        """Raises InvalidRequestError when something is left."""
        if self._at != len(self._body):
            raise InvalidRequestError(f"{len(self._body) - self._at} bytes follow the tensors that the inputs describe")

    def _binary(self, name: str, datatype: str, shape: list[int], entry: Mapping[str, Any], size: int) -> Value:
        if "data" in entry:
            raise InvalidRequestError(f"input {name!r} has both 'data' and 'binary_data_size'")
        left = len(self._body) - self._at
        if size > left:
            raise InvalidRequestError(
                f"input {name!r}: 'binary_data_size' is {size}, and {left} bytes are left after the JSON and the inputs"
                " before it (header inference-header-content-length says where the JSON ends)"
            )
        start, self._at = self._at, self._at + size
        return binary.decode(name, datatype, shape, self._body, start, self._at)


def _holds(body: bytes | bytearray, word: bytes, rare: int) -> bool:
    """Whether a body holds a word; `rare` is the place of its letter that the protocol's own words hardly have.

    One letter is found at the speed of memory, a word at a fifth of it, which would cost as much as parsing.
    """
    letter = word[rare]
    at = -1
    for _ in range(8):
        at = body.find(letter, at + 1)
        if at < 0:
            return False
        if body[at - rare : at - rare + len(word)] == word:
            return True
    return word in body


def _front(body: bytes | bytearray, json_length: int) -> memoryview:
    if json_length > len(body):
        raise InvalidRequestError(
            f"header inference-header-content-length is {json_length}, and the body has {len(body)} bytes"
        )
    return memoryview(body)[:json_length]


def _named(value: object, what: str) -> dict[str, dict[str, Any]]:
    """The entries of `inputs` or `outputs` by name, each only once."""
    if not isinstance(value, list):
        raise InvalidRequestError(f"{what!r} must be an array of objects with a 'name'")
    entries: dict[str, dict[str, Any]] = {}
    for entry in value:
        name = entry.get("name") if isinstance(entry, dict) else None
        if not isinstance(name, str):
            raise InvalidRequestError(f"every entry of {what!r} must be an object with a 'name'")
        if name in entries:
            raise InvalidRequestError(f"{what[:-1]} {name[:100]!r} is given twice")
        entries[name] = entry
    return entries


def _shape(name: str, shape: object) -> list[int]:
    if isinstance(shape, list):
        for size in shape:
            if type(size) is not int or not 0 <= size < 2**40:
                break
        else:
            if len(shape) > tensors.MAX_AXES:
                raise InvalidRequestError(
                    f"input {name[:100]!r}: 'shape' has {len(shape)} axes; at most {tensors.MAX_AXES} are read"
                )
            return shape
    raise InvalidRequestError(f"input {name[:100]!r}: 'shape' must be an array of whole numbers")


def _size(name: str, parameters: object) -> int | None:
    where = f"input {name[:100]!r}"
    if not isinstance(parameters, dict):
        raise InvalidRequestError(f"{where}: 'parameters' must be an object")
    _refuse_shared_memory(where, parameters)
    size = parameters.get("binary_data_size")
    if size is not None and (type(size) is not int or size < 0):
        raise InvalidRequestError(f"{where}: 'binary_data_size' must be a number of bytes")
    return size


def _flag(parameters: object, key: str, where: str) -> bool | None:
    if not isinstance(parameters, dict):
        raise InvalidRequestError(f"{where}: 'parameters' must be an object")
    value = parameters.get(key)
    if value is not None and not isinstance(value, bool):
        raise InvalidRequestError(f"{where}: {key!r} must be true or false")
    return value


@dataclass(slots=True)
class _Wanted:
    names: list[str] = field(default_factory=list)
    in_binary: dict[str, bool] = field(default_factory=dict)
    classes: dict[str, int] = field(default_factory=dict)


def _wanted(outputs: Mapping[str, dict[str, Any]]) -> _Wanted:
    wanted = _Wanted(list(outputs))
    for name, entry in outputs.items():
        parameters = entry.get("parameters")
        if parameters is None:
            continue
        where = f"output {name[:100]!r}"
        flag = _flag(parameters, "binary_data", where)
        _refuse_shared_memory(where, parameters)
        if flag is not None:
            wanted.in_binary[name] = flag
        most = parameters.get("classification")
        if most is not None:
            if type(most) is not int or not 0 < most < 2**31:
                raise InvalidRequestError(f"{where}: 'classification' must be a number of classes")
            wanted.classes[name] = most
    return wanted


def _refuse_shared_memory(where: str, parameters: Mapping[str, Any]) -> None:
    if _SHARED_MEMORY in parameters:
        raise InvalidRequestError(f"{where}: shared memory is not served here; send and ask for the tensor itself")


@lru_cache(1024)
def _described(name: str, datatype: str, shape: tuple[int, ...]) -> bytes:
    return orjson.dumps({"name": name, "datatype": datatype, "shape": list(shape)})[:-1]


def _data(output: Output) -> bytes:
    value = output.value
    if isinstance(value, BytesArray):
        try:
            return orjson.dumps([item.decode() for item in value.items])
        except UnicodeDecodeError:
            raise InvalidRequestError(
                f"output {output.name!r} is not text (UTF-8); ask for it with parameters binary_data: true"
            ) from None
    if output.datatype not in tensors.NUMPY:
        raise InvalidRequestError(f"output {output.name!r}: {tensors.no_json(output.datatype)}")
    return tensors.encode(value.numpy())
