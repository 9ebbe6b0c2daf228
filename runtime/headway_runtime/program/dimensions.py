"""The dynamic sizes of a program: their names, their ranges, how a request's shapes determine them, and what export
assumed of them.

Pure: no tensors. A *dimension* is a root symbol of the program, seen through the one axis that gives it its name; its
size is the size of that axis. Where that axis is derived (``8*s0``), the symbol must come out as an integer.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from headway_runtime.prepare import expression as ex
from headway_runtime.program.errors import ProgramError, ShapeError

BATCH = "batch"
_FIELD = "spec.batching.dimensions"
_AXIS = re.compile(r"(?P<input>.+)\.(?P<axis>[0-9]{1,2})\Z")


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """An input or output. ``datatype`` is the protocol's (FP32, INT64, …); a dynamic axis is an expression over
    symbols.
    """

    name: str
    datatype: str
    shape: tuple[int | ex.Expr, ...]


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
class Dimensions:
    """All dynamic sizes of one program. ``axes`` gives for each symbol the axis it is read from."""

    inputs: tuple[TensorSpec, ...]
    by_name: Mapping[str, Dimension]
    axes: Mapping[str, Axis]
    guards: tuple[ex.Expr, ...]

    def bind(self, shapes: Sequence[Sequence[int]]) -> dict[str, int]:
        """Sizes by dimension name for the shapes of all inputs, in order. Raises ShapeError."""
        if len(shapes) != len(self.inputs):
            raise ShapeError(f"{len(self.inputs)} inputs are needed, {len(shapes)} given", input_name="", axis=None)
        for spec, shape in zip(self.inputs, shapes, strict=True):
            if len(shape) != len(spec.shape):
                text = f"input {spec.name} has {len(spec.shape)} axes ({self.describe(spec)}), {len(shape)} given"
                raise ShapeError(text, input_name=spec.name, axis=None)
        sizes: dict[str, int] = {}
        values: dict[str, int] = {}
        for dimension in self.by_name.values():
            axis = self.axes[dimension.symbol]
            size = shapes[axis.input][axis.axis]
            value = axis.symbol_of(size)
            if value is None or size < dimension.min or (dimension.max is not None and size > dimension.max):
                spec = self.inputs[axis.input]
                step = "" if axis.scale == 1 else f" in steps of {axis.scale}"
                text = f"input {spec.name}, axis {axis.axis} ({dimension.name}) is {size}; "
                text += f"allowed is {_range(dimension)}{step}"
                raise ShapeError(text, input_name=spec.name, axis=axis.axis)
            sizes[dimension.name], values[dimension.symbol] = size, value
        self._check_axes(shapes, values)
        return sizes

    def _check_axes(self, shapes: Sequence[Sequence[int]], values: Mapping[str, int]) -> None:
        """Every axis, fixed or dynamic, has the size that the symbols give it."""
        for spec, shape in zip(self.inputs, shapes, strict=True):
            for axis, (declared, size) in enumerate(zip(spec.shape, shape, strict=True)):
                if isinstance(declared, int):
                    needed: ex.Number = declared
                elif declared.operator == "symbol":  # almost every dynamic axis, on the path of every request
                    needed = values[str(declared.value)]
                else:
                    needed = ex.evaluate(declared, values)
                if size != needed:
                    why = (
                        ""
                        if isinstance(declared, int)
                        else f" ({ex.render(declared, self._names())}, as in the other inputs)"
                    )
                    text = f"input {spec.name}, axis {axis} is {size}; it must be {needed}{why}"
                    raise ShapeError(text, input_name=spec.name, axis=axis)

    def check(self, sizes: Mapping[str, int]) -> str | None:
        """None when the program may run at these sizes; else the violated rule in words."""
        values: dict[str, int] = {}
        for name, dimension in self.by_name.items():
            if name not in sizes:
                return f"no size for dimension {name}"
            size = sizes[name]
            value = self.axes[dimension.symbol].symbol_of(size)
            if value is None or size < dimension.min or (dimension.max is not None and size > dimension.max):
                step = "" if value is not None else f" in steps of {self.axes[dimension.symbol].scale}"
                return f"{name} = {size}, and the program allows {_range(dimension)}{step}"
            values[dimension.symbol] = value
        if unknown := sizes.keys() - self.by_name.keys():
            return f"the program has no dimension {min(unknown)}"
        for guard in self.guards:
            try:
                holds = bool(ex.evaluate(guard, values))
            except ex.EvaluationError:
                holds = False
            if not holds:
                given = ", ".join(f"{name} = {size}" for name, size in sizes.items())
                return (
                    f"the program was exported for sizes with {ex.render(guard, self._names())}, which {given} violates"
                )
        return None

    def shape(self, spec: TensorSpec, sizes: Mapping[str, int]) -> tuple[int, ...]:
        """Shape of an input or output at these sizes; KeyError when it depends on data."""
        values: dict[str, int] = {}
        for name, dimension in self.by_name.items():
            value = self.axes[dimension.symbol].symbol_of(sizes[name])
            if value is None:
                raise ShapeError(f"{name} = {sizes[name]} is not possible", input_name=spec.name, axis=None)
            values[dimension.symbol] = value
        return tuple(n if isinstance(n, int) else int(ex.evaluate(n, values)) for n in spec.shape)

    def describe(self, spec: TensorSpec) -> str:
        """``[batch, sequence, 384]``."""
        return "[" + ", ".join(str(n) if isinstance(n, int) else ex.render(n, self._names()) for n in spec.shape) + "]"

    def _names(self) -> dict[str, str]:
        return {
            d.symbol: d.name
            for d in self.by_name.values()
            if self.axes[d.symbol].scale == 1 and not self.axes[d.symbol].offset
        }


def _range(dimension: Dimension) -> str:
    return f"{dimension.min} to {dimension.max}" if dimension.max is not None else f"{dimension.min} or more"


def resolve(
    inputs: tuple[TensorSpec, ...],
    outputs: tuple[TensorSpec, ...],
    *,
    ranges: Mapping[str, tuple[int, int | None]],
    guards: tuple[ex.Expr, ...],
    recorded: Iterable[tuple[str, int, str]],
    configured: Mapping[str, str],
) -> Dimensions:
    """Name and bound every dimension. ``recorded``: (input, axis, name) of the artifact; ``configured``: name ->
    ``input.axis``.

    Raises ProgramError ``UnknownDimension`` for a name that points at nothing, or names a size twice.
    """
    axes = {symbol: axis for symbol in ranges if (axis := _bare_axis(symbol, inputs) or _linear_axis(symbol, inputs))}
    roots = {s for spec in inputs for n in spec.shape if isinstance(n, ex.Expr) for s in n.symbols()}
    if lost := sorted(roots - axes.keys()):
        raise ProgramError(
            "ArtifactVerified", "UnsupportedProgram", f"no input axis determines the size {lost[0]} of the program"
        )
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
    return Dimensions(inputs, by_name, {s: axes[s] for s in roots}, guards)


def batch_of(
    dimensions: Dimensions, outputs: tuple[TensorSpec, ...], *, stateful: str | None
) -> tuple[str | None, str | None]:
    """(name of the batch dimension, None) or (None, why there is none)."""
    if stateful is not None:
        return None, f"the program writes to its buffer {stateful}; each request runs alone on a fresh copy"
    found = _batch_symbols(dimensions.inputs, outputs)
    if len(found) == 1:
        return next(d.name for d in dimensions.by_name.values() if d.symbol == found[0]), None
    if len(found) > 1:
        return None, "several dynamic sizes are the first axis of an input and an axis of every output"
    first = [
        n for spec in dimensions.inputs for n in spec.shape[:1] if isinstance(n, ex.Expr) and n.operator == "symbol"
    ]
    if not first:
        return None, "the first axis of every input is fixed; export with a dynamic batch axis"
    lacking = next((o.name for o in outputs if not any(isinstance(n, ex.Expr) and n in first for n in o.shape)), None)
    if lacking is None:
        return None, "no dynamic first axis of an input is exactly one axis of every output"
    return None, f"output {lacking} has no axis that is the first axis of an input"


def _batch_symbols(inputs: tuple[TensorSpec, ...], outputs: tuple[TensorSpec, ...]) -> list[str]:
    first = [n for spec in inputs for n in spec.shape[:1] if isinstance(n, ex.Expr) and n.operator == "symbol"]
    found: list[str] = []
    for expr in dict.fromkeys(first):
        symbol = str(expr.value)
        mentions = [[n for n in o.shape if isinstance(n, ex.Expr) and symbol in n.symbols()] for o in outputs]
        if outputs and all(axes == [expr] for axes in mentions):
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
            if isinstance(n, ex.Expr) and n.symbols() == {symbol} and (line := _line(n)) is not None:
                return Axis(i, axis, *line)
    return None


def _line(expr: ex.Expr) -> tuple[int, int] | None:
    """(scale, offset) of an expression that is ``scale * symbol + offset`` with a positive scale, else None."""
    if any(e.operator not in {"const", "symbol", "add", "mul", "sub", "neg"} for e in ex.walk(expr)):
        return None
    (symbol,) = expr.symbols()
    at = [ex.evaluate(expr, {symbol: n}) for n in (0, 1, 2, 1000)]
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
        line = (1, 0) if n.operator == "symbol" else _line(n) if len(n.symbols()) == 1 else None
        if line is None:
            raise _unknown(name, f"axis {number} of input {input_name} is {n}, from which no size can be derived")
        return next(iter(n.symbols())), Axis(i, number, *line)
    raise _unknown(name, f"the program has no input {input_name!r}; it has {', '.join(s.name for s in inputs)}")


def _unknown(name: str, why: str) -> ProgramError:
    return ProgramError("Accepted", "UnknownDimension", f"dimension {name!r}: {why}", field=f"{_FIELD}.{name}")
