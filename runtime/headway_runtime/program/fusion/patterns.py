"""The three small things that decoders are made of between their products, as transformers writes them."""

from collections.abc import Iterator
from typing import Any

import torch

from headway_runtime.kernels.pointwise import GELU_TANH, SILU
from headway_runtime.prepare.decoder import ATTENTION
from headway_runtime.program.fusion.graph import Graph, Node, value
from headway_runtime.program.fusion.views import in_order, places

NORM, ADD_NORM, GATE, ROTATE = "fused:norm", "fused:add_norm", "fused:gate", "fused:rotate"

_ADD, _MUL, _TURN = "aten.add.Tensor", "aten.mul.Tensor", "aten.transpose.int"
_WHOLE = (1 << 63) - 1


def norms(graph: Graph) -> None:
    """x * rsqrt(mean(x^2) + epsilon) * weight, in any order of factors; with the sum before it, where x is one."""
    found = {node["out"]: norm for node in graph.nodes if (norm := _norm(graph, node)) is not None}
    sums = {x["v"]: out for out, (x, _, _) in reversed(found.items()) if _is_sum(graph, x)}
    nodes: list[Node] = []
    for node in graph.nodes:
        out = node["out"]
        if isinstance(out, str) and out in sums:
            _, weight, epsilon = found[sums[out]]
            nodes.append(_call(ADD_NORM, [*node["args"], weight, epsilon], [out, sums[out]]))
        elif isinstance(out, str) and out in found and out not in sums.values():
            nodes.append(_call(NORM, list(found[out]), out))
        elif not isinstance(out, str) or out not in found:
            nodes.append(node)
    graph.rebuild(nodes)
    graph.drop_unread()


def norms_before_turns(graph: Graph) -> None:
    """Norm first and exchange axes then, where the last axis stays the last: what is normed lies dense, and the turned
    view of it may be of no account to who reads it.
    """
    nodes: list[Node] = []
    for node in graph.nodes:
        turn = graph.maker(node["args"][0], _TURN) if node["op"] == NORM else None
        if turn is None or not _keeps_rows(graph, turn):
            nodes.append(node)
            continue
        straight = graph.new([t.transpose(*turn["args"][1:]) for t in graph.seen(value(node["out"]))])
        nodes.append(_call(NORM, [turn["args"][0], *node["args"][1:]], straight))
        nodes.append(_call(_TURN, [value(straight), *turn["args"][1:]], node["out"]))
    graph.rebuild(nodes)
    graph.drop_unread()


def gates(graph: Graph) -> None:
    """silu(x) * y, gelu(x) * y."""
    nodes = []
    for node in graph.nodes:
        gate = next((g for one, other in _factors(node) if (g := _gate(graph, one, other)) is not None), None)
        nodes.append(node if gate is None else _call(GATE, gate, node["out"]))
    graph.rebuild(nodes)
    graph.drop_unread()


def rotations(graph: Graph) -> None:
    """Queries and keys that are turned by their positions, just before attention: x * cos + swapped(x) * sin."""
    nodes: list[Node] = []
    for node in graph.nodes:
        if node["op"] == ATTENTION:
            args = list(node["args"])
            for at in (0, 1):
                turned = _turned(graph, args[at])
                if turned is not None:
                    name = graph.new(graph.seen(args[at]))
                    nodes.append(_call(ROTATE, turned, name))
                    args[at] = value(name)
            node = {**node, "args": args}
        nodes.append(node)
    graph.rebuild(nodes)
    graph.drop_unread()


def _keeps_rows(graph: Graph, turn: Node) -> bool:
    axes, tensors = turn["args"][1:], graph.seen(turn["args"][0])
    known = all(type(axis) is int for axis in axes) and not turn["kwargs"] and bool(tensors)
    return known and all(axis % tensors[0].dim() != tensors[0].dim() - 1 for axis in axes)


def _call(op: str, args: list[Any], out: Any) -> Node:
    return {"op": op, "args": args, "kwargs": {}, "out": out}


def _factors(node: Node | None, op: str = _MUL) -> Iterator[tuple[Any, Any]]:
    """The two arguments of a product or a sum, in both orders."""
    if node is not None and node["op"] == op and len(node["args"]) == 2 and not node["kwargs"]:
        one, other = node["args"]
        yield one, other
        yield other, one


def _norm(graph: Graph, node: Node) -> tuple[Any, Any, float] | None:
    """x, weight [D] and epsilon."""
    for weight, scaled in _factors(node):
        if not isinstance(weight, dict) or weight.get("v") not in graph.constants:
            continue
        for x, factor in _factors(graph.maker(scaled)):
            epsilon = _epsilon(graph, factor, x)
            width = graph.seen(weight)[0].shape
            fits = len(width) == 1 and graph.is_float(x, weight) and graph.seen(x)[0].shape[-1:] == width
            if epsilon is not None and fits and graph.constants[weight["v"]].is_contiguous():
                return x, weight, epsilon
    return None


