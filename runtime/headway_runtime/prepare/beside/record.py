"""Headway's own record, ``extra/headway.json``: what a plain export cannot say, above all the names of dimensions.

Every field and its bounds: docs/reference/record.md. Like everything in the file it is inspected: known fields only,
bounded, names printable, and it must speak of what the program has. Nothing in it is ever executed or resolved.
"""

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from headway_runtime.prepare.beside import golden
from headway_runtime.prepare.container import strict_json, tensors
from headway_runtime.prepare.errors import Refusal
from headway_runtime.prepare.translate import names

NAME = "extra/headway.json"
TOKENIZER = "extra/tokenizer.json"
VERSION = 1
MAX_BYTES = 16 << 20
MAX_TOKENIZER = strict_json.MAX_BYTES
MAX_SAMPLE_BYTES = golden.MAX_BYTES
MAX_ITEMS = 4096
MAX_LABELS = 100_000
MAX_FACTS = 256
MAX_TEXT = 1024

_DIMENSION = re.compile(r"[a-z]([a-z0-9_-]{0,61}[a-z0-9])?\Z", re.ASCII)
_TASK = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\Z", re.ASCII)

Number = int | float | bool
Fact = str | Number


@dataclass(frozen=True, slots=True)
class Record:
    """What the record says; an absent field is empty or None.

    ``dimensions``: (input, axis, name). ``outputs``: names in order. ``samples``: golden, as in the file.
    ``padding``: input -> value. ``tolerance``: ``rtol`` and ``atol`` under which the answers agree.
    """

    dimensions: tuple[tuple[str, int, str], ...] = ()
    outputs: tuple[str, ...] | None = None
    samples: tuple[dict[str, Any], ...] = ()
    padding: Mapping[str, Number] = field(default_factory=dict)
    task: str | None = None
    labels: tuple[str, ...] = ()
    preprocessing: Mapping[str, Fact] = field(default_factory=dict)
    tolerance: Mapping[str, float] = field(default_factory=dict)
    torch: str | None = None
    device: str | None = None

    def facts(self) -> dict[str, Any]:
        """What a client, a server of text or a person may want to know, without what is empty."""
        found = {
            "padding": dict(self.padding),
            "task": self.task,
            "labels": list(self.labels),
            "preprocessing": dict(self.preprocessing),
            "tolerance": dict(self.tolerance),
            "device": self.device,
        }
        return {name: value for name, value in found.items() if value}


def is_dimension_name(name: str) -> bool:
    """Whether a dimension may be called so: a key of ``spec.batching.shapeBuckets``."""
    return _DIMENSION.match(name) is not None


def parse(data: bytes) -> Record:
    """Raises Refusal ``record.form``, with the JSON path of the field."""
    document = strict_json.parse(data)
    if not isinstance(document, dict) or document.get("version") != VERSION:
        raise Refusal("record.form", f"version {VERSION} is read here")
    if unknown := document.keys() - _READERS.keys() - {"version"}:
        raise Refusal("record.form", f"unknown fields {sorted(unknown)[:3]}; known are {sorted(_READERS)}")
    values: dict[str, Any] = {}
    for key, value in document.items():
        if key != "version":
            try:
                values[key] = _READERS[key](value)
            except Refusal as r:
                raise r.inside(key) from None
    return Record(**values)


def apply(record: Record, document: dict[str, Any]) -> None:
    """Names and facts of the record into a ``program.json``. Raises Refusal ``record.form`` when they speak of what
    the program does not have.
    """
    inputs = {i["name"]: i for i in document["inputs"]}
    for name, axis, _ in record.dimensions:
        if name not in inputs or axis >= len(inputs[name]["shape"]):
            raise Refusal("record.form", f"dimension of axis {axis} of {name!r}, which the program does not have")
    _check_names(record, inputs)
    document["dimensions"] = [list(dimension) for dimension in record.dimensions]
    if record.outputs is not None:
        if len(record.outputs) != len(document["outputs"]) or len(set(record.outputs)) != len(record.outputs):
            raise Refusal("record.form", f"{len(record.outputs)} output names for {len(document['outputs'])} outputs")
        for entry, name in zip(document["outputs"], record.outputs, strict=True):
            entry["name"] = name
    if unknown := record.padding.keys() - inputs.keys():
        raise Refusal("record.form", f"padding of {sorted(unknown)[:3]}, which the program does not have")
    for number, sample in enumerate(record.samples):
        try:
            golden.check(sample, document)
        except Refusal as r:
            raise r.inside(number).inside("samples") from None
    document["facts"] = record.facts()


