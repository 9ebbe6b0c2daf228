"""Multiplications by stored weights, replaced by kernels that pack their weight once, when the decoder loads.

A weight that several of them use (an embedding that is the last layer's, too) is packed once. Where rows of it are
looked up as well, the original stays, mapped from the file: only the rows that are read become memory.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from headway_api.types import Precision

from headway_runtime.kernels import linear
from headway_runtime.prepare.translate.graph import references
from headway_runtime.program import functions
from headway_runtime.program.datatypes import TORCH
from headway_runtime.program.weights import Weights

LINEAR = "aten.linear.default"
_PACKED = "packed:"  # no name of an operator has a colon

Node = Mapping[str, Any]
Key = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """`nodes`: those of the document, with `packed:<weight>` in the place of what will be packed. `weights`: the rows
    of the weights to pack, by value; `same`: for each weight of such a node the value that is packed for it; `kept`:
    weights that other nodes read.
    """

    nodes: tuple[Node, ...]
    weights: Mapping[str, Node]
    same: Mapping[str, str]
    kept: frozenset[str]


@dataclass(frozen=True, slots=True)
class Multiplications:
    """What a plan's operators stand for, and the bytes of the packed weights."""

    by_weight: Mapping[str, Callable[..., Any]]
    bytes: int

    def resolve(self, name: str) -> Callable[..., Any]:
        """The function behind an operator's name. Raises ProgramError for a name off the list."""
        return self.by_weight[name] if name.startswith(_PACKED) else functions.resolve(name)


def plan(document: Mapping[str, Any]) -> Plan:
    """Which weights are packed: those of two axes that a multiplication of the main graph reads as they are stored."""
    rows = {row["value"]: row for row in document["weights"] if _packable(row)}
    nodes = tuple(_replaced(node, rows) for node in document["nodes"])
    users = [node["op"].removeprefix(_PACKED) for node in nodes if node["op"].startswith(_PACKED)]
    first: dict[Key, str] = {}
    same = {value: first.setdefault(_key(rows[value]), value) for value in users}
    kept = {value for node in nodes for value in references([node["args"], list(node["kwargs"].values())])}
    kept |= {output["value"] for output in document["outputs"]}
    every = {row["value"] for row in document["weights"]}
    return Plan(nodes, {value: rows[value] for value in same.values()}, same, frozenset(kept & every))


def least_bytes(planned: Plan, document: Mapping[str, Any], precision: Precision) -> int:
    """What the weights of a decoder take at least: those that are packed, and the records of the others."""
    others: dict[int, int] = {
        row["offset"]: row["bytes"] for row in document["weights"] if row["value"] in planned.kept
    }
    return sum(_packed_bytes(row, precision) for row in planned.weights.values()) + sum(others.values())


def pack(planned: Plan, weights: Weights, precision: Precision) -> Multiplications:
    """Pack one weight after the other, and give back what its original took: never more than one is there twice."""
    packed: dict[str, linear.Packed] = {}
    for value in planned.weights:
        packed[value] = linear.pack(weights.tensors[value].detach(), precision)
        weights.release({name for name, other in planned.same.items() if other == value} - planned.kept)
    return Multiplications(
        {_PACKED + value: packed[other] for value, other in planned.same.items()},
        sum(found.bytes for found in packed.values()),
    )


def unpacked(planned: Plan, weights: Weights) -> Multiplications:
    """The same multiplications by the weights as they are mapped."""
    found = {value: weights.tensors[value] for value in planned.same}
    return Multiplications({_PACKED + value: _linear(weight) for value, weight in found.items()}, 0)


def _linear(weight: torch.Tensor) -> Callable[..., torch.Tensor]:
    return lambda x, bias=None: torch.nn.functional.linear(x, weight, bias)


def _packable(row: Node) -> bool:
    floating = TORCH[row["dtype"]] in (torch.float32, torch.bfloat16, torch.float16)
    return len(row["shape"]) == 2 and floating and 0 not in row["shape"]


def _key(row: Node) -> Key:
    return (row["offset"], row["start"], row["dtype"], tuple(row["shape"]), tuple(row["stride"]))


def _replaced(node: Node, rows: Mapping[str, Node]) -> Node:
    if node["op"] != LINEAR or node["kwargs"] or len(node["args"]) not in (2, 3):
        return node
    x, weight, *bias = node["args"]
    if not isinstance(weight, dict) or weight.get("v") not in rows:
        return node
    return {**node, "op": _PACKED + weight["v"], "args": [x, *bias]}


def _packed_bytes(row: Node, precision: Precision) -> int:
    outputs: int = row["shape"][0]
    inputs: int = row["shape"][1]
    if precision is Precision.INT8:
        return outputs * inputs + 4 * outputs  # and a scale for each row
    half = precision is Precision.BFLOAT16 or row["dtype"] == "bfloat16"
    return (2 if half else 4) * outputs * inputs
