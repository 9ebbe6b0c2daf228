"""Export a module: trace, record, prove, and only then write."""

import hashlib
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from headway_runtime import parity
from headway_runtime.export import eager, facts, merge, proof, sizes
from headway_runtime.export import steps as steps_
from headway_runtime.export.classes import check_labels
from headway_runtime.export.eager import Inputs
from headway_runtime.export.errors import ExportError, explain
from headway_runtime.export.facts import Fact, Facts
from headway_runtime.export.saying import Say, silently
from headway_runtime.export.sizes import Shapes
from headway_runtime.parity import Sample
from headway_runtime.prepare.beside import golden, record
from headway_runtime.prepare.beside.steps import Steps
from headway_runtime.program import ShapeError


@dataclass(frozen=True, slots=True)
class Exported:
    """A file that was written. ``samples`` golden answers are in it; ``runs`` were compared before, with
    ``largest_difference`` (absolute) at most. ``notes`` are worth reading.
    """

    path: Path
    bytes: int
    digest: str
    samples: int
    runs: int
    largest_difference: float
    notes: tuple[str, ...]


def export_model(
    module: torch.nn.Module,
    example_inputs: Inputs,
    *,
    path: str | Path,
    dynamic_shapes: Shapes,
    outputs: Sequence[str] | None = None,
    samples: Sequence[Inputs] | None = None,
    padding: Mapping[str, float] | None = None,
    task: str | None = None,
    labels: Sequence[str] = (),
    tokenizer: str | Path | None = None,
    preprocessing: Mapping[str, Fact] | None = None,
    rtol: float | None = None,
    atol: float | None = None,
    steps: Steps | None = None,
    preprocess: str | Path | None = None,
    postprocess: str | Path | None = None,
) -> Exported:
    """Export ``module`` (in eval mode) called with keyword arguments, prove it, and save it at ``path``.

    ``example_inputs`` gives the arguments of ``forward`` by name, in any order; a dynamic axis is larger than 1 in
    them. ``samples`` are inputs whose answers are recorded as golden (None: the example inputs; at most 4 MB). The
    other arguments are the fields of ``Facts``, and ``preprocess`` and ``postprocess`` its ``programs``. The program is
    run as a pod would run it, at the samples, at the smallest batch and at a larger one, and compared with the module;
    a request goes through the steps. Raises ExportError, and leaves ``path`` as it was.
    """
    given = Facts(
        outputs=outputs,
        padding=padding or {},
        task=task,
        labels=labels,
        tokenizer=Path(tokenizer) if tokenizer else None,
        preprocessing=preprocessing or {},
        rtol=rtol,
        atol=atol,
        steps=steps or Steps(),
        programs={
            step: Path(file)
            for step, file in (("preprocess", preprocess), ("postprocess", postprocess))
            if file is not None
        },
    )
    return export(module, example_inputs, Path(path), dynamic_shapes, given, samples)


def export(
    module: torch.nn.Module,
    example_inputs: Inputs,
    path: Path,
    dynamic_shapes: Shapes,
    given: Facts,
    samples: Sequence[Inputs] | None,
    *,
    generated: bool = False,
    say: Say = silently,
) -> Exported:
    """As :func:`export_model`, with the facts as one value. ``generated`` samples that the program turns out not to
    take are left out. ``say`` is told of each phase as it begins.
    """
    _check_mode(module)
    call, names = eager.bind(module, example_inputs)
    declared = sizes.check(dynamic_shapes, example_inputs)
    notes: list[str] = []
    say(f"tracing {type(module).__name__}")
    program = _traced(module, call, example_inputs, dynamic_shapes)
    arguments = eager.output_arguments(program)

    def answered(inputs: Inputs) -> Sample:
        if inputs.keys() != set(names):
            raise ExportError(f"a sample has the inputs {sorted(inputs)}; the model's are {sorted(names)}")
        there = {name: tensor.to(example_inputs[name].device) for name, tensor in inputs.items()}
        return Sample(tuple(inputs[n].detach().cpu() for n in names), eager.answers(module, there, arguments))

    recorded = [answered(inputs) for inputs in ([example_inputs] if samples is None else samples)]
    if samples is None and facts.size_of(recorded) > golden.MAX_BYTES:
        notes.append("the example inputs and their answers are larger than 4 MB, so no golden sample is recorded")
        recorded = []
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".headway-export-", dir=path.parent) as folder:
        file = Path(folder) / path.name
        _save(program, file, _extra(example_inputs, dynamic_shapes, given, recorded), given)
        say("inspecting, preparing and loading the file, as a pod does")
        with proof.opened(file) as pod:
            check_labels(pod)
            notes += sizes.narrowed(declared, pod.program)
            fitting = [s for s in recorded if parity.refused(pod.program, pod.layout, s) is None]
            if generated and len(fitting) < len(recorded):
                recorded = fitting
                _save(program, file, _extra(example_inputs, dynamic_shapes, given, recorded), given)
            first = recorded[0] if recorded else answered(example_inputs)
            more = [answered(dict(zip(names, inputs, strict=True))) for inputs in _batches(pod, first.inputs)]
            runs = [first, *recorded[1:], *more]
            say(f"comparing {len(runs)} runs with the module's own")
            largest = proof.check(pod, runs, given.tolerance())
            if pod.layout.reason is not None:
                notes.append(f"pods run one request at a time: {pod.layout.reason}")
            notes += steps_.try_steps(pod)
        return finish(file, path, len(recorded), len(runs), largest, notes)