def _check_names(record: Record, inputs: dict[str, dict[str, Any]]) -> None:
    """One name for a size, one size for a name; a fixed axis has none."""
    sizes: dict[str, Any] = {}
    for name, axis, dimension in record.dimensions:
        size = inputs[name]["shape"][axis]
        if isinstance(size, int) or sizes.setdefault(dimension, size) != size:
            raise Refusal("record.form", f"dimension {dimension!r} names a fixed size, or two sizes")
    if len({json.dumps(s) for s in sizes.values()}) != len(sizes):
        raise Refusal("record.form", "two dimensions name one size")


def _is(value: Any, type_: type) -> Any:
    if type(value) is not type_:
        raise Refusal("record.form", f"{type_.__name__} is needed, not {type(value).__name__}")
    return value


def _list(value: Any, limit: int) -> list[Any]:
    items: list[Any] = _is(value, list)
    if len(items) > limit:
        raise Refusal("record.form", f"{len(items)} items, at most {limit}")
    return items


def _text(value: Any) -> str:
    if type(value) is not str or len(value) > MAX_TEXT or not (value == "" or value.isprintable()):
        raise Refusal("record.form", f"printable text of at most {MAX_TEXT} characters is needed")
    return value


def _word(value: Any) -> str:
    if not _TASK.match(_is(value, str)):
        raise Refusal("record.form", "a word of lower-case letters, digits and hyphens is needed")
    return str(value)


def _number(value: Any) -> Number:
    if type(value) not in (int, float, bool):
        raise Refusal("record.form", f"a number is needed, not {type(value).__name__}")
    return value  # type: ignore[no-any-return]  # its type was checked in the line above


def _map(value: Any, read: Callable[[Any], Any]) -> dict[str, Any]:
    if len(_is(value, dict)) > MAX_FACTS:
        raise Refusal("record.form", f"{len(value)} items, at most {MAX_FACTS}")
    return {names.check_printable(key): read(item) for key, item in value.items()}


def _dimension(item: Any) -> tuple[str, int, str]:
    if not isinstance(item, dict) or set(item) != {"input", "axis", "name"}:
        raise Refusal("record.form", "a dimension is {input, axis, name}")
    axis, name = _is(item["axis"], int), _is(item["name"], str)
    if not 0 <= axis < tensors.MAX_AXES or not is_dimension_name(name):
        raise Refusal("record.form", f"dimension {name!r} at axis {axis}")
    return names.check_printable(_is(item["input"], str)), axis, name


def _tolerance(value: Any) -> dict[str, float]:
    found = _map(value, _number)
    if found.keys() - {"rtol", "atol"} or any(not (0 <= n <= 1000 and math.isfinite(n)) for n in found.values()):
        raise Refusal("record.form", "a tolerance is {rtol, atol}, each from 0 to 1000")
    return {name: float(n) for name, n in found.items()}


_READERS: dict[str, Callable[[Any], Any]] = {
    "torch": _text,
    "device": _text,
    "dimensions": lambda v: tuple(_dimension(d) for d in _list(v, MAX_ITEMS)),
    "outputs": lambda v: tuple(names.check_printable(_is(o, str)) for o in _list(v, MAX_ITEMS)),
    "padding": lambda v: _map(v, _number),
    "task": _word,
    "labels": lambda v: tuple(_text(label) for label in _list(v, MAX_LABELS)),
    "preprocessing": lambda v: _map(v, lambda fact: _text(fact) if isinstance(fact, str) else _number(fact)),
    "tolerance": _tolerance,
    "samples": lambda v: golden.parse(_list(v, MAX_ITEMS)),
}
