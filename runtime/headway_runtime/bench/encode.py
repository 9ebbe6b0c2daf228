"""Requests of the Open Inference Protocol v2 as bytes on the wire, made once, sent often."""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import orjson

from headway_runtime.bench.errors import BenchError
from headway_runtime.bench.inputs import Array, Request
from headway_runtime.bench.model import ModelInfo

BINARY_HEADER = "inference-header-content-length"
JSON_TYPE = "application/json"
BINARY_TYPE = "application/octet-stream"


@dataclass(frozen=True, slots=True)
class Body:
    """A request's body, and the headers that say how to read it."""

    content: bytes
    headers: tuple[tuple[str, str], ...]


def json_body(model: ModelInfo, request: Request) -> Body:
    """All in JSON. Raises BenchError for FP16 and BF16, which have no spelling there."""
    inputs = []
    for tensor in model.inputs:
        if tensor.datatype in ("FP16", "BF16"):
            raise BenchError(f"input {tensor.name} is {tensor.datatype}, which JSON cannot carry; use --binary")
        array = np.ascontiguousarray(request.arrays[tensor.name]).reshape(-1)
        data = [_as_json(item) for item in array] if tensor.datatype == "BYTES" else array
        shape = list(request.arrays[tensor.name].shape)
        inputs.append({"name": tensor.name, "datatype": tensor.datatype, "shape": shape, "data": data})
    content = orjson.dumps({"inputs": inputs}, option=orjson.OPT_SERIALIZE_NUMPY)
    return Body(content, (("content-type", JSON_TYPE),))


def binary_body(model: ModelInfo, request: Request) -> Body:
    """The protocol's binary tensor extension: a JSON head, then the tensors' bytes; outputs are asked for alike."""
    inputs, parts = [], []
    for tensor in model.inputs:
        array = request.arrays[tensor.name]
        part = _text_bytes(array) if tensor.datatype == "BYTES" else np.ascontiguousarray(array).tobytes()
        parts.append(part)
        size = {"binary_data_size": len(part)}
        shape = list(array.shape)
        inputs.append({"name": tensor.name, "datatype": tensor.datatype, "shape": shape, "parameters": size})
    head = orjson.dumps({"parameters": {"binary_data_output": True}, "inputs": inputs})
    return Body(b"".join([head, *parts]), (("content-type", BINARY_TYPE), (BINARY_HEADER, str(len(head)))))


def http_request(host: str, path: str, body: Body, extra: Mapping[str, str] | None = None) -> bytes:
    """A whole HTTP/1.1 request."""
    headers = (("host", host), *body.headers, ("content-length", str(len(body.content))), *(extra or {}).items())
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers)
    return f"POST {path} HTTP/1.1\r\n{lines}\r\n".encode() + body.content


def http_requests(
    model: ModelInfo, requests: Sequence[Request], *, host: str, binary: bool = False, **headers: str
) -> list[bytes]:
    """Every request as bytes, for `POST /v2/models/NAME/infer`; underscores in names of `headers` become dashes."""
    extra = {name.replace("_", "-"): value for name, value in headers.items()}
    body = binary_body if binary else json_body
    path = f"/v2/models/{model.name}/infer"
    return [http_request(host, path, body(model, request), extra) for request in requests]


def _as_json(item: object) -> str:
    """A text as it is, bytes in base64."""
    return base64.b64encode(item).decode() if isinstance(item, bytes) else str(item)


def _text_bytes(array: Array) -> bytes:
    """Each element with its length in four bytes before it, little-endian."""
    texts = [item if isinstance(item, bytes) else str(item).encode() for item in array.reshape(-1)]
    return b"".join(len(text).to_bytes(4, "little") + text for text in texts)
