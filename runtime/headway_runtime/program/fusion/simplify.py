"""What needs no step to be known, and what hands back what it was given."""

from typing import Any

import torch

from headway_runtime.program.fusion.graph import Graph, references

MAX_CONSTANT = 1 << 16
MAX_CONSTANTS = 1 << 22
"""Numbers of a tensor that is computed once and kept, and of all of them; more would be memory that nobody counted."""

_SAME_WORDS = """
    to.dtype to.device to.dtype_layout type_as.default contiguous.default detach.default alias.default
"""
_SAME = frozenset(f"aten.{name}" for name in _SAME_WORDS.split())
"""Operators that hand back their argument when it is as they want it, which its type and layout decide."""
_WHOLE = (1 << 63) - 1
_SLICE = "aten.slice.Tensor"


def fold(graph: Graph) -> None:
    """Compute once what follows from weights and numbers alone."""
    known = set(graph.constants)
    nodes, left = [], MAX_CONSTANTS
    for node in graph.nodes:
        read = list(references(node))
        found = graph.runs[0].get(node["out"]) if isinstance(node["out"], str) else None
        if known.issuperset(read) and isinstance(found, torch.Tensor) and found.numel() <= min(MAX_CONSTANT, left):
            graph.constants[node["out"]] = found.resolve_neg().clone()
            known.add(node["out"])
            left -= found.numel()
        else:
            nodes.append(node)
    graph.rebuild(nodes)


def skip_identities(graph: Graph) -> None:
    """Read what an operator was given in the place of what it handed back."""
    renamed: dict[str, str] = {}
    nodes = []
    for node in graph.nodes:
        if (node["op"] in _SAME or _is_whole(node["op"], node["args"])) and _hands_back(graph, node):
            renamed[node["out"]] = node["args"][0]["v"]
        else:
            nodes.append(node)
    graph.rebuild(nodes, renamed)
    graph.drop_unread()


def _is_whole(op: str, args: list[Any]) -> bool:
    start, end = (args[2] if len(args) > 2 else None), (args[3] if len(args) > 3 else None)
    return op == _SLICE and start in (None, 0) and end in (None, _WHOLE) and len(args) < 5


def _hands_back(graph: Graph, node: Any) -> bool:
    given, made = graph.seen(node["args"][0]), graph.seen({"v": node["out"]})
    return bool(given) and len(given) == len(made) and all(_is(a, b) for a, b in zip(given, made, strict=True))


def _is(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.data_ptr() == b.data_ptr() and (a.shape, a.stride(), a.dtype) == (b.shape, b.stride(), b.dtype)
