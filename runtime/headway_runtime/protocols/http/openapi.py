"""The description of the hot routes, for this very model: inputs, an example that works, answers, their headers."""

import math
from typing import Any

from headway_api.names import NOT_ADMITTED_HEADER, PRIORITY_HEADER, REVISION_HEADER, TIMEOUT_HEADER

from headway_runtime.pod import Generator, Model, Pod
from headway_runtime.protocols import tensors
from headway_runtime.protocols.http.answers import BATCH_HEADER, CACHE_HEADER, QUEUE_HEADER
from headway_runtime.protocols.http.heads import BINARY_HEADER

_MANY = 4096  # numbers in an example

_ERROR = {"type": "object", "required": ["error"], "properties": {"error": {"type": "string"}}}
_TEXT = "Flat in row-major order, or nested like `shape`."
_SPECIAL = ' Not a number and infinity are the texts "NaN", "Infinity" and "-Infinity".'
_BINARY = (
    "Tensors may follow the JSON as they are (little-endian, row-major; BYTES: each element after its length in 4"
    f" bytes): the header `{BINARY_HEADER}` says how long the JSON is, and an input has"
    " `parameters: {binary_data_size: <bytes>}` in place of `data`. An output comes so when it is asked for with"
    " `parameters: {binary_data: true}`, or all of them with the request's `parameters: {binary_data_output: true}`."
)
_REFUSALS = {
    "400": "What is wrong, in which input, and what is allowed.",
    "404": "Another model or version than this pod's.",
    "413": "More than is ever admitted: `spec.limits.requestBytes`, `spec.batching.queue`.",
    "415": "A compression that is not read; gzip and deflate are.",
    "429": "The queue is full; `retry-after` says when to come back.",
    "500": "The program failed on this request.",
    "503": "Loading, warming or ending; no model has seen the request.",
    "504": "It did not start in time.",
}


def hot_paths(pod: Pod) -> dict[str, Any]:
    """The paths of an OpenAPI document, by path."""
    base = f"/v2/models/{pod.config.model}"
    ready = {"get": _health("Readiness", "Ready.", "Why not.")}
    paths = {
        f"{base}/ready": ready,
        f"{base}/versions/{pod.config.revision}/ready": ready,
        "/v2/health/ready": ready,
        "/v2/health/live": {"get": _health("Liveness", "Alive.", None)},
    }
    if isinstance(pod.model, Generator):
        return paths
    infer = {"post": _infer(pod)}
    return {f"{base}/infer": infer, f"{base}/versions/{pod.config.revision}/infer": infer, **paths}


def example(model: Model) -> dict[str, Any] | None:
    """A request that is answered: ones, in the smallest warmed sizes; without rows where those are many numbers. None:
    an input cannot be written in JSON.
    """
    inputs = model.intake.describe()["inputs"]
    shapes = model.intake.smallest()
    if any(entry["datatype"] not in tensors.NUMPY for entry in inputs):
        return None
    if sum(math.prod(shape) for shape in shapes.values()) > _MANY:
        shapes = model.intake.smallest(rows=0)
    return {"inputs": [_example(entry, shapes[entry["name"]]) for entry in inputs]}


def _example(entry: dict[str, Any], shape: tuple[int, ...]) -> dict[str, Any]:
    one: Any = True if entry["datatype"] == "BOOL" else 1
    return {
        "name": entry["name"],
        "datatype": entry["datatype"],
        "shape": list(shape),
        "data": [one] * math.prod(shape),
    }


