"""The Open Inference Protocol's JSON documents: inference requests in, answers out. Pure: no socket, no queue.

`parameters` are accepted and ignored, as the protocol says of those a server does not know.
"""

from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

import orjson
import torch

from headway_runtime.errors import InvalidRequestError
from headway_runtime.protocols import tensors
from headway_runtime.serving.values import BytesArray, Given, Reply

PLATFORM = "pytorch_pt2"


def decode(body: bytes | bytearray) -> tuple[str | None, Given]:
    """The request's `id`, and what it gives. Raises InvalidRequestError: what is wrong, and where."""
    document = _object(body)
    inputs = {name: _tensor(name, entry) for name, entry in _named(document.get("inputs"), "inputs").items()}
    asked = document.get("outputs")
    outputs = tuple(_named(asked, "outputs")) if asked else None
    return _identifier(document.get("id")), Given(inputs, outputs)


def encode(identifier: str | None, reply: Reply, identity: Mapping[str, str]) -> bytes:
    """The answer's body; `identity` holds `model_name` and `model_version`."""
    document: dict[str, Any] = dict(identity)
    if identifier is not None:
        document["id"] = identifier
    document["outputs"] = [
        {
            "name": output.name,
            "datatype": output.datatype,
            "shape": list(output.value.shape),
            "data": _data(output.name, output.datatype, output.value),
        }
        for output in reply.outputs
    ]
    return orjson.dumps(document, option=orjson.OPT_SERIALIZE_NUMPY)


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


def _tensor(name: str, entry: Mapping[str, Any]) -> torch.Tensor:
    datatype, shape = entry.get("datatype"), entry.get("shape")
    if not isinstance(datatype, str):
        raise InvalidRequestError(f"input {name[:100]!r}: 'datatype' must be a datatype such as FP32")
    if not isinstance(shape, list) or not all(type(size) is int and 0 <= size < 2**40 for size in shape):
        raise InvalidRequestError(f"input {name[:100]!r}: 'shape' must be an array of whole numbers")
    if "data" not in entry:
        raise InvalidRequestError(f"input {name[:100]!r}: 'data' is missing")
    return torch.from_numpy(tensors.decode(name[:100], datatype, shape, entry["data"]))


def _data(name: str, datatype: str, value: torch.Tensor | BytesArray) -> Any:
    if isinstance(value, BytesArray):
        return [item.decode(errors="replace") for item in value.items]
    if datatype not in tensors.NUMPY:
        raise InvalidRequestError(f"output {name!r}: {tensors.no_json(datatype)}")
    return tensors.encode(value.numpy())
