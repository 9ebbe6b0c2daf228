"""Chains of views: what they do to the numbers of their base is found by running them on a tensor that counts."""

from collections.abc import Sequence
from typing import Any

import torch

from headway_runtime.program import functions
from headway_runtime.program.fusion.graph import Graph, Node, Run, value

_WORDS = """
    view.default reshape.default transpose.int permute.default select.int unsqueeze.default squeeze.dim squeeze.dims
    flatten.using_ints unflatten.int contiguous.default clone.default
"""
VIEWS = frozenset(f"aten.{name}" for name in _WORDS.split())
"""Operators whose answer holds numbers of their first argument, in places that only sizes decide."""

MAX_CHAIN = 16
"""Views; each is run again for every operator that reads the last one."""

MAX_NUMBERS = 1 << 20
"""Of a base whose places are counted: what a step of a few tokens makes is smaller, and a weight need not be."""

_constant = functions.constant(torch.device("cpu"))


def base_of(graph: Graph, argument: Any) -> tuple[Any, list[Node]]:
    """What a chain of views began with, and the chain, its first view first. Of a long one, its end."""
    chain: list[Node] = []
    while len(chain) < MAX_CHAIN and (node := graph.maker(argument)) is not None and node["op"] in VIEWS:
        chain.append(node)
        argument = node["args"][0]
    return argument, chain[::-1]


def places(graph: Graph, argument: Any) -> tuple[Any, list[tuple[torch.Tensor, torch.Tensor]]]:
    """The base of a chain, and for each step where the numbers of the argument stand in it: two tensors of places, of
    the base's shape and of the argument's. No steps where that would be many.
    """
    base, chain = base_of(graph, argument)
    found: list[tuple[torch.Tensor, torch.Tensor]] = []
    if any(tensor.numel() > MAX_NUMBERS for tensor in graph.seen(base)):
        return base, found
    for run, tensor in zip(graph.runs, graph.seen(base), strict=False):
        counting = torch.arange(tensor.numel()).view(tensor.shape)
        seen = counting
        for node in chain:
            args = [_resolved(a, run) for a in node["args"][1:]]
            named = {name: _resolved(a, run) for name, a in node["kwargs"].items()}
            seen = functions.resolve(node["op"])(seen, *args, **named)
        found.append((counting, seen))
    return base, found


def in_order(found: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> bool:
    """Whether the numbers stand in the order of the base, in another shape at most."""
    return bool(found) and all(torch.equal(counting.flatten(), seen.flatten()) for counting, seen in found)


def shape_of(found: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> list[int] | None:
    """The shape that the argument has at any size, -1 for what differs; None when more than one axis does."""
    shapes = [tuple(seen.shape) for _, seen in found]
    if len({len(shape) for shape in shapes}) != 1:
        return None
    shape = [sizes[0] if len(set(sizes)) == 1 else -1 for sizes in zip(*shapes, strict=True)]
    return shape if shape.count(-1) <= 1 else None


def shorten(graph: Graph) -> None:
    """One view in the place of a chain, or none, wherever the numbers keep their order."""
    nodes: list[Node] = []
    made: dict[tuple[str, tuple[int, ...]], str] = {}

    def short(argument: Any) -> Any:
        if isinstance(argument, list):
            return [short(item) for item in argument]
        base, chain = base_of(graph, argument)
        if not chain or not graph.seen(base):
            return argument
        base, found = places(graph, argument)
        shape = shape_of(found) if in_order(found) else None
        if shape is None:
            return argument
        if all(counting.shape == seen.shape for counting, seen in found):
            return base
        if len(chain) < 2:
            return argument
        key = (base["v"], tuple(shape))
        if key not in made:
            made[key] = graph.new([t.reshape(shape) for t in graph.seen(base)])
            nodes.append({"op": "aten.reshape.default", "args": [base, shape], "kwargs": {}, "out": made[key]})
        return value(made[key])

    for node in graph.nodes:
        replaced = node if node["op"] in VIEWS else {**node, "args": short(node["args"])}
        nodes.append(replaced)
    graph.rebuild(nodes)
    graph.drop_unread()


def _resolved(argument: Any, run: Run) -> Any:
    if isinstance(argument, list):
        return [_resolved(item, run) for item in argument]
    if isinstance(argument, dict) and "v" in argument:
        return run[argument["v"]]
    return _constant(argument)
