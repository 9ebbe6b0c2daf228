"""Open a prepared directory and build the program in it."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from headway_api.types import Precision

from headway_runtime.native import runner
from headway_runtime.prepare import programs, repack
from headway_runtime.prepare.translate import program as prepared
from headway_runtime.program import dimensions as dims
from headway_runtime.program import functions, quicker, ragged
from headway_runtime.program.datatypes import BY_PROTOCOL
from headway_runtime.program.dimensions import TensorSpec
from headway_runtime.program.errors import OutputError, ProgramError
from headway_runtime.program.interface import Interface, resolved, specs
from headway_runtime.program.machine import Builder, Machine
from headway_runtime.program.ragged import Real
from headway_runtime.program.weights import Weights


class Callee(Protocol):
    """What runs a program: the register machine, or native code in its place."""

    def call(self, *values: Any) -> tuple[Any, ...]: ...


class Program(Interface):
    """A loaded program: what goes in, what comes out, which sizes are dynamic, and :meth:`run`.

    ``batch`` is the name of the batch dimension; it is None when there is none, and ``not_batchable`` then says why.
    ``native`` is the target of the native code that runs it; None for the register machine. ``packed``: bytes of memory
    of its own that weights take which are not read from the mapped file any more. ``weights_bytes``: these, and the
    records of the file that are still read.
    """

    def __init__(
        self,
        *,
        inputs: tuple[TensorSpec, ...],
        outputs: tuple[TensorSpec, ...],
        dimensions: dims.Dimensions,
        batch: tuple[str | None, str | None],
        machine: Callee,
        torch_version: str,
        device: torch.device,
        native: str | None = None,
        packed: int = 0,
        weights_bytes: int = 0,
        inside: Callable[[Sequence[str]], Machine],
        can_skip: bool = False,
    ) -> None:
        super().__init__(inputs=inputs, outputs=outputs, dimensions=dimensions)
        self.batch, self.not_batchable = batch
        self.torch_version = torch_version
        self.device = device
        self.native = native
        self.packed = packed
        self.weights_bytes = weights_bytes
        self.can_skip = can_skip
        self._inside = inside
        self._machine = machine
        self._results = [(o.name, BY_PROTOCOL[o.datatype], len(o.shape)) for o in outputs]

    def run(self, inputs: Sequence[torch.Tensor], real: Real | None = None) -> tuple[torch.Tensor, ...]:
        """Run once, in inference mode. Inputs and outputs are flat, in the order of ``inputs`` and ``outputs``. With
        ``real``, what only fills rows up need not be computed (``can_skip``: whether it makes a difference).

        The caller has bound and checked the shapes. Raises OutputError when an output is not what the program declares,
        RuntimeError from torch when an operator fails.
        """
        if torch.is_inference_mode_enabled():
            return self._run(inputs, real)
        with torch.inference_mode():
            return self._run(inputs, real)

    def inside(self, values: Sequence[str]) -> Callable[[Sequence[torch.Tensor], Real | None], tuple[Any, ...]]:
        """What computes these values inside of the program: what a trial wants to see behind an output."""
        machine = self._inside(values)
        return lambda inputs, real: machine.call(*inputs, real) if self.can_skip else machine.call(*inputs)

    def _run(self, inputs: Sequence[torch.Tensor], real: Real | None) -> tuple[torch.Tensor, ...]:
        if self.device.type != "cpu":
            inputs = [tensor.to(self.device) for tensor in inputs]
        results = self._machine.call(*inputs, real) if self.can_skip else self._machine.call(*inputs)
        outputs = []
        for result, (name, dtype, axes) in zip(results, self._results, strict=True):
            tensor = plain(result) if isinstance(result, torch.Tensor) else torch.tensor(result, dtype=dtype)
            if tensor.dtype != dtype or tensor.dim() != axes:
                raise OutputError(
                    f"output {name} is {tensor.dtype} with {tensor.dim()} axes, declared as {dtype} with {axes}"
                )
            outputs.append(tensor)
        return tuple(outputs)


def plain(tensor: torch.Tensor) -> torch.Tensor:
    """The same numbers for readers outside of torch: of a parameter, and of a view that says "negated" in a bit (what
    the imaginary part of a conjugate is), they get none.
    """
    tensor = tensor.detach() if tensor.requires_grad else tensor
    return tensor.resolve_neg() if tensor.is_neg() else tensor


def load_program(
    directory: Path,
    *,
    dimension_names: Mapping[str, str],
    device: str = "cpu",
    program: str | None = None,
    read: tuple[str, dict[str, Any]] | None = None,
    instances: int = 1,
    pack: bool = True,
    precision: Precision = Precision.EXPORTED,
) -> Program:
    """Load what ``prepare`` wrote. ``dimension_names`` is ``spec.batching.dimensions``: name -> ``<input>.<axis>``.

    ``program`` names one of several; None is the only one, or the one called ``model``. ``read`` is what
    ``read_document`` gave for it, where it was read before. ``instances`` runs are possible at a time (the register
    machine has no such bound). ``pack``: on the processor, multiply by packed weights where that is quicker; no use for
    a program that will run elsewhere. ``precision``: another one than Exported is that of the large weights, which are
    then packed in any case; on the processor only. Raises ProgramError.
    """
    name, document = read_document(directory, program) if read is None else read
    where = torch.device(device)
    library = runner.find(directory, name, where)
    inputs, outputs = specs(document, "inputs"), specs(document, "outputs")
    dimensions = resolved(document, configured=dimension_names, guards=library.guards if library else ())
    weights = Weights(directory / repack.WEIGHTS, document["weights"], where)
    if library is not None and precision is not Precision.EXPORTED:
        raise quicker.cannot_keep(precision, "the weights of native code (headway compile) stay as they were compiled")
    graph = _graph(document, weights, where, pack=pack and library is None, precision=precision)
    machine: Callee
    if library is None:
        machine = graph.machine()
    else:
        dtypes = tuple(BY_PROTOCOL[i.datatype] for i in inputs)
        machine = library.open(weights.tensors, dtypes, dimensions.require, instances=instances)
    stateful = next((w["name"] for w in document["weights"] if w["written"]), None)
    return Program(
        inputs=inputs,
        outputs=outputs,
        dimensions=dimensions,
        batch=dims.batch_of(dimensions, outputs, stateful=stateful),
        machine=machine,
        torch_version=document["torch"],
        device=where,
        native=library.target if library else None,
        packed=graph.packed,
        weights_bytes=weights.bytes + graph.packed,
        inside=graph.machine,
        can_skip=graph.can_skip,
    )


def read_document(directory: Path, program: str | None = None) -> tuple[str, dict[str, Any]]:
    """Name and prepared document of a program: ``program`` as for :func:`load_program`. Raises ProgramError."""
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
    return name, document


@dataclass(frozen=True, slots=True)
class _Graph:
    """What machines of a program are built of: its document, large weights replaced where they are packed, what its
    operators' names stand for, and the bytes of packed weights.
    """

    document: Mapping[str, Any]
    weights: Mapping[str, torch.Tensor]
    device: torch.device
    function: Callable[[str], Callable[..., Any]] | None = None
    packed: int = 0
    can_skip: bool = False

    def machine(self, values: Sequence[str] | None = None) -> Machine:
        """One that computes the outputs, or these values inside of the program: what a trial wants to see behind an
        output. All of them read the same weights.
        """
        outputs = self.document["outputs"] if values is None else [{"value": value} for value in values]
        return build({**self.document, "outputs": outputs}, self.weights, self.device, function=self.function)


def _graph(
    document: Mapping[str, Any], weights: Weights, device: torch.device, *, pack: bool, precision: Precision
) -> _Graph:
    if precision is not Precision.EXPORTED:
        found = quicker.pack_in(document, weights, precision)
    else:
        quick = quicker.pack_where_quicker(document, weights) if pack and device.type == "cpu" else None
        if quick is None:
            return _Graph(document, weights.tensors, device)
        found = quick
    planned, products = found
    nodes, function = ragged.carried(planned, products)
    changed = {**document, "nodes": nodes, "inputs": [*document["inputs"], ragged.REAL]}
    return _Graph(changed, weights.tensors, device, function, products.bytes, can_skip=True)


def build(
    document: Mapping[str, Any],
    weights: Mapping[str, torch.Tensor],
    device: torch.device,
    *,
    function: Callable[[str], Callable[..., Any]] | None = None,
) -> Machine:
    """The machine of a prepared program. ``weights``: by value, those that its nodes use; ``function``: what an
    operator's name stands for.
    """
    builder = Builder(function or functions.resolve, functions.constant(device))
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
