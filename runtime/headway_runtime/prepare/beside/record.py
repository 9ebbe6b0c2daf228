"""Headway's own record, ``extra/headway.json``: what a plain export cannot say, above all the names of dimensions.

Every field and its bounds: docs/reference/record.md. Like everything in the file it is inspected: known fields only,
bounded, names printable, and it must speak of what the program has. Nothing in it is ever executed or resolved.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from headway_runtime.prepare.beside import generation, golden, steps
from headway_runtime.prepare.beside.fields import Number, fields, listed, mapped, name, number, real, text, typed
from headway_runtime.prepare.container import strict_json, tensors
from headway_runtime.prepare.errors import Refusal

NAME = "extra/headway.json"
TOKENIZER = "extra/tokenizer.json"
VERSION = 1
MAX_BYTES = 16 << 20
MAX_TOKENIZER = strict_json.MAX_BYTES
MAX_SAMPLE_BYTES = golden.MAX_BYTES
MAX_ITEMS = 4096
MAX_LABELS = 100_000

_DIMENSION = re.compile(r"[a-z]([a-z0-9_-]{0,61}[a-z0-9])?\Z", re.ASCII)
_TASK = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\Z", re.ASCII)

Fact = str | Number


@dataclass(frozen=True, slots=True)
class Record:
    """What the record says; an absent field is empty or None.

    ``dimensions``: (input, axis, name). ``outputs``: names in order. ``samples``: golden, as in the file.
    ``padding``: input -> value. ``tolerance``: ``rtol`` and ``atol`` under which the answers agree. ``steps``: as they
    stand in the file, checked (``steps.parse`` reads them); so is ``generation`` (``generation.parse``).
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
    steps: Mapping[str, Any] = field(default_factory=dict)
    generation: Mapping[str, Any] | None = None

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
        return {key: value for key, value in found.items() if value}


def is_dimension_name(text_: str) -> bool:
    """Whether a dimension may be called so: a key of ``spec.batching.shapeBuckets``."""
    return _DIMENSION.match(text_) is not None


def parse(data: bytes) -> Record:
    """Raises Refusal ``record.form``, with the JSON path of the field."""
    document = strict_json.parse(data)
    if not isinstance(document, dict) or document.get("version") != VERSION:
        raise Refusal("record.form", f"version {VERSION} is read here")
    return Record(**fields({key: value for key, value in document.items() if key != "version"}, _READERS))


def apply(record: Record, document: dict[str, Any]) -> None:
    """Names and facts of the record into a ``program.json``. Raises Refusal ``record.form`` when they speak of what
    the program does not have.
    """
    inputs = {i["name"]: i for i in document["inputs"]}
    for input_, axis, _ in record.dimensions:
        if input_ not in inputs or axis >= len(inputs[input_]["shape"]):
            raise Refusal("record.form", f"dimension of axis {axis} of {input_!r}, which the program does not have")
    _check_names(record, inputs)
    document["dimensions"] = [list(dimension) for dimension in record.dimensions]
    if record.outputs is not None:
        if len(record.outputs) != len(document["outputs"]) or len(set(record.outputs)) != len(record.outputs):
            raise Refusal("record.form", f"{len(record.outputs)} output names for {len(document['outputs'])} outputs")
        for entry, output in zip(document["outputs"], record.outputs, strict=True):
            entry["name"] = output
    if unknown := record.padding.keys() - inputs.keys():
        raise Refusal("record.form", f"padding of {sorted(unknown)[:3]}, which the program does not have")
    for at, sample in enumerate(record.samples):
        try:
            golden.check(sample, document)
        except Refusal as r:
            raise r.inside(at).inside("samples") from None
    document["facts"] = record.facts()
    if record.steps:
        document["steps"] = dict(record.steps)
    if record.generation is not None:
        document["generation"] = dict(record.generation)


def _check_names(record: Record, inputs: dict[str, dict[str, Any]]) -> None:
    """One name for a size, one size for a name; a fixed axis has none."""
    sizes: dict[str, Any] = {}
    for input_, axis, dimension in record.dimensions:
        size = inputs[input_]["shape"][axis]
        if isinstance(size, int) or sizes.setdefault(dimension, size) != size:
            raise Refusal("record.form", f"dimension {dimension!r} names a fixed size, or two sizes")
    if len({json.dumps(s) for s in sizes.values()}) != len(sizes):
        raise Refusal("record.form", "two dimensions name one size")


def _word(value: Any) -> str:
    if not _TASK.match(typed(value, str)):
        raise Refusal("record.form", "a word of lower-case letters, digits and hyphens is needed")
    return str(value)


def _dimension(item: Any) -> tuple[str, int, str]:
    if not isinstance(item, dict) or set(item) != {"input", "axis", "name"}:
        raise Refusal("record.form", "a dimension is {input, axis, name}")
    axis, dimension = typed(item["axis"], int), typed(item["name"], str)
    if not 0 <= axis < tensors.MAX_AXES or not is_dimension_name(dimension):
        raise Refusal("record.form", f"dimension {dimension!r} at axis {axis}")
    return name(item["input"]), axis, dimension


def _tolerance(value: Any) -> dict[str, float]:
    found = mapped(value, lambda n: real(n, 0, 1000))
    if found.keys() - {"rtol", "atol"}:
        raise Refusal("record.form", "a tolerance is {rtol, atol}, each from 0 to 1000")
    return found


def _steps(value: Any) -> dict[str, Any]:
    steps.parse(value)
    found: dict[str, Any] = value
    return found


def _generation(value: Any) -> dict[str, Any]:
    generation.parse(value)
    found: dict[str, Any] = value
    return found


_READERS: dict[str, Callable[[Any], Any]] = {
    "torch": text,
    "device": text,
    "dimensions": lambda v: tuple(_dimension(d) for d in listed(v, MAX_ITEMS)),
    "outputs": lambda v: tuple(name(o) for o in listed(v, MAX_ITEMS)),
    "padding": lambda v: mapped(v, number),
    "task": _word,
    "labels": lambda v: tuple(text(label) for label in listed(v, MAX_LABELS)),
    "preprocessing": lambda v: mapped(v, lambda fact: text(fact) if isinstance(fact, str) else number(fact)),
    "tolerance": _tolerance,
    "samples": lambda v: golden.parse(listed(v, MAX_ITEMS)),
    "steps": _steps,
    "generation": _generation,
}
