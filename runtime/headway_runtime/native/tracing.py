"""The register machine of a prepared program as a graph of torch operators, with sizes as symbols.

The machine is called once with tensors that have shapes and no data (``torch.export``), and what it calls is recorded.
Everything that reaches the compiler has thus passed the inspector and the list of operators, and was resolved by the
same table as in a pod. Weights are inputs here: they are named, and never become part of the code.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.export import Dim

from headway_runtime.native.errors import CompileError
from headway_runtime.prepare import expression as ex
from headway_runtime.prepare import repack
from headway_runtime.prepare.dimensions import line
from headway_runtime.program import Program, functions
from headway_runtime.program.datatypes import BY_PROTOCOL, TORCH
from headway_runtime.program.machine import Builder, Machine
from headway_runtime.program.weights import open_weights

Sizes = Mapping[str, int]

# In a pod these are Python's functions of numbers; of symbols they would fix the answer for the sizes of the example.
_SYMBOLIC: dict[str, Callable[..., Any]] = {
    "torch.sym_int": torch.sym_int,
    "torch.sym_float": torch.sym_float,
    "torch.sym_max": torch.sym_max,
    "torch.sym_min": torch.sym_min,
    "torch.sym_not": torch.sym_not,
    "torch.sym_ite": torch.sym_ite,
}


class _Builder(Builder):
    """Branches become ``torch.cond``, which records both sides. Loops stay as they are: unrolled, where their number
    of steps is fixed.
    """

    def _step(self, item: Mapping[str, Any]) -> Callable[..., Any]:
        if item["op"] != "cond":
            return super()._step(item)
        if_true, if_false = (_graph(self._branch(b), len(b["inputs"])) for b in item["branches"])
        return lambda predicate, *operands: torch.cond(predicate, if_true, if_false, operands)

    def _inner(self) -> Builder:
        return _Builder(self._function, self._constant)


def _graph(machine: Machine, inputs: int) -> torch.fx.GraphModule:
    """A branch as a graph of its calls: ``torch.cond`` reads the Python code of its branches, and that of the machine
    is beyond it.
    """
    graph = torch.fx.Graph()
    tracer = torch.fx.proxy.GraphAppendingTracer(graph)
    values = [torch.fx.Proxy(graph.placeholder(f"x{number}"), tracer) for number in range(inputs)]
    graph.output(tuple(result.node for result in machine.call(*values)))
    return torch.fx.GraphModule(torch.nn.Module(), graph)


class Traceable(torch.nn.Module):  # type: ignore[misc]  # torch is not typed
    """A prepared program as a module: weights are buffers by their names in the document (``w0``, …)."""

    def __init__(self, directory: Path, document: Mapping[str, Any]) -> None:
        super().__init__()
        cpu = torch.device("cpu")
        builder = _Builder(lambda name: _SYMBOLIC.get(name) or functions.resolve(name), functions.constant(cpu))
        inputs = [item["value"] for item in document["inputs"]]
        weights = open_weights(directory / repack.WEIGHTS, document["weights"], cpu)
        for name in (*inputs, *weights):
            builder.value(name)
        for instruction in document["nodes"]:
            builder.instruction(instruction)
        for name, tensor in weights.items():
            self.register_buffer(name, tensor)
        copies = [item["value"] for item in (*document["inputs"], *document["weights"]) if item["written"]]
        outputs = [item["value"] for item in document["outputs"]]
        self._machine = builder.finish([*inputs, *weights], outputs, copies=copies)
        self._names = tuple(weights)
        self._dtypes = [TORCH[item["dtype"]] for item in document["outputs"]]

    def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Inputs and outputs flat, in the order of the document."""
        results = self._machine.call(*inputs, *(getattr(self, name) for name in self._names))
        return tuple(
            result if isinstance(result, torch.Tensor) else torch.full((), result, dtype=dtype)
            for result, dtype in zip(results, self._dtypes, strict=True)
        )


@dataclass(frozen=True, slots=True)
class Trace:
    """A recorded program. ``symbols``: torch's name of a size -> ours in the document (``s77`` -> ``s0``)."""

    exported: torch.export.ExportedProgram
    example: tuple[torch.Tensor, ...]
    symbols: Mapping[str, str]


def trace(directory: Path, document: Mapping[str, Any], program: Program, sizes: Sizes) -> Trace:
    """Record the program with example inputs of these sizes. Raises CompileError."""
    shapes = program.input_shapes(sizes)
    example = tuple(
        torch.zeros(shape, dtype=BY_PROTOCOL[spec.datatype]) for spec, shape in zip(program.inputs, shapes, strict=True)
    )
    known: dict[str, Any] = {}
    axes = tuple(_axes(spec.shape, document["symbols"], known) for spec in program.inputs)
    try:
        module = Traceable(directory, document).eval()
        with torch.no_grad():
            exported = torch.export.export(module, example, dynamic_shapes=(axes,), strict=False)
    except Exception as error:
        raise CompileError(f"the program cannot be traced with sizes as symbols: {_reason(error)}") from error
    return Trace(exported, example, _symbols(exported, program))


def _axes(shape: tuple[int | ex.Expr, ...], ranges: Mapping[str, Any], known: dict[str, Any]) -> dict[int, Any]:
    """Torch's description of the dynamic axes of one input: a size by name and range, or a multiple of one."""
    found: dict[int, Any] = {}
    for axis, size in enumerate(shape):
        if isinstance(size, int):
            continue
        for symbol in size.symbols():
            limits = ranges[symbol]
            known.setdefault(symbol, Dim(symbol, min=limits["min"], max=limits["max"]))
        straight = line(size) if len(size.symbols()) == 1 else None
        if straight is None:
            found[axis] = Dim.AUTO
        else:
            scale, offset = straight
            dimension = known[next(iter(size.symbols()))]
            dimension = dimension if scale == 1 else scale * dimension
            found[axis] = dimension + offset if offset else dimension
    return found


def _symbols(exported: torch.export.ExportedProgram, program: Program) -> dict[str, str]:
    """Which of torch's symbols is which of ours, read off the axes of the inputs that both sides describe alike."""
    names = exported.graph_signature.user_inputs
    nodes = {node.name: node for node in exported.graph.nodes if node.op == "placeholder"}
    found: dict[str, str] = {}
    for name, spec in zip(names, program.inputs, strict=True):
        for traced, declared in zip(nodes[str(name)].meta["val"].shape, spec.shape, strict=True):
            free = getattr(getattr(traced, "node", None), "expr", None)
            if free is None or isinstance(declared, int) or len(declared.symbols()) != 1 or len(free.free_symbols) != 1:
                continue
            (mine,), (theirs,) = declared.symbols(), free.free_symbols
            if line(declared) and all(free.subs(theirs, n) == ex.evaluate(declared, {mine: n}) for n in (5, 1000)):
                found[str(theirs)] = mine
    return found


def _reason(error: Exception) -> str:
    """The first lines of what torch says, which go on for pages."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {' '.join(lines[:4])[:600]}"
