"""Open a prepared directory and build the program in it."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from headway_runtime.prepare import expression as ex
from headway_runtime.prepare import program as prepared
from headway_runtime.prepare import programs, repack
from headway_runtime.program import dimensions as dims
from headway_runtime.program import functions
from headway_runtime.program.datatypes import BY_PROTOCOL, PROTOCOL
from headway_runtime.program.dimensions import Dimension, TensorSpec
from headway_runtime.program.errors import OutputError, ProgramError
from headway_runtime.program.machine import Builder, Machine
from headway_runtime.program.weights import open_weights


class Program:
    """A loaded program: what goes in, what comes out, which sizes are dynamic, and :meth:`run`.

    ``batch`` is the name of the batch dimension; it is None when there is none, and ``not_batchable`` then says why.
    """

    def __init__(
        self,
        *,
        inputs: tuple[TensorSpec, ...],
        outputs: tuple[TensorSpec, ...],
        dimensions: dims.Dimensions,
        batch: tuple[str | None, str | None],
        machine: Machine,
        torch_version: str,
        device: torch.device,
    ) -> None:
        self.inputs = inputs
        self.outputs = outputs
        self.dimensions: Mapping[str, Dimension] = dimensions.by_name
        self.batch, self.not_batchable = batch
        self.torch_version = torch_version
        self.device = device
        self._dimensions = dimensions
        self._machine = machine
        self._results = [(o.name, BY_PROTOCOL[o.datatype], len(o.shape)) for o in outputs]

    def bind(self, shapes: Sequence[Sequence[int]]) -> dict[str, int]:
        """Sizes by dimension name for the shapes of all inputs. Raises ShapeError naming input, axis and allowed
        range.
        """
        return self._dimensions.bind(shapes)

    def check(self, sizes: Mapping[str, int]) -> str | None:
        """None when ranges and guards hold for these sizes; else the violated rule in words."""
        return self._dimensions.check(sizes)

    def input_shapes(self, sizes: Mapping[str, int]) -> tuple[tuple[int, ...], ...]:
        """Shape of each input at these sizes."""
        return tuple(self._dimensions.shape(spec, sizes) for spec in self.inputs)

    def output_shapes(self, sizes: Mapping[str, int]) -> tuple[tuple[int, ...], ...]:
        """Shape of each output at these sizes; KeyError when one depends on the data."""
        return tuple(self._dimensions.shape(spec, sizes) for spec in self.outputs)

    def declared_shape(self, spec: TensorSpec, sizes: Mapping[str, int]) -> tuple[int | None, ...]:
        """Shape of an output at these sizes, with None for each axis that depends on the data."""

        def size(axis: int | ex.Expr) -> int | None:
            try:
                return self._dimensions.shape(TensorSpec(spec.name, spec.datatype, (axis,)), sizes)[0]
            except KeyError:
                return None

        return tuple(size(axis) for axis in spec.shape)

    def describe(self, spec: TensorSpec) -> str:
        """Shape in words: ``[batch, sequence]``."""
        return self._dimensions.describe(spec)

    def run(self, inputs: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        """Run once, in inference mode. Inputs and outputs are flat, in the order of ``inputs`` and ``outputs``.

        The caller has bound and checked the shapes. Raises OutputError when an output is not what the program declares,
        RuntimeError from torch when an operator fails.
        """
        if torch.is_inference_mode_enabled():
            return self._run(inputs)
        with torch.inference_mode():
            return self._run(inputs)

    def _run(self, inputs: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        if self.device.type != "cpu":
            inputs = [tensor.to(self.device) for tensor in inputs]
        results = self._machine.call(*inputs)
        outputs = []
        for result, (name, dtype, axes) in zip(results, self._results, strict=True):
            tensor = result if isinstance(result, torch.Tensor) else torch.tensor(result, dtype=dtype)
            if tensor.dtype != dtype or tensor.dim() != axes:
                raise OutputError(
                    f"output {name} is {tensor.dtype} with {tensor.dim()} axes, declared as {dtype} with {axes}"
                )
            outputs.append(tensor)
        return tuple(outputs)


def load_program(
    directory: Path, *, dimension_names: Mapping[str, str], device: str = "cpu", program: str | None = None
) -> Program:
    """Load what ``prepare`` wrote. ``dimension_names`` is ``spec.batching.dimensions``: name -> ``<input>.<axis>``.

    ``program`` names one of several; None is the only one, or the one called ``model``. Raises ProgramError.
    """
    document = read_document(directory, program)
    inputs = tuple(_spec(i) for i in document["inputs"])
    outputs = tuple(_spec(o) for o in document["outputs"])
    dimensions = dims.resolve(
        inputs,
        outputs,
        ranges={name: (r["min"], r["max"]) for name, r in document["symbols"].items()},
        guards=tuple(ex.from_json(g) for g in document["guards"]),
        recorded=[(name, axis, dimension) for name, axis, dimension in document.get("dimensions", [])],
        configured=dimension_names,
    )
    where = torch.device(device)
    stateful = next((w["name"] for w in document["weights"] if w["written"]), None)
    return Program(
        inputs=inputs,
        outputs=outputs,
        dimensions=dimensions,
        batch=dims.batch_of(dimensions, outputs, stateful=stateful),
        machine=_machine(directory, document, where),
        torch_version=document["torch"],
        device=where,
    )


def read_document(directory: Path, program: str | None = None) -> dict[str, Any]:
    """The prepared document of a program: ``program`` as for :func:`load_program`. Raises ProgramError."""
    found = repack.program_names(directory)
    try:
        name = programs.choose(found, program) if found else ""
        document: dict[str, Any] = json.loads(repack.program_file(directory, name).read_bytes())
    except programs.UnknownProgramError as e:
        raise ProgramError(e.condition, e.reason, e.message, field=e.field) from e
    except (OSError, ValueError) as e:
        raise ProgramError("ArtifactVerified", "Preparing", f"{directory} holds no prepared program: {e}") from e
    if document.get("format") != prepared.FORMAT:
        message = f"the prepared program has format {document.get('format')}, this runtime reads {prepared.FORMAT}"
        raise ProgramError("ArtifactVerified", "IncompatibleVersion", message)
    return document


def _spec(item: Mapping[str, Any]) -> TensorSpec:
    if item["dtype"] not in PROTOCOL:
        message = f"{item['name']} has element type {item['dtype']}, which the Open Inference Protocol cannot carry"
        raise ProgramError("ArtifactVerified", "UnsupportedProgram", message)
    sizes = (ex.from_json(n) for n in item["shape"])
    shape = tuple(int(e.value) if e.operator == "const" else e for e in sizes)
    return TensorSpec(item["name"], PROTOCOL[item["dtype"]], shape)


def _machine(directory: Path, document: Mapping[str, Any], device: torch.device) -> Machine:
    builder = Builder(functions.resolve, functions.constant(device))
    weights = open_weights(directory / repack.WEIGHTS, document["weights"], device)
    for item in document["inputs"]:
        builder.value(item["value"])
    for name, tensor in weights.items():
        builder.value(name, tensor)
    for instruction in document["nodes"]:
        builder.instruction(instruction)
    copies = [item["value"] for item in (*document["inputs"], *document["weights"]) if item["written"]]
    return builder.finish(
        [i["value"] for i in document["inputs"]], [o["value"] for o in document["outputs"]], copies=copies
    )
