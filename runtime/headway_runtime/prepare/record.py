"""Headway's own record, ``extra/headway.json``: what a plain export cannot say, above all the names of dimensions.

    {"version": 1, "torch": "2.15.0", "device": "cpu",
     "dimensions": [{"input": "ids", "axis": 0, "name": "batch"}, …], "outputs": ["embedding"],
     "samples": [{"inputs": [{"dtype": "int64", "shape": [2, 7], "data": "<base64>"}, …], "outputs": […]}]}

Like everything in the file it is inspected: known fields only, bounded, names printable.
"""

import base64
import binascii
import math
import re
from dataclasses import dataclass
from typing import Any

from headway_runtime.prepare import names, strict_json, tensors
from headway_runtime.prepare.errors import Refusal

NAME = "extra/headway.json"
VERSION = 1
MAX_BYTES = 8 << 20
MAX_SAMPLE_BYTES = 4 << 20

_FIELDS = {"version", "torch", "device", "dimensions", "outputs", "samples"}
_DIMENSION = re.compile(r"[a-z]([a-z0-9_-]{0,61}[a-z0-9])?\Z", re.ASCII)


@dataclass(frozen=True, slots=True)
class Record:
    """``dimensions``: (input, axis, name); ``outputs``: names in order, or None; ``samples``: as in the file."""

    dimensions: tuple[tuple[str, int, str], ...] = ()
    outputs: tuple[str, ...] | None = None
    samples: tuple[dict[str, Any], ...] = ()


def parse(data: bytes) -> Record:
    """Raises Refusal ``record.form``."""
    document = strict_json.parse(data)
    if not isinstance(document, dict) or set(document) - _FIELDS or document.get("version") != VERSION:
        raise Refusal("record.form", f"version {VERSION} with fields {sorted(_FIELDS)}")
    dimensions = tuple(_dimension(d) for d in _items(document, "dimensions"))
    outputs = (
        tuple(names.check_printable(_is(o, str)) for o in _items(document, "outputs"))
        if "outputs" in document
        else None
    )
    samples = tuple(_sample(s) for s in _items(document, "samples"))
    return Record(dimensions, outputs, samples)


def _items(document: dict[str, Any], key: str) -> list[Any]:
    items: list[Any] = _is(document.get(key, []), list)
    if len(items) > 4096:
        raise Refusal("record.form", f"{len(items)} {key}")
    return items


def _is(value: Any, type_: type) -> Any:
    if type(value) is not type_:
        raise Refusal("record.form", f"{type_.__name__} is needed, not {type(value).__name__}")
    return value


def _dimension(item: Any) -> tuple[str, int, str]:
    if not isinstance(item, dict) or set(item) != {"input", "axis", "name"}:
        raise Refusal("record.form", "a dimension is {input, axis, name}")
    axis, name = _is(item["axis"], int), _is(item["name"], str)
    if not 0 <= axis < tensors.MAX_AXES or not _DIMENSION.match(name):
        raise Refusal("record.form", f"dimension {name!r} at axis {axis}")
    return names.check_printable(_is(item["input"], str)), axis, name


def _sample(item: Any) -> dict[str, Any]:
    if not isinstance(item, dict) or set(item) != {"inputs", "outputs"}:
        raise Refusal("record.form", "a sample is {inputs, outputs}")
    return {side: [_tensor(t) for t in _is(item[side], list)] for side in ("inputs", "outputs")}


def _tensor(item: Any) -> dict[str, Any]:
    if not isinstance(item, dict) or set(item) != {"dtype", "shape", "data"} or item["dtype"] not in tensors.ITEM_BYTES:
        raise Refusal("record.form", "a sample tensor is {dtype, shape, data}")
    shape = [_is(n, int) for n in _is(item["shape"], list)]
    expected = math.prod(shape) * tensors.ITEM_BYTES[item["dtype"]]
    if any(n < 0 for n in shape) or len(shape) > tensors.MAX_AXES or expected > MAX_SAMPLE_BYTES:
        raise Refusal("record.form", f"a sample of shape {shape}")
    try:
        data = base64.b64decode(_is(item["data"], str), validate=True)
    except binascii.Error as e:
        raise Refusal("record.form", e) from e
    if len(data) != expected:
        raise Refusal("record.form", f"{len(data)} bytes for {item['dtype']} {shape}")
    return {"dtype": item["dtype"], "shape": shape, "data": item["data"]}
