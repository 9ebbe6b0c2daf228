"""All of it in order, and what the new operators stand for."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from headway_runtime.kernels.pointwise import Pointwise
from headway_runtime.program.fusion import patterns, simplify, views
from headway_runtime.program.fusion.graph import Graph, Node, Run, references

_CONTROL = "branches"


@dataclass(frozen=True, slots=True)
class Fused:
    """Instructions that compute what those before did, and the tensors that they read beside the inputs."""

    nodes: Sequence[Node]
    constants: Mapping[str, torch.Tensor]
    outputs: Sequence[str]
    functions: Mapping[str, Callable[..., Any]]


def fuse(
    nodes: Sequence[Node],
    constants: Mapping[str, torch.Tensor],
    runs: Sequence[Run],
    outputs: Sequence[str],
    *,
    kernels: Pointwise,
) -> Fused | None:
    """`runs`: what every value was in two steps of different sizes. None for a program that writes to its own values or
    has branches, where what was seen once says nothing.
    """
    if any(_CONTROL in node or _writes(node["op"]) for node in nodes):
        return None
    graph = Graph(list(nodes), dict(constants), [dict(run) for run in runs], outputs)
    simplify.fold(graph)
    simplify.skip_identities(graph)
    patterns.norms(graph)
    patterns.norms_before_turns(graph)
    patterns.gates(graph)
    patterns.rotations(graph)
    views.shorten(graph)
    read = {name for node in graph.nodes for name in references(node)} | set(graph.outputs)
    return Fused(
        graph.nodes,
        {name: tensor for name, tensor in graph.constants.items() if name in read},
        graph.outputs,
        {
            patterns.NORM: kernels.norm,
            patterns.ADD_NORM: kernels.add_norm,
            patterns.GATE: kernels.gate,
            patterns.ROTATE: kernels.rotate,
        },
    )


def _writes(op: str) -> bool:
    """Whether an operator's name says that it writes to its argument."""
    name = op.split(".")[1] if op.count(".") > 1 else ""
    return name.endswith("_") and not name.startswith("__")
