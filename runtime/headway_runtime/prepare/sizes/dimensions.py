"""What the dynamic sizes of a program are called, and what they range over: one answer for ``headway inspect``, for
``headway export`` and for a pod.

Pure: no tensors. A *dimension* is a root symbol of the program, seen through the one axis that gives it its name; its
size is the size of that axis. Where that axis is derived (``8*s0``), the symbol must come out as an integer. Names
come from the artifact's record, else from ``spec.batching.dimensions``; the size by which requests are batched is
else called ``batch``, and any other ``<input>.<axis>``.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from headway_runtime.prepare.errors import PrepareError, Refusal
from headway_runtime.prepare.sizes import expression as ex

BATCH = "batch"
_FIELD = "spec.batching.dimensions"
_AXIS = re.compile(r"(?P<input>.+)\.(?P<axis>[0-9]{1,2})\Z")


class DimensionError(PrepareError):
    """A name points at nothing, or names a size twice."""

    condition = "Accepted"


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """An input or output. ``datatype`` is the protocol's (FP32, INT64, …); a dynamic axis is an expression over
    symbols. ``size`` is of an output that is no tensor but a number computed from sizes: that number.
    """

    name: str
    datatype: str
    shape: tuple[int | ex.Expr, ...]
    size: ex.Expr | None = None


@dataclass(frozen=True, slots=True)
class Dimension:
    """A dynamic size. ``min`` and ``max`` bound the size of the axis that names it; ``max`` None means unbounded."""

    symbol: str
    name: str
    min: int
    max: int | None


@dataclass(frozen=True, slots=True)
class Axis:
    """Where a symbol is read from: input number, axis, and the axis size as ``scale * symbol + offset``."""

    input: int
    axis: int
    scale: int
    offset: int

    def symbol_of(self, size: int) -> int | None:
        """The symbol's value for an axis of this size; None when there is no integer."""
        value, rest = divmod(size - self.offset, self.scale)
        return value if rest == 0 else None

    def size_of(self, value: int) -> int:
        return self.scale * value + self.offset


@dataclass(frozen=True, slots=True)
class Named:
    """Every dynamic size: ``by_name`` in the order of the inputs; ``axes`` gives for each symbol the axis it is read
    from.
    """

    inputs: tuple[TensorSpec, ...]
    by_name: Mapping[str, Dimension]
    axes: Mapping[str, Axis]

    def render(self, size: int | ex.Expr) -> str:
        """A size or a guard in the dimensions' names: ``batch``, ``2*sequence``."""
        if isinstance(size, int):
            return str(size)
        plain: dict[str, str] = {}
        for dimension in self.by_name.values():
            axis = self.axes[dimension.symbol]
            if size == self.inputs[axis.input].shape[axis.axis]:  # also a derived axis, which has its name as a whole
                return dimension.name
            if axis.scale == 1 and not axis.offset:
                plain[dimension.symbol] = dimension.name
        return ex.render(size, plain)

    def describe(self, spec: TensorSpec) -> str:
        """``[batch, sequence, 384]``."""
        return f"[{', '.join(map(self.render, spec.shape))}]"

    def range(self, name: str) -> str:
        """``1 to 64``, ``2 or more``, ``8 to 256 in steps of 8``."""
        dimension = self.by_name[name]
        axis = self.axes[dimension.symbol]
        return _range(dimension) + ("" if axis.scale == 1 else f" in steps of {axis.scale}")


def _range(dimension: Dimension) -> str:
    return f"{dimension.min} to {dimension.max}" if dimension.max is not None else f"{dimension.min} or more"


def of_document(document: Mapping[str, Any]) -> tuple[Named, tuple[str | None, str | None]]:
    """The dimensions of a ``program.json`` under the names that it gives them, and what ``batch_of`` says.

    Raises Refusal ``input.symbol`` or ``record.form``.
    """
    inputs, outputs = (tuple(_spec(item) for item in document[side]) for side in ("inputs", "outputs"))
    try:
        named = name_dimensions(
            inputs,
            outputs,
            ranges={name: (r["min"], r["max"]) for name, r in document["symbols"].items()},
            guards=tuple(ex.from_json(g) for g in document["guards"]),
            recorded=[(name, axis, dimension) for name, axis, dimension in document.get("dimensions", [])],
            configured={},
        )
    except DimensionError as error:
        raise Refusal("record.form", error.message) from None
    stateful = next((w["name"] for w in document["weights"] if w["written"]), None)
    return named, batch_of(named, outputs, stateful=stateful)


