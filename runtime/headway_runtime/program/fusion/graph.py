"""The instructions of a program while they are rewritten, with what each value was in the steps that were watched."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from headway_runtime.prepare.translate import graph as translated

Node = Mapping[str, Any]
Run = dict[str, Any]
"""What every value of the program was in one step."""


@dataclass(slots=True)
class Graph:
    """`nodes` in order; every value is made once, before it is read. `constants` are filled before a step. `runs`: the
    steps that were watched, at sizes that all differ. `outputs` are read when it is over.
    """

    nodes: list[Node]
    constants: dict[str, torch.Tensor]
    runs: Sequence[Run]
    outputs: Sequence[str]
    makers: dict[str, Node] = field(default_factory=dict)
    _made: int = 0

    def __post_init__(self) -> None:
        self.makers = {value: node for node in self.nodes for value in translated.results(node["out"])}

    def maker(self, argument: Any, op: str | None = None) -> Node | None:
        """The instruction behind an argument; None when there is none, or it is another than `op`."""
        node = self.makers.get(argument["v"]) if isinstance(argument, dict) and "v" in argument else None
        return node if node is not None and (op is None or node["op"] == op) else None

    def seen(self, argument: Any) -> list[torch.Tensor]:
        """The tensors that an argument was in the steps; empty when it is none."""
        if not isinstance(argument, dict) or "v" not in argument:
            return []
        name = argument["v"]
        found = [run.get(name, self.constants.get(name)) for run in self.runs]
        return [t for t in found if isinstance(t, torch.Tensor)] if all(_is_tensor(t) for t in found) else []

    def is_float(self, *arguments: Any) -> bool:
        """Whether all are tensors of float32."""
        return all(self.seen(a) and all(t.dtype == torch.float32 for t in self.seen(a)) for a in arguments)

    def same_shape(self, *arguments: Any) -> bool:
        """Whether all are tensors of one shape, in each step."""
        shapes = [[tuple(t.shape) for t in self.seen(a)] for a in arguments]
        return bool(shapes[0]) and all(shape == shapes[0] for shape in shapes)

    def new(self, seen: Sequence[torch.Tensor]) -> str:
        """A name for a value more, which was this in the steps."""
        name = f"f{self._made}"  # no value of a prepared program is called so
        self._made += 1
        for run, tensor in zip(self.runs, seen, strict=True):
            run[name] = tensor
        return name

    def rebuild(self, nodes: Sequence[Node], renamed: Mapping[str, str] | None = None) -> None:
        """Put other nodes in the place of all; what is renamed is read under its new name."""
        found = [{**n, "args": _renamed(n["args"], renamed), "kwargs": _renamed(n["kwargs"], renamed)} for n in nodes]
        self.nodes = list(found) if renamed else list(nodes)
        if renamed:
            self.outputs = [final(value, renamed) for value in self.outputs]
        self.makers = {value: node for node in self.nodes for value in translated.results(node["out"])}

    def drop_unread(self) -> None:
        """Leave out what nobody reads; what answers nothing is there for what it does."""
        needed = set(self.outputs)
        kept: list[Node] = []
        for node in reversed(self.nodes):
            made = translated.results(node["out"])
            if not made or not needed.isdisjoint(made):
                needed.update(references(node))
                kept.append(node)
        self.rebuild(kept[::-1])


def value(name: str) -> dict[str, str]:
    """An argument that is a value of the program."""
    return {"v": name}


def references(node: Node) -> list[str]:
    """Names of the values that an instruction reads."""
    return translated.references([node["args"], list(node["kwargs"].values())])


def final(name: str, renamed: Mapping[str, str]) -> str:
    """What a value is called after all."""
    while name in renamed:
        name = renamed[name]
    return name


def _renamed(argument: Any, renamed: Mapping[str, str] | None) -> Any:
    if not renamed:
        return argument
    if isinstance(argument, list):
        return [_renamed(item, renamed) for item in argument]
    if isinstance(argument, dict):
        if "v" in argument and len(argument) == 1:
            return {"v": final(argument["v"], renamed)}
        return {key: _renamed(item, renamed) for key, item in argument.items()}
    return argument


def _is_tensor(found: Any) -> bool:
    return isinstance(found, torch.Tensor)
