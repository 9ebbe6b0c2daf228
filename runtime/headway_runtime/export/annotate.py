"""Add a record to a ``.pt2`` that exists, whoever wrote it: names, facts, golden samples.

torch never opens the file, so nothing of it is executed: it is inspected, loaded and run as in a pod. The golden
answers are therefore those of this machine's run: they prove that a pod answers as this machine does, not that the
export was faithful to its module.
"""

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from headway_runtime import parity
from headway_runtime.agreement import Tolerance
from headway_runtime.export import facts, merge, proof, rewrite, steps
from headway_runtime.export.classes import check_labels
from headway_runtime.export.errors import ExportError
from headway_runtime.export.facts import Facts
from headway_runtime.export.model import Exported, finish
from headway_runtime.prepare import programs, repack
from headway_runtime.prepare.beside import record
from headway_runtime.prepare.container import archive as zip_
from headway_runtime.prepare.container import strict_json
from headway_runtime.prepare.errors import PrepareError
from headway_runtime.program import Program, ShapeError

Names = Sequence[tuple[str, int, str]]
Inputs = Mapping[str, torch.Tensor]


def annotate(
    source: str | Path,
    *,
    path: str | Path,
    dimensions: Names = (),
    given: Facts | None = None,
    samples: Sequence[Inputs] | None = None,
    program: str | None = None,
) -> Exported:
    """Write ``source`` with a record to ``path`` (which may be ``source``).

    ``dimensions``: (input, axis, name). What the file's own record says stays where nothing new is given. ``samples``:
    inputs by name (None: those that the file carries: its golden ones as they are, else its example inputs).
    ``program``: one of several. Raises ExportError, and leaves ``path`` as it was.
    """
    source, path, given = Path(source).resolve(), Path(path), given or Facts()
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with (
            proof.opened(source, program) as pod,
            tempfile.TemporaryDirectory(dir=path.parent, prefix=".headway-export-") as folder,
        ):
            place = programs.record(pod.name, list({*pod.inspection.programs, *given.programs}))
            document = {**_present(source, place), **given.document()}
            if dimensions:
                document["dimensions"] = [dict(zip(("input", "axis", "name"), d, strict=True)) for d in dimensions]
            if samples is not None or not any(s["outputs"] for s in document.get("samples", [])):
                document["samples"] = facts.samples(_answered(pod, pod.name, samples))
            document["torch"] = pod.program.torch_version
            records = {place: facts.write(document)}
            if given.tokenizer is not None:
                records[record.TOKENIZER] = facts.read_tokenizer(given.tokenizer)
            file = Path(folder) / path.name
            rewrite.with_records(source, file, records)
            merge.add_programs(file, given.programs)
            return _proven(file, path, program, Tolerance(**document.get("tolerance", {})))
    except PrepareError as refusal:
        raise ExportError(f"{source}: {refusal}") from None


def _present(source: Path, place: str) -> dict[str, Any]:
    """The record that the file has, as it stands there; it was inspected."""
    with zip_.open_archive(source) as archive:
        if place not in archive.entries:
            return {}
        found: dict[str, Any] = strict_json.parse(archive.read(place, record.MAX_BYTES))
    return {key: value for key, value in found.items() if key != "version"}


def _answered(pod: proof.Opened, name: str, samples: Sequence[Inputs] | None) -> list[parity.Sample]:
    names = [spec.name for spec in pod.program.inputs]
    if samples is None:
        given = [s.inputs for s in parity.read_samples(repack.samples_file(pod.directory, name))]
    else:
        for inputs in samples:
            if sorted(inputs) != sorted(names):
                raise ExportError(f"a sample has the inputs {sorted(inputs)}; the program's are {', '.join(names)}")
        given = [tuple(inputs[n] for n in names) for inputs in samples]
    return [parity.Sample(inputs, _run(pod.program, inputs)) for inputs in given]


def _run(program: Program, inputs: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    try:
        refused = program.check(program.bind([tensor.shape for tensor in inputs]))
    except ShapeError as error:
        refused = str(error)
    if refused is not None:
        raise ExportError(f"a sample does not fit the program: {refused}")
    try:
        return tuple(tensor.cpu() for tensor in program.run(inputs))
    except Exception as error:  # whatever an operator raises: an index, a shape, memory
        raise ExportError(f"the program fails on a sample: {type(error).__name__}: {error}") from error


def _proven(file: Path, path: Path, program: str | None, tolerance: Tolerance) -> Exported:
    """The written file once more, as a pod has it, with its golden samples."""
    with proof.opened(file, program) as pod:
        check_labels(pod)
        golden = parity.load_golden(pod.directory, program)
        largest = proof.check(pod, golden.samples, tolerance)
        notes = [] if pod.layout.reason is None else [f"pods run one request at a time: {pod.layout.reason}"]
        notes += steps.try_steps(pod)
    if golden.samples:
        notes.append("the golden answers are this machine's run of the program, not its module's")
    return finish(file, path, len(golden.samples), len(golden.samples), largest, notes)
