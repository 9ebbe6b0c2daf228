"""Runs a flat program: a list of steps over numbered registers. Nothing is generated or compiled, so nothing of a
file is executed.

Weights and constants sit in registers of their own from the start. A step calls one function with the values of some
registers, stores what it returns, and clears the registers that nobody reads any more (as the generated code of
``torch.fx`` does). Cost over the operators themselves: about 0.3 µs per step.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from operator import itemgetter
from typing import Any

from headway_runtime.program.control import Autocast, Cond, Map, Scan

_CONTROL: dict[str, Callable[..., Callable[..., Any]]] = {
    "autocast": Autocast,
    "cond": Cond,
    "map": Map,
    "scan": Scan,
}

Getter = Callable[[list[Any]], tuple[Any, ...]]
Out = int | None | tuple[Any, ...]
Step = tuple[Callable[..., Any], Getter, Out, tuple[int, ...]]


class Machine:
    """One graph, ready to run. ``call`` may be used by several threads at once: registers belong to a call."""

    def __init__(
        self, registers: list[Any], steps: list[Step], inputs: list[int], outputs: list[int], copies: list[int]
    ) -> None:
        self._registers = registers
        self._steps = steps
        self._inputs = inputs
        self._outputs = outputs
        self._copies = copies

    def call(self, *values: Any) -> tuple[Any, ...]:
        """Run once. ``values`` in the order of the graph's inputs; the results in the order of its outputs."""
        registers = self._registers.copy()
        for register, value in zip(self._inputs, values, strict=True):
            registers[register] = value
        for register in self._copies:  # what the program writes to is its own for this run
            registers[register] = registers[register].clone()
        for function, get, out, unused in self._steps:
            result = function(*get(registers))
            if isinstance(out, int):
                registers[out] = result
            elif out is not None:
                _unpack(registers, out, result)
            for register in unused:
                registers[register] = None
        return tuple([registers[register] for register in self._outputs])


def _unpack(registers: list[Any], out: tuple[Any, ...], result: Sequence[Any]) -> None:
    if len(out) != len(result):
        raise RuntimeError(f"an operator returned {len(result)} values where the program has {len(out)}")
    for target, value in zip(out, result, strict=True):
        if isinstance(target, int):
            registers[target] = value
        elif target is not None:
            _unpack(registers, target, value)


class Builder:
    """Turns instructions of a prepared program into a Machine. ``function`` resolves an operator, ``constant`` a
    literal.
    """

    def __init__(self, function: Callable[[str], Callable[..., Any]], constant: Callable[[Any], Any]) -> None:
        self._function = function
        self._constant = constant
        self._registers: list[Any] = []
        self._names: dict[str, int] = {}
        self._pool: dict[str, int] = {}
        self._steps: list[tuple[Callable[..., Any], list[int], Out]] = []

    def value(self, name: str, content: Any = None) -> int:
        """Register of a value of the program; ``content`` fills it from the start (weights)."""
        if name in self._names:
            raise ValueError(f"{name} is computed twice")
        self._names[name] = self._new(content)
        return self._names[name]

    def instruction(self, item: Mapping[str, Any]) -> None:
        """Add one instruction of ``program.json``."""
        function = self._step(item)
        arguments = [self._argument(a) for a in item["args"]]
        fixed = {name: self._constant(value) for name, value in item["kwargs"].items() if not _refers(value)}
        named = [name for name in item["kwargs"] if name not in fixed]
        if fixed:
            function = partial(function, **fixed)
        if named:
            function = _Named(function, len(arguments), tuple(named))
            arguments += [self._argument(item["kwargs"][name]) for name in named]
        self._steps.append((function, arguments, self._out(item["out"])))

    def finish(self, inputs: list[str], outputs: list[str], *, copies: Sequence[str] = ()) -> Machine:
        """The machine; ``copies`` are the inputs and weights that the program writes to."""
        results = [self._names[name] for name in outputs]
        kept = (
            set(results)
            | set(self._pool.values())
            | {r for r, value in enumerate(self._registers) if value is not None}
        )
        last: dict[int, int] = {}
        for number, (_, arguments, out) in enumerate(self._steps):
            last.update(dict.fromkeys([*arguments, *_flat(out)], number))
        unused: list[list[int]] = [[] for _ in self._steps]
        for register, number in last.items():
            if register not in kept:
                unused[number].append(register)
        steps: list[Step] = [
            (function, _getter(arguments), out, tuple(sorted(free)))
            for (function, arguments, out), free in zip(self._steps, unused, strict=True)
        ]
        return Machine(
            self._registers, steps, [self._names[i] for i in inputs], results, [self._names[c] for c in copies]
        )

    def _step(self, item: Mapping[str, Any]) -> Callable[..., Any]:
        """What an instruction calls: an operator, or the graphs that it carries."""
        if item["op"] not in _CONTROL:
            return self._function(item["op"])
        return _CONTROL[item["op"]](*(self._branch(b).call for b in item["branches"]))

    def _branch(self, branch: Mapping[str, Any]) -> Machine:
        builder = self._inner()
        for name in branch["inputs"]:
            builder.value(name)
        for item in branch["nodes"]:
            builder.instruction(item)
        return builder.finish(branch["inputs"], [o["v"] for o in branch["outputs"]])

    def _inner(self) -> "Builder":
        """A builder for a graph that an instruction carries."""
        return Builder(self._function, self._constant)

    def _new(self, content: Any) -> int:
        self._registers.append(content)
        return len(self._registers) - 1

    def _argument(self, argument: Any) -> int:
        """Register that holds an argument; a list with values in it becomes a step of its own."""
        if isinstance(argument, dict) and "v" in argument:
            return self._names[argument["v"]]
        if isinstance(argument, list) and _refers(argument):
            items = [self._argument(a) for a in argument]
            register = self._new(None)
            self._steps.append((_listed, items, register))
            return register
        key = repr(argument)
        if key not in self._pool:
            self._pool[key] = self._new(self._constant(argument))
        return self._pool[key]

    def _out(self, out: Any) -> Out:
        if isinstance(out, list):
            return tuple(self._out(o) for o in out)
        return None if out is None else self.value(out)


class _Named:
    """Passes the last arguments by keyword."""

    def __init__(self, function: Callable[..., Any], positional: int, names: tuple[str, ...]) -> None:
        self._function = function
        self._positional = positional
        self._names = names

    def __call__(self, *values: Any) -> Any:
        named = dict(zip(self._names, values[self._positional :], strict=True))
        return self._function(*values[: self._positional], **named)


def _listed(*items: Any) -> list[Any]:
    return list(items)


def _refers(argument: Any) -> bool:
    if isinstance(argument, list):
        return any(_refers(a) for a in argument)
    return isinstance(argument, dict) and "v" in argument


def _flat(out: Out) -> list[int]:
    if isinstance(out, tuple):
        return [r for o in out for r in _flat(o)]
    return [] if out is None else [out]


def _getter(registers: list[int]) -> Getter:
    if not registers:
        return lambda _: ()
    if len(registers) == 1:
        only = registers[0]
        return lambda values: (values[only],)
    return itemgetter(*registers)