def _spec(item: Mapping[str, Any]) -> TensorSpec:
    sizes = (ex.from_json(n) for n in item["shape"])
    shape = tuple(int(e.value) if e.operator == "const" else e for e in sizes)
    return TensorSpec(item["name"], item["dtype"], shape, ex.from_json(item["size"]) if "size" in item else None)


def name_dimensions(
    inputs: tuple[TensorSpec, ...],
    outputs: tuple[TensorSpec, ...],
    *,
    ranges: Mapping[str, tuple[int, int | None]],
    guards: tuple[ex.Expr, ...],
    recorded: Iterable[tuple[str, int, str]],
    configured: Mapping[str, str],
) -> Named:
    """Name and bound every dimension. ``recorded``: (input, axis, name) of the artifact; ``configured``: name ->
    ``input.axis``.

    Raises DimensionError ``UnknownDimension`` for a name that points at nothing, or names a size twice; Refusal
    ``input.symbol`` for a size that no input has.
    """
    axes = {symbol: axis for symbol in ranges if (axis := _bare_axis(symbol, inputs) or _linear_axis(symbol, inputs))}
    roots = {s for spec in inputs for n in spec.shape if isinstance(n, ex.Expr) for s in n.symbols()}
    if lost := sorted(roots - axes.keys()):
        raise Refusal("input.symbol", lost[0])
    names: dict[str, str] = {}
    for input_name, number, name in recorded:
        symbol, axis = _named_axis(inputs, input_name, number, name)
        if names.setdefault(symbol, name) == name:
            axes[symbol] = axis if axes[symbol].scale != 1 else axes[symbol]
    for name, path in configured.items():
        match = _AXIS.match(path)
        if match is None:
            raise _unknown(name, f"{path!r} is not of the form <input>.<axis>, for example ids.1")
        symbol, axis = _named_axis(inputs, match["input"], int(match["axis"]), name)
        if names.setdefault(symbol, name) != name:
            raise _unknown(name, f"{path} is already called {names[symbol]!r}")
        axes[symbol] = axis if axes[symbol].scale != 1 else axes[symbol]
    for symbol in _batch_symbols(inputs, outputs):
        if symbol not in names and BATCH not in names.values() and len(_batch_symbols(inputs, outputs)) == 1:
            names[symbol] = BATCH
    by_name: dict[str, Dimension] = {}
    for symbol in sorted(roots, key=lambda s: (axes[s].input, axes[s].axis)):
        name = names.get(symbol, f"{inputs[axes[symbol].input].name}.{axes[symbol].axis}")
        if name in by_name:
            raise _unknown(name, "two different sizes of the program have this name")
        low, high = ranges[symbol]
        low = _least(symbol, low, guards)
        axis = axes[symbol]
        by_name[name] = Dimension(symbol, name, axis.size_of(low), None if high is None else axis.size_of(high))
    return Named(inputs, by_name, {s: axes[s] for s in roots})


def batch_of(
    dimensions: Named, outputs: tuple[TensorSpec, ...], *, stateful: str | None
) -> tuple[str | None, str | None]:
    """(name of the batch dimension, None) or (None, why there is none)."""
    if stateful is not None:
        return None, f"the program writes to its buffer {stateful}; each request runs alone on a fresh copy"
    found = _batch_symbols(dimensions.inputs, outputs)
    if len(found) == 1:
        name = next(d.name for d in dimensions.by_name.values() if d.symbol == found[0])
        if name != BATCH and BATCH in dimensions.by_name:  # time first: to join requests there would mix them up
            return None, f"{BATCH!r} is the name of another size than {name}, along which requests could be joined"
        return name, None
    if len(found) > 1:
        return None, "several dynamic sizes are the first axis of an input and an axis of every output"
    first = [
        n for spec in dimensions.inputs for n in spec.shape[:1] if isinstance(n, ex.Expr) and n.operator == "symbol"
    ]
    if not first:
        return None, "the first axis of every input is fixed; export with a dynamic batch axis"
    counted = next(
        (o.name for o in outputs if o.size is not None and o.size.symbols() & {str(n.value) for n in first}), None
    )
    if counted is not None:
        return None, f"output {counted} is computed from the number of rows, of which each request has its own"
    lacking = next((o.name for o in outputs if not any(isinstance(n, ex.Expr) and n in first for n in o.shape)), None)
    if lacking is None:
        return None, "no dynamic first axis of an input is exactly one axis of every output"
    return None, f"output {lacking} has no axis that is the first axis of an input"


