"""Write a ``.pt2`` that says what a plain export cannot: names of dimensions and outputs, and golden samples.

    export_model(encoder, {"ids": ids, "mask": mask}, path="encoder.pt2", outputs=["embedding"],
                 dynamic_shapes={"ids": {0: Size("batch", 1, 64), 1: Size("sequence", 1, 256)}, "mask": {…}})

The program itself is what ``torch.export.save`` writes; the rest is one JSON record beside it, ``extra/headway.json``.
"""

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from inspect import BoundArguments, signature
from pathlib import Path
from typing import Any

import torch

from headway_runtime.prepare import record
from headway_runtime.program.datatypes import PROTOCOL


@dataclass(frozen=True, slots=True)
class Size:
    """A dynamic axis size: its name, and the range it may have (``max`` None: unbounded)."""

    name: str
    min: int = 1
    max: int | None = None


def export_model(
    module: torch.nn.Module,
    example_inputs: Mapping[str, torch.Tensor],
    *,
    path: str | Path,
    dynamic_shapes: Mapping[str, Mapping[int, Size]],
    outputs: Sequence[str] | None = None,
    samples: Sequence[Mapping[str, torch.Tensor]] = (),
) -> torch.export.ExportedProgram:
    """Export ``module`` (in eval mode) called with keyword arguments, and save it.

    ``example_inputs`` gives the arguments of ``forward`` by name, in any order; a dynamic axis should be larger than 1
    in them. ``samples`` are further inputs whose eager outputs are recorded as golden answers (at most 4 MB). Raises
    ValueError for a module in training mode or a name that is no input.
    """
    if module.training:
        raise ValueError("the module is in training mode; call .eval() before exporting")
    if unknown := dynamic_shapes.keys() - example_inputs.keys():
        raise ValueError(f"dynamic_shapes names {sorted(unknown)}, but the inputs are {sorted(example_inputs)}")
    call, names = _call(module, example_inputs)
    shared: dict[str, Any] = {}
    shapes: dict[str, dict[int, Any]] = {name: {} for name in example_inputs}
    for name, axes in dynamic_shapes.items():
        for axis, size in axes.items():
            shapes[name][axis] = shared.setdefault(size.name, torch.export.Dim(size.name, min=size.min, max=size.max))
    by_parameter = {
        parameter: shapes[parameter] if parameter in shapes else {name: shapes[name] for name in value}
        for parameter, value in call.arguments.items()
    }
    with torch.no_grad():
        program = torch.export.export(module, call.args, call.kwargs, dynamic_shapes=by_parameter, strict=False)
        ordered = {name: example_inputs[name] for name in names}
        text = json.dumps(_record(module, ordered, dynamic_shapes, outputs, samples), sort_keys=True)
    record.parse(text.encode())  # what we write, we can read
    program.example_inputs = None  # they would be saved as a pickle; the samples say more
    torch.export.save(program, path, extra_files={record.NAME.removeprefix("extra/"): text})
    return program


def _call(module: torch.nn.Module, inputs: Mapping[str, torch.Tensor]) -> tuple[BoundArguments, list[str]]:
    """The inputs as ``forward`` takes them, and their names in its order, which is the program's."""
    try:
        call = signature(module.forward).bind(**inputs)
    except TypeError as error:
        raise ValueError(f"forward cannot be called with the inputs {sorted(inputs)}: {error}") from None
    nested = ([name] if name in inputs else list(value) for name, value in call.arguments.items())
    return call, [name for group in nested for name in group]


def _record(
    module: torch.nn.Module,
    example_inputs: Mapping[str, torch.Tensor],
    dynamic_shapes: Mapping[str, Mapping[int, Size]],
    outputs: Sequence[str] | None,
    samples: Sequence[Mapping[str, torch.Tensor]],
) -> dict[str, Any]:
    value: dict[str, Any] = {
        "version": record.VERSION,
        "torch": torch.__version__.partition("+")[0],
        "device": next(iter(example_inputs.values())).device.type,
        "dimensions": [
            {"input": name, "axis": axis, "name": size.name}
            for name, axes in dynamic_shapes.items()
            for axis, size in axes.items()
        ],
        "samples": [_sample(module, {name: sample[name] for name in example_inputs}) for sample in samples],
    }
    if outputs is not None:
        value["outputs"] = list(outputs)
    if sum(len(t["data"]) for s in value["samples"] for side in s.values() for t in side) > record.MAX_SAMPLE_BYTES:
        raise ValueError(f"golden samples of more than {record.MAX_SAMPLE_BYTES} bytes; use fewer or smaller ones")
    return value


def _sample(module: torch.nn.Module, inputs: Mapping[str, torch.Tensor]) -> dict[str, Any]:
    results = module(**inputs)
    flat = (
        [results] if isinstance(results, torch.Tensor) else [t for t in _leaves(results) if isinstance(t, torch.Tensor)]
    )
    return {"inputs": [_tensor(t) for t in inputs.values()], "outputs": [_tensor(t) for t in flat]}


def _leaves(value: Any) -> list[Any]:
    if isinstance(value, Mapping):
        return [leaf for item in value.values() for leaf in _leaves(item)]
    if isinstance(value, (list, tuple)):
        return [leaf for item in value for leaf in _leaves(item)]
    return [value]


def _tensor(tensor: torch.Tensor) -> dict[str, Any]:
    name = str(tensor.dtype).removeprefix("torch.")
    if name not in PROTOCOL:
        raise ValueError(f"a sample of element type {name} cannot be recorded")
    raw = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    return {"dtype": name, "shape": list(tensor.shape), "data": base64.b64encode(raw).decode("ascii")}
