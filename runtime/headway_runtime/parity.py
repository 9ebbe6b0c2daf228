"""Does the program answer here as its author's module did? The artifact's golden samples are run before the pod is
ready.

Each sample is run as the engine would run it alone. The tolerance is the user's (``spec.verification``), else the
record's, else a default for the element type (``agreement``). A sample that this pod would not admit (larger than the
largest bucket, say) is left out, and said.
"""

import base64
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from headway_api.podconfig import ColdVerification, ParityReport
from headway_api.types import OnMismatch

from headway_runtime.agreement import Tolerance, compare
from headway_runtime.batching.layout import Layout
from headway_runtime.buckets import Admission, Buckets
from headway_runtime.errors import FatalError, first_line
from headway_runtime.logs import log
from headway_runtime.prepare import programs, repack
from headway_runtime.program import Program, ShapeError, TensorSpec
from headway_runtime.program.datatypes import BY_PROTOCOL, TORCH

ADVICE = (
    "the program does not compute here what it was recorded to compute; if the golden answers are of other hardware, "
    "widen spec.verification.rtol and atol, or set spec.verification.onMismatch: Warn"
)

Tensors = tuple[torch.Tensor, ...]


@dataclass(frozen=True, slots=True)
class Sample:
    """Inputs and golden outputs, flat, in the program's order."""

    inputs: Tensors
    outputs: Tensors


@dataclass(frozen=True, slots=True)
class Golden:
    """What an artifact carries: samples with answers, and the tolerance that its author gave."""

    samples: tuple[Sample, ...] = ()
    tolerance: Tolerance = field(default_factory=Tolerance)


@dataclass(slots=True)
class Findings:
    """What came of the samples so far. ``largest`` is the largest finite difference, absolute."""

    compared: int = 0
    largest: float = 0.0
    disagreements: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)


def load_golden(directory: Path, program: str | None) -> Golden:
    """The golden samples in a prepared directory. ``program`` names one of several."""
    name = programs.choose(repack.program_names(directory), program)
    samples = tuple(sample for sample in read_samples(repack.samples_file(directory, name)) if sample.outputs)
    document = json.loads(repack.program_file(directory, name).read_bytes())
    return Golden(samples, Tolerance(**document.get("facts", {}).get("tolerance", {})))


def read_samples(file: Path) -> list[Sample]:
    """All samples of a prepared program, also those without answers (example inputs)."""
    try:
        items: list[dict[str, Any]] = json.loads(file.read_bytes())
    except FileNotFoundError:
        return []
    return [Sample(tuple(map(_tensor, item["inputs"])), tuple(map(_tensor, item["outputs"]))) for item in items]


def verify(
    program: Program, layout: Layout, buckets: Buckets, golden: Golden, asked: ColdVerification
) -> ParityReport | None:
    """Run the golden samples; None when there are none.

    Raises FatalError `ParityFailed` when an answer differs and `spec.verification.onMismatch` is Block.
    """
    if not golden.samples:
        return None
    tolerance = Tolerance(
        golden.tolerance.rtol if asked.rtol is None else asked.rtol,
        golden.tolerance.atol if asked.atol is None else asked.atol,
    )
    found = run_samples(program, layout, golden.samples, tolerance, buckets)
    for why in found.skipped:
        log("golden_sample_skipped", level="warning", why=why)
    if found.disagreements and asked.on_mismatch is OnMismatch.BLOCK:
        message = f"{_listed(found.disagreements)}; {ADVICE}"
        raise FatalError("ParityFailed", message, condition="Ready", field="spec.verification")
    for text in found.disagreements:
        log("golden_sample_differs", level="warning", what=text)
    log("parity_checked", samples=found.compared, differ=len(found.disagreements), largest_difference=found.largest)
    return ParityReport(
        samples=found.compared,
        agrees=not found.disagreements,
        largest_difference=found.largest,
        message=_listed(found.disagreements or found.skipped),
    )


def run_samples(
    program: Program,
    layout: Layout,
    samples: Sequence[Sample],
    tolerance: Tolerance,
    buckets: Buckets | None = None,
) -> Findings:
    """Run each sample alone and compare its answers. ``buckets`` are the largest sizes that are admitted; None: all
    that the program allows.
    """
    found = Findings()
    for number, sample in enumerate(samples):
        why = refused(program, layout, sample, buckets)
        if why is not None:
            found.skipped.append(f"golden sample {number} is not run: {why}")
            continue
        found.compared += 1
        try:
            answers = alone(program, layout, sample)
        except Exception as error:
            first = first_line(error, 300)
            found.disagreements.append(f"golden sample {number}: the program failed: {type(error).__name__}: {first}")
            continue
        for spec, answer, expected in zip(program.outputs, answers, sample.outputs, strict=True):
            largest, text = compare(answer, expected, tolerance)
            found.largest = max(found.largest, largest)
            if text:
                found.disagreements.append(f"golden sample {number}, output {spec.name}: {text}")
    return found


def alone(program: Program, layout: Layout, sample: Sample) -> Tensors:
    """The sample as one request in a run of its own."""
    rows = layout.rows(program.bind([tensor.shape for tensor in sample.inputs]))
    outputs = program.run(layout.join([sample.inputs], rows))
    return layout.part([tensor.cpu() for tensor in outputs], [rows])[0]


def refused(program: Program, layout: Layout, sample: Sample, buckets: Buckets | None = None) -> str | None:
    """Why it would not be run as a request; None when it would."""
    for spec, tensor in zip(program.inputs, sample.inputs, strict=True):
        if BY_PROTOCOL[spec.datatype] != tensor.dtype:
            return _other_type(spec, tensor)
    try:
        sizes = program.bind([tensor.shape for tensor in sample.inputs])
    except ShapeError as error:
        return str(error)
    if buckets is not None:
        for name, size in sizes.items():
            if buckets.admission({name: size}) is Admission.REFUSED:
                return f"its {name} is {size}, and the largest bucket is {buckets.largest(name)}"
    run = sizes if layout.batch is None else {**sizes, layout.batch: max(sizes[layout.batch], layout.fewest)}
    return program.check(run)


def _other_type(spec: TensorSpec, tensor: torch.Tensor) -> str:
    return f"its input {spec.name} is {tensor.dtype}, and the program takes {spec.datatype}"


def _tensor(item: dict[str, Any]) -> torch.Tensor:
    raw = bytearray(base64.b64decode(item["data"]))
    flat = torch.frombuffer(raw, dtype=TORCH[item["dtype"]]) if raw else torch.empty(0, dtype=TORCH[item["dtype"]])
    return flat.reshape(item["shape"])


def _listed(texts: Sequence[str], most: int = 3) -> str:
    return "; ".join(_first(texts, most))


def _first(texts: Sequence[str], most: int) -> Iterator[str]:
    yield from texts[:most]
    if len(texts) > most:
        yield f"and {len(texts) - most} more"