def _batch_symbols(inputs: tuple[TensorSpec, ...], outputs: tuple[TensorSpec, ...]) -> list[str]:
    first = [n for spec in inputs for n in spec.shape[:1] if isinstance(n, ex.Expr) and n.operator == "symbol"]
    roots = {symbol for spec in inputs for n in spec.shape if isinstance(n, ex.Expr) for symbol in n.symbols()}
    numbers = [o.size.symbols() for o in outputs if o.size is not None and o.size.symbols() <= roots]
    tensors = [o.shape for o in outputs if o.size is None or not o.size.symbols() <= roots]
    found: list[str] = []
    for expr in dict.fromkeys(first):
        symbol = str(expr.value)
        mentions = [[n for n in shape if isinstance(n, ex.Expr) and symbol in n.symbols()] for shape in tensors]
        counted = any(symbol in symbols for symbols in numbers)  # a number of rows: each request has its own
        if tensors and all(axes == [expr] for axes in mentions) and not counted:
            found.append(symbol)
    return found


def _least(symbol: str, declared: int, guards: tuple[ex.Expr, ...]) -> int:
    """Export writes 2 as the lower bound of every size it made dynamic by itself: 1 is admitted when the guards hold
    for it.
    """
    if declared != 2:
        return declared
    own = [g for g in guards if g.symbols() == {symbol}]
    try:
        return 1 if all(ex.evaluate(g, {symbol: 1}) for g in own) else 2
    except ex.EvaluationError:
        return 2


def _bare_axis(symbol: str, inputs: tuple[TensorSpec, ...]) -> Axis | None:
    for i, spec in enumerate(inputs):
        for axis, n in enumerate(spec.shape):
            if isinstance(n, ex.Expr) and n.is_symbol(symbol):
                return Axis(i, axis, 1, 0)
    return None


def _linear_axis(symbol: str, inputs: tuple[TensorSpec, ...]) -> Axis | None:
    for i, spec in enumerate(inputs):
        for axis, n in enumerate(spec.shape):
            if isinstance(n, ex.Expr) and n.symbols() == {symbol} and (found := line(n)) is not None:
                return Axis(i, axis, *found)
    return None


def line(expr: ex.Expr) -> tuple[int, int] | None:
    """(scale, offset) of an expression of one symbol that is ``scale * symbol + offset`` with a positive scale, else
    None.
    """
    if any(e.operator not in {"const", "symbol", "add", "mul", "sub", "neg"} for e in ex.walk(expr)):
        return None
    (symbol,) = expr.symbols()
    try:
        at = [ex.evaluate(expr, {symbol: n}) for n in (0, 1, 2, 1000)]
    except ex.EvaluationError:
        return None
    scale, offset = int(at[1] - at[0]), int(at[0])
    straight = at[2] - at[1] == scale and at[3] == 1000 * scale + offset
    return (scale, offset) if straight and scale > 0 else None


def _named_axis(inputs: tuple[TensorSpec, ...], input_name: str, number: int, name: str) -> tuple[str, Axis]:
    for i, spec in enumerate(inputs):
        if spec.name != input_name:
            continue
        if number >= len(spec.shape):
            raise _unknown(name, f"input {input_name} has {len(spec.shape)} axes, counted from 0")
        n = spec.shape[number]
        if isinstance(n, int):
            raise _unknown(name, f"axis {number} of input {input_name} is fixed at {n}; export it as dynamic")
        found = (1, 0) if n.operator == "symbol" else line(n) if len(n.symbols()) == 1 else None
        if found is None:
            raise _unknown(name, f"axis {number} of input {input_name} is {n}, from which no size can be derived")
        return next(iter(n.symbols())), Axis(i, number, *found)
    raise _unknown(name, f"the program has no input {input_name!r}; it has {', '.join(s.name for s in inputs)}")


def _unknown(name: str, why: str) -> DimensionError:
    return DimensionError("UnknownDimension", f"dimension {name!r}: {why}", field=f"{_FIELD}.{name}")
