"""What the record says beside the program, from what the author gave."""

import base64
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from headway_runtime.agreement import Tolerance
from headway_runtime.export.errors import ExportError
from headway_runtime.parity import Sample
from headway_runtime.prepare.beside import golden, record
from headway_runtime.prepare.beside.steps import Steps
from headway_runtime.prepare.container import strict_json
from headway_runtime.prepare.errors import Refusal
from headway_runtime.program.datatypes import PROTOCOL

Fact = str | int | float | bool


@dataclass(frozen=True, slots=True)
class Facts:
    """``outputs``: names, in order. ``padding``: the value that fills an input up. ``task``: such as
    ``text-classification``. ``labels``: the classes, in order. ``tokenizer``: a ``tokenizer.json``. ``preprocessing``:
    facts for clients, such as ``mean``. ``rtol``, ``atol``: how closely a pod must reproduce the golden samples.
    ``steps``: what a pod does to a request before the program runs, and to its answer. ``programs``: by ``preprocess``
    and ``postprocess``, files whose program is put into the archive and runs as this step.
    """

    outputs: Sequence[str] | None = None
    padding: Mapping[str, float] = field(default_factory=dict)
    task: str | None = None
    labels: Sequence[str] = ()
    tokenizer: Path | None = None
    preprocessing: Mapping[str, Fact] = field(default_factory=dict)
    rtol: float | None = None
    atol: float | None = None
    steps: Steps = field(default_factory=Steps)
    programs: Mapping[str, Path] = field(default_factory=dict)

    def tolerance(self) -> Tolerance:
        """For the golden samples."""
        return Tolerance(self.rtol, self.atol)

    def document(self) -> dict[str, Any]:
        """The fields of the record that were given."""
        tolerance = {"rtol": self.rtol, "atol": self.atol}
        fields: dict[str, Any] = {
            "outputs": None if self.outputs is None else list(self.outputs),
            "padding": dict(self.padding),
            "task": self.task,
            "labels": list(self.labels),
            "preprocessing": dict(self.preprocessing),
            "tolerance": {name: value for name, value in tolerance.items() if value is not None},
            "steps": {**self.steps.document(), **{step: step for step in self.programs}},
        }
        return {name: value for name, value in fields.items() if value not in (None, {}, [])}


def write(document: Mapping[str, Any]) -> bytes:
    """The record as it stands in the file; what we write, we can read. Raises ExportError naming the field."""
    data = strict_json.dump({"version": record.VERSION, **document})
    try:
        record.parse(data)
    except Refusal as refusal:
        where = refusal.path.removeprefix("$.") or "the record"
        raise ExportError(f"{where}: {refusal.detail or refusal.message}") from None
    if len(data) > record.MAX_BYTES:
        raise ExportError(f"the record has {len(data):,} bytes; at most {record.MAX_BYTES:,} are allowed")
    return data


def read_tokenizer(path: Path) -> bytes:
    """A tokenizer's JSON. Raises ExportError."""
    try:
        data = path.read_bytes()
        if len(data) > record.MAX_TOKENIZER:
            raise ExportError(f"{path} has {len(data):,} bytes; at most {record.MAX_TOKENIZER:,} are allowed")
        strict_json.parse(data)
    except OSError as error:
        raise ExportError(f"the tokenizer cannot be read: {error}") from None
    except Refusal as refusal:
        raise ExportError(f"{path} is no JSON that a pod reads: {refusal.detail or refusal.message}") from None
    return data


def samples(items: Sequence[Sample]) -> list[dict[str, Any]]:
    """Golden samples as the record holds them. Raises ExportError when they are too large."""
    if (size := size_of(items)) > golden.MAX_BYTES:
        most = f"at most {golden.MAX_BYTES:,} are kept"
        raise ExportError(f"the golden samples have {size:,} bytes; {most}: use fewer, or smaller ones")
    return [{"inputs": list(map(tensor, s.inputs)), "outputs": list(map(tensor, s.outputs))} for s in items]


def size_of(items: Iterable[Sample]) -> int:
    """Bytes of all their tensors."""
    return sum(t.numel() * t.element_size() for s in items for t in (*s.inputs, *s.outputs))


def tensor(value: torch.Tensor) -> dict[str, Any]:
    """``{"dtype", "shape", "data"}``. Raises ExportError."""
    name = str(value.dtype).removeprefix("torch.")
    if name not in PROTOCOL:
        raise ExportError(f"a sample of element type {name} cannot be recorded; the types are {', '.join(PROTOCOL)}")
    raw = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() if value.numel() else b""
    return {"dtype": name, "shape": list(value.shape), "data": base64.b64encode(raw).decode("ascii")}