def _epsilon(graph: Graph, factor: Any, x: Any) -> float | None:
    """Of rsqrt(mean(x^2, -1, keepdim) + epsilon)."""
    root = graph.maker(factor, "aten.rsqrt.default")
    total = None if root is None else graph.maker(root["args"][0], _ADD)
    if total is None or len(total["args"]) != 2 or total["kwargs"]:
        return None
    averaged, epsilon = total["args"]
    mean = graph.maker(averaged, "aten.mean.dim")
    if type(epsilon) not in (int, float) or mean is None or mean["kwargs"] or len(mean["args"]) != 3:
        return None
    squares, axes, keeps = mean["args"]
    last = len(graph.seen(x)[0].shape) - 1 if graph.seen(x) else -2
    power = graph.maker(squares, "aten.pow.Tensor_Scalar")
    if keeps is not True or axes not in ([-1], [last]) or power is None or power["args"] != [x, 2]:
        return None
    return float(epsilon)


def _is_sum(graph: Graph, x: Any) -> bool:
    node = graph.maker(x, _ADD)
    return (
        node is not None
        and any(True for _ in _factors(node, _ADD))
        and (graph.is_float(*node["args"]) and graph.same_shape(x, *node["args"]))
    )


def _gate(graph: Graph, activated: Any, other: Any) -> list[Any] | None:
    node = graph.maker(activated)
    if node is None or not graph.same_shape(activated, other) or not graph.is_float(activated, other):
        return None
    if node["op"] == "aten.silu.default":
        return [node["args"][0], other, SILU]
    tanh = {"str": "tanh"}
    if node["op"] == "aten.gelu.default" and (node["kwargs"].get("approximate") == tanh or node["args"][1:] == [tanh]):
        return [node["args"][0], other, GELU_TANH]
    return None


def _turned(graph: Graph, operand: Any) -> list[Any] | None:
    """Base, cos, sin and heads of an operand [T, heads, D] of attention; None when it is not turned so."""
    total, found = places(graph, operand)
    tokens_first = found and all(
        made.dim() == 4 and made.shape[0] == 1 and torch.equal(made[0].transpose(0, 1), seen) for made, seen in found
    )
    node = graph.maker(total, _ADD)
    if not tokens_first or node is None:
        return None
    for straight, crossed in _factors(node, _ADD):
        for x, cos in _factors(graph.maker(straight)):
            for swapped, sin in _factors(graph.maker(crossed)):
                if _is_swapped(graph, swapped, x) and (angles := _angles(graph, cos, sin, x)) is not None:
                    return _from_base(graph, x, angles)
    return None


def _is_swapped(graph: Graph, swapped: Any, x: Any) -> bool:
    """cat([-x[half:], x[:half]], -1)."""
    node = graph.maker(swapped, "aten.cat.default")
    if node is None or len(node["args"]) != 2 or not graph.seen(x) or not isinstance(node["args"][0], list):
        return False
    tensors, axis = node["args"]
    rank, width = graph.seen(x)[0].dim(), graph.seen(x)[0].shape[-1]
    minus = graph.maker(tensors[0], "aten.neg.default") if len(tensors) == 2 else None
    if minus is None or axis not in (-1, rank - 1) or width % 2:
        return False
    high, low = _slice(graph, minus["args"][0], x, rank, width), _slice(graph, tensors[1], x, rank, width)
    return high == (width // 2, width) and low == (0, width // 2)


def _slice(graph: Graph, part: Any, x: Any, rank: int, width: int) -> tuple[int, int] | None:
    """Which part of the last axis of x it is."""
    node = graph.maker(part, "aten.slice.Tensor")
    if node is None or node["args"][0] != x or node["kwargs"] or len(node["args"]) not in (3, 4):
        return None
    _, axis, start, *end = node["args"]
    stop = end[0] if end else None
    stop = width if stop in (None, _WHOLE) else stop
    whole = axis in (-1, rank - 1) and type(start or 0) is int and type(stop) is int
    return (start or 0, stop) if whole else None


def _angles(graph: Graph, cos: Any, sin: Any, x: Any) -> list[Any] | None:
    """cos and sin as they lie [T, D], one row for all heads."""
    bases = []
    for angle in (cos, sin):
        base, found = places(graph, angle)
        for tensor, turned, (_, seen) in zip(graph.seen(base), graph.seen(x), found, strict=False):
            tokens, width = turned.shape[-2:]
            if tuple(seen.shape) != (1, 1, tokens, width) or tensor.shape[-1] != width:
                return None
        if not in_order(found) or not graph.is_float(base):
            return None
        bases.append(base)
    return bases if graph.same_shape(*bases) else None


def _from_base(graph: Graph, x: Any, angles: list[Any]) -> list[Any] | None:
    """x [1, heads, T, D] is a view of something that lies [T, heads, D]."""
    base, found = places(graph, x)
    heads = {seen.shape[1] for _, seen in found if seen.dim() == 4}
    straight = found and all(
        seen.dim() == 4 and torch.equal(seen[0].transpose(0, 1).flatten(), counting.flatten())
        for counting, seen in found
    )
    return [base, *angles, heads.pop()] if straight and len(heads) == 1 and graph.is_float(base) else None
