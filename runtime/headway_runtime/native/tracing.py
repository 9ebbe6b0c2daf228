"""The register machine of a prepared program as a graph of torch operators, with sizes as symbols.

The machine is called once with tensors that have shapes and no data (``torch.export``), and what it calls is recorded.
Everything that reaches the compiler has thus passed the inspector and the list of operators, and was resolved by the
same table as in a pod. Weights are inputs here: they are named, and never become part of the code.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.export import Dim
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

from headway_runtime.native.errors import CompileError
from headway_runtime.prepare import repack
from headway_runtime.prepare.sizes import expression as ex
from headway_runtime.prepare.sizes.dimensions import Dimension, Named, line
from headway_runtime.program import functions
from headway_runtime.program.datatypes import TORCH
from headway_runtime.program.machine import Builder, Machine
from headway_runtime.program.weights import open_weights


def _embedding(weight: torch.Tensor, indices: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
    """Rows of ``weight``, as a plain look-up, which the compiler can leave to torch. That counts negative indices from
    the end; here they are as wrong as those beyond it.
    """
    beyond = torch.where(indices < 0, weight.shape[0], indices)
    return torch.ops.aten.index.Tensor(weight, [beyond])


def _gather(x: torch.Tensor, dim: int, indices: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
    """``torch.gather`` as a plain look-up, for the same reason."""
    if x.dim() == 0:
        return torch.ops.aten.gather.default(x, dim, indices)
    axes = range(x.dim())
    grids = [torch.arange(indices.shape[axis]).view([-1 if other == axis else 1 for other in axes]) for axis in axes]
    grids[dim] = torch.where(indices < 0, x.shape[dim], indices)
    return torch.ops.aten.index.Tensor(x, grids)


# In a pod these are Python's functions of numbers; of symbols they would fix the answer for the sizes of the example.
_SYMBOLIC: dict[str, Callable[..., Any]] = {
    "aten.embedding.default": _embedding,
    "aten.gather.default": _gather,
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
        step = super()._step(item)
        if item["op"] in {"scan", "map"}:
            return _fixed(step)
        if item["op"] != "cond":
            return step
        if_true, if_false = (_graph(self._branch(b), len(b["inputs"])) for b in item["branches"])

        def call(predicate: Any, *operands: Any) -> Any:
            if isinstance(predicate, torch.fx.Proxy):
                raise CompileError("a branch inside of a branch is not compiled")
            return torch.cond(predicate, if_true, if_false, operands)

        return call

    def _inner(self) -> Builder:
        return _Builder(self._function, self._constant)


def _fixed(loop: Callable[..., Any]) -> Callable[..., Any]:
    """A loop over rows (the last but one of its arguments) whose number is no dynamic size."""

    def call(*arguments: Any) -> Any:
        if any(not isinstance(x.shape[0], int) for x in arguments[-2]):
            raise CompileError("a loop (scan, map) over a dynamic number of rows is not compiled")
        return loop(*arguments)

    return call


def _graph(machine: Machine, inputs: int) -> torch.fx.GraphModule:
    """A branch as a graph of its calls: ``torch.cond`` reads the Python code of its branches, and that of the machine
    is beyond it.
    """
    graph = torch.fx.Graph()
    tracer = torch.fx.proxy.GraphAppendingTracer(graph)
    values = [torch.fx.Proxy(graph.placeholder(f"x{number}"), tracer) for number in range(inputs)]
    results = [torch.ops.aten.clone.default(result) for result in machine.call(*values)]  # they must alias no input
    graph.output(tuple(result.node for result in results))
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
        for name, tensor in weights.items():  # views of one mapping would count as aliases of each other
            self.register_buffer(name, torch.from_dlpack(tensor.detach()))
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
    """A recorded program. ``symbols``: torch's name of a size -> ours in the document (``s77`` -> ``s0``);
    ``narrowed``: conditions where the recording covers less than the program's ranges.
    """

    exported: torch.export.ExportedProgram
    example: tuple[torch.Tensor, ...]
    symbols: Mapping[str, str]
    narrowed: tuple[ex.Expr, ...]


def trace(directory: Path, document: Mapping[str, Any], named: Named, sizes: Mapping[str, int]) -> Trace:
    """Record the program with example inputs of these sizes (by dimension name). Raises CompileError.

    Sizes that are described exactly (one name for one size, multiples as such) leave nothing to guess, but torch admits
    no condition that is on one of them alone; so a program that has some is recorded again with the axes of that size
    by themselves, and what relates them becomes conditions.
    """
    values = {d.symbol: named.axes[d.symbol].symbol_of(sizes[name]) or 0 for name, d in named.by_name.items()}
    shapes = [[n if isinstance(n, int) else int(ex.evaluate(n, values)) for n in spec.shape] for spec in named.inputs]
    example = tuple(
        torch.zeros(shape, dtype=TORCH[spec.datatype]) for shape, spec in zip(shapes, named.inputs, strict=True)
    )
    failure: Exception | None = None
    for loose in _attempts(named):
        try:
            module = Traceable(directory, document).eval()
            with torch.no_grad():
                axes = _axes(named, loose)
                shapes_of_inputs = (axes,) if axes else None
                exported = torch.export.export(module, example, dynamic_shapes=shapes_of_inputs, strict=False)
        except CompileError:
            raise
        except Exception as error:
            failure = failure or error
        else:
            return _trace(exported, example, named)
    assert failure is not None
    if isinstance(failure, GuardOnDataDependentSymNode):
        text = "a size of the program, or a check of Headway's before one of its operators, depends on the data"
        raise CompileError(f"{text}: {reason(failure)}") from failure
    raise CompileError(f"the program cannot be traced with sizes as symbols: {reason(failure)}") from failure


def _attempts(named: Named) -> list[set[str]]:
    """Which symbols are not described exactly: none, each one alone, all."""
    symbols = [dimension.symbol for dimension in named.by_name.values()]
    found: list[set[str]] = [set()]
    for loose in (*({symbol} for symbol in symbols), set(symbols)):
        if loose not in found:
            found.append(loose)
    return found


def _axes(named: Named, loose: set[str]) -> tuple[dict[int, Any], ...]:
    """The dynamic axes of each input as multiples of a size by name and range, wherever they are that; those of
    ``loose`` symbols, and any other, by themselves.
    """
    known: dict[str, Any] = {}
    for dimension in named.by_name.values():
        low, high = _range(named, dimension)
        known[dimension.symbol] = (Dim(dimension.symbol, min=low, max=high), Dim.AUTO(min=low, max=high))

    def axis(size: ex.Expr) -> Any:
        straight = line(size) if len(size.symbols()) == 1 else None
        if straight is None:
            return Dim.AUTO
        scale, offset = straight
        (symbol,) = size.symbols()
        exact, by_itself = known[symbol]
        if symbol in loose:
            return by_itself if straight == (1, 0) else Dim.AUTO
        exact = exact if scale == 1 else scale * exact
        return exact + offset if offset else exact

    return _by_axis(named, axis)


def _by_axis(named: Named, describe: Callable[[ex.Expr], Any]) -> tuple[dict[int, Any], ...]:
    return tuple(
        {axis: describe(size) for axis, size in enumerate(spec.shape) if isinstance(size, ex.Expr)}
        for spec in named.inputs
    )


def _range(named: Named, dimension: Dimension) -> tuple[int, int | None]:
    """Of the symbol, where ``min`` and ``max`` are of the axis."""
    axis = named.axes[dimension.symbol]
    low, high = axis.symbol_of(dimension.min), None if dimension.max is None else axis.symbol_of(dimension.max)
    return low or 0, high


def _trace(exported: torch.export.ExportedProgram, example: tuple[torch.Tensor, ...], named: Named) -> Trace:
    """Which of torch's symbols is which of ours, read off the axes of the inputs that both sides describe alike; and
    what torch narrowed. Raises CompileError for a size that recording fixed.
    """
    nodes = {node.name: node for node in exported.graph.nodes if node.op == "placeholder"}
    found: dict[str, str] = {}
    for name, spec in zip(exported.graph_signature.user_inputs, named.inputs, strict=True):
        for axis, (size, declared) in enumerate(zip(nodes[str(name)].meta["val"].shape, spec.shape, strict=True)):
            if isinstance(declared, int):
                continue
            if isinstance(size, int):
                raise CompileError(f"the program can only be compiled with axis {axis} of {spec.name} fixed at {size}")
            mine, theirs = declared.symbols(), size.node.expr.free_symbols
            if len(mine) != 1 or len(theirs) != 1 or line(declared) is None:
                continue
            (our,), (their,) = mine, theirs
            if all(size.node.expr.subs(their, n) == ex.evaluate(declared, {our: n}) for n in (5, 1000)):
                found[str(their)] = our
    return Trace(exported, example, found, tuple(_narrowed(exported, found, named)))


def _narrowed(exported: torch.export.ExportedProgram, symbols: Mapping[str, str], named: Named) -> Iterator[ex.Expr]:
    """Ranges of the recording that are smaller than those of the program, as conditions."""
    limits = {d.symbol: _range(named, d) for d in named.by_name.values()}
    for symbol, recorded in exported.range_constraints.items():
        if str(symbol) not in symbols:
            continue
        our = symbols[str(symbol)]
        low, high = limits[our]
        if recorded.lower > low:
            yield ex.call("ge", ex.symbol(our), ex.const(int(recorded.lower)))
        if recorded.upper.is_Integer and (high is None or recorded.upper < high):
            yield ex.call("le", ex.symbol(our), ex.const(int(recorded.upper)))


def reason(error: Exception) -> str:
    """The first lines of what torch says, which goes on for pages."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {' '.join(lines[:4])[:600]}"