def _infer(pod: Pod) -> dict[str, Any]:
    described = {"inputs": [], "outputs": []} if pod.model is None else pod.model.describe()
    schema: dict[str, Any] = {
        "type": "object",
        "required": ["inputs"],
        "properties": {
            "id": {"type": "string", "description": "Comes back with the answer."},
            "inputs": {"type": "array", "items": _one_of(described["inputs"], data=True)},
            "outputs": {
                "type": "array",
                "items": _one_of(described["outputs"], data=False),
                "description": "The outputs that are wanted, by `name`; without it, all.",
            },
        },
    }
    content: dict[str, Any] = {"schema": schema}
    shown = example(pod.model) if isinstance(pod.model, Model) else None
    if shown is not None:
        content["example"] = shown
    binary = {"schema": {"type": "string", "format": "binary"}}
    return {
        "summary": "Inference",
        "description": f"{_lines(described)}\n\n{_BINARY}",
        "parameters": [
            _header(TIMEOUT_HEADER, "A duration such as 200ms: the request must have begun by then."),
            _header(PRIORITY_HEADER, "low, normal or high."),
            _header(BINARY_HEADER, "Bytes of the JSON, when tensors follow it.", "integer"),
        ],
        "requestBody": {"required": True, "content": {"application/json": content, "application/octet-stream": binary}},
        "responses": {"200": _answer(described), **{status: _refusal(status) for status in _REFUSALS}},
    }


def _answer(described: dict[str, Any]) -> dict[str, Any]:
    return {
        "description": "The outputs.",
        "headers": {
            REVISION_HEADER: _said("The revision that answered."),
            QUEUE_HEADER: _said("Milliseconds that the request waited for its run.", "number"),
            BATCH_HEADER: _said("Rows of that run.", "integer"),
            CACHE_HEADER: _said("`hit` when the answer was kept from an equal request."),
        },
        "content": {
            "application/json": {
                "schema": {
                    "type": "object",
                    "required": ["model_name", "model_version", "outputs"],
                    "properties": {
                        "model_name": {"type": "string"},
                        "model_version": {"type": "string"},
                        "id": {"type": "string"},
                        "outputs": {"type": "array", "items": _one_of(described["outputs"], data=True)},
                    },
                }
            },
            "application/octet-stream": {"schema": {"type": "string", "format": "binary"}},
        },
    }


def _one_of(specs: list[dict[str, Any]], *, data: bool) -> dict[str, Any]:
    """The schema of a tensor, which is one of these."""
    properties: dict[str, Any] = {"name": {"type": "string"}, "parameters": {"type": "object"}}
    if specs:
        properties["name"]["enum"] = [spec["name"] for spec in specs]
    if data:
        datatypes = sorted({spec["datatype"] for spec in specs})
        properties |= {
            "datatype": {"type": "string", **({"enum": datatypes} if datatypes else {})},
            "shape": {"type": "array", "items": {"type": "integer", "minimum": 0}},
            "data": {"type": "array", "items": {}, "description": _TEXT + _SPECIAL},
        }
    required = ["name", "datatype", "shape"] if data else ["name"]
    return {"type": "object", "required": required, "properties": properties}


def _lines(described: dict[str, Any]) -> str:
    lines = [
        f"- {kind} `{spec['name']}`: {spec['datatype']} {spec['shape']}"
        + ("" if spec["datatype"] in tensors.NUMPY or spec["datatype"] == "BYTES" else ", in binary only")
        for kind, specs in (("input", described["inputs"]), ("output", described["outputs"]))
        for spec in specs
    ]
    return "\n".join(lines) or "The model is not loaded yet."


def _refusal(status: str) -> dict[str, Any]:
    headers: dict[str, Any] = {REVISION_HEADER: _said("The revision that answered.")}
    if status in ("429", "503"):
        headers[NOT_ADMITTED_HEADER] = _said("1: no model has seen the request, it may be sent to another pod.")
    if status == "429":
        headers["retry-after"] = _said("Seconds.", "integer")
    return {
        "description": _REFUSALS[status],
        "headers": headers,
        "content": {"application/json": {"schema": _ERROR}},
    }


def _health(summary: str, good: str, bad: str | None) -> dict[str, Any]:
    refused = {} if bad is None else {"503": {"description": bad, "content": {"application/json": {"schema": _ERROR}}}}
    return {"summary": summary, "responses": {"200": {"description": good}, **refused}}


def _header(name: str, description: str, kind: str = "string") -> dict[str, Any]:
    return {"name": name, "in": "header", "description": description, "schema": {"type": kind}}


def _said(description: str, kind: str = "string") -> dict[str, Any]:
    return {"description": description, "schema": {"type": kind}}