def _save(program: torch.export.ExportedProgram, file: Path, extra: dict[str, str], given: Facts) -> None:
    program.example_inputs = None  # they would be saved as a pickle; the samples say more
    torch.export.save(program, file, extra_files=extra)
    merge.add_programs(file, given.programs)


def finish(file: Path, path: Path, samples: int, runs: int, largest: float, notes: Sequence[str]) -> Exported:
    """Put a proven file in its place."""
    with file.open("rb") as opened:
        digest = hashlib.file_digest(opened, "sha256").hexdigest()
    size = file.stat().st_size
    os.replace(file, path)
    return Exported(path, size, f"sha256:{digest}", samples, runs, largest, tuple(notes))


def _check_mode(module: torch.nn.Module) -> None:
    if not isinstance(module, torch.nn.Module):
        raise ExportError(f"a torch.nn.Module is exported, not a {type(module).__name__}")
    training = next((name or "the module" for name, part in module.named_modules() if part.training), None)
    if training is not None:
        raise ExportError(f"{training} is in training mode; call .eval() on the module before exporting")


def _traced(module: torch.nn.Module, call: Any, inputs: Inputs, shapes: Shapes) -> torch.export.ExportedProgram:
    dimensions = {size.name: size.dimension() for axes in shapes.values() for size in axes.values()}
    by_input = {name: {axis: dimensions[size.name] for axis, size in shapes.get(name, {}).items()} for name in inputs}
    by_parameter = {
        parameter: by_input[parameter] if parameter in by_input else {name: by_input[name] for name in value}
        for parameter, value in call.arguments.items()
    }
    eager.call(module, inputs)  # its own errors are clearer than those of tracing
    try:
        with torch.no_grad():
            return torch.export.export(module, call.args, call.kwargs, dynamic_shapes=by_parameter, strict=False)
    except Exception as error:
        raise explain(error) from error


def _extra(inputs: Inputs, shapes: Shapes, given: Facts, recorded: Sequence[Sample]) -> dict[str, str]:
    document = {
        "torch": torch.__version__.partition("+")[0],
        "device": next((tensor.device.type for tensor in inputs.values()), "cpu"),
        "dimensions": [
            {"input": name, "axis": axis, "name": size.name}
            for name, axes in shapes.items()
            for axis, size in axes.items()
        ],
        "samples": facts.samples(recorded),
        **given.document(),
    }
    extra = {record.NAME.removeprefix("extra/"): facts.write(document).decode("ascii")}
    if given.tokenizer is not None:
        extra[record.TOKENIZER.removeprefix("extra/")] = facts.read_tokenizer(given.tokenizer).decode()
    return extra


def _batches(pod: proof.Opened, inputs: Sequence[torch.Tensor]) -> list[list[torch.Tensor]]:
    """The inputs cut to the smallest batch, and repeated to a larger one."""
    program, layout = pod.program, pod.layout
    if layout.batch is None:
        return []
    try:
        sizes_ = program.bind([tensor.shape for tensor in inputs])
    except ShapeError:
        return []  # the sample itself will be refused
    rows, dimension = sizes_[layout.batch], program.dimensions[layout.batch]
    larger = 2 * rows + 1 if dimension.max is None else min(2 * rows + 1, dimension.max)
    wanted = [n for n in dict.fromkeys((max(1, dimension.min), larger)) if n != rows]
    return [
        [_rows(tensor, axis, n) for tensor, axis in zip(inputs, layout.inputs, strict=True)]
        for n in wanted
        if program.check({**sizes_, layout.batch: n}) is None
    ]


def _rows(tensor: torch.Tensor, axis: int | None, count: int) -> torch.Tensor:
    if axis is None:
        return tensor
    index = torch.arange(count, device=tensor.device) % tensor.shape[axis]
    return tensor.index_select(axis, index)
