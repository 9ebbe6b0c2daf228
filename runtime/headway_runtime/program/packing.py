"""Multiplications by stored weights, replaced by kernels that pack their weight once, when the program loads.

A weight that several of them use (an embedding that is the last layer's, too) is packed once. Where rows of it are
looked up as well, they are kept in the same precision beside it; as exported they stay in the file, mapped, and only
those that are read become memory.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from headway_api.types import Precision

from headway_runtime.kernels import linear, rows
from headway_runtime.prepare.translate.graph import references
from headway_runtime.program import functions
from headway_runtime.program.datatypes import TORCH
from headway_runtime.program.weights import Weights

LINEAR = "aten.linear.default"
LOOKUP = "aten.embedding.default"
PACKED, _ROWS = "packed:", "rows:"  # no name of an operator has a colon

Node = Mapping[str, Any]
Key = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """`nodes`: those of the document, with `packed:<weight>` in the place of what will be packed, and `rows:<table>` of
    what is looked up. `weights`: what the document says of the weights to pack, by value; `same`: for each weight of
    such a node the value that is packed for it; `tables`: what it says of tables; `kept`: weights that others read.
    """

    nodes: tuple[Node, ...]
    weights: Mapping[str, Node]
    same: Mapping[str, str]
    tables: Mapping[str, Node]
    kept: frozenset[str]

    @property
    def is_half(self) -> bool:
        """Whether what is multiplied by, or looked up, has 16 bits."""
        return any(row["dtype"] != "float32" for row in (*self.weights.values(), *self.tables.values()))


@dataclass(frozen=True, slots=True)
class Multiplications:
    """What a plan's operators stand for, and the bytes of the packed weights and of tables."""

    by_weight: Mapping[str, Callable[..., Any]]
    bytes: int

    def resolve(self, name: str) -> Callable[..., Any]:
        """The function behind an operator's name. Raises ProgramError for a name off the list."""
        return self.by_weight[name] if name in self.by_weight else functions.resolve(name)


def plan(document: Mapping[str, Any], *, tables: bool = False) -> Plan:
    """Which weights are packed: those of two axes that a multiplication of the main graph reads as they are stored.
    ``tables``: those in which it looks up, too.
    """
    stored = {row["value"]: row for row in document["weights"] if _packable(row)}
    nodes = tuple(_replaced(node, stored, tables=tables) for node in document["nodes"])
    users = [node["op"].removeprefix(PACKED) for node in nodes if node["op"].startswith(PACKED)]
    looked = [node["op"].removeprefix(_ROWS) for node in nodes if node["op"].startswith(_ROWS)]
    first: dict[Key, str] = {}
    same = {value: first.setdefault(_key(stored[value]), value) for value in users}
    kept = {value for node in nodes for value in references([node["args"], list(node["kwargs"].values())])}
    kept |= {output["value"] for output in document["outputs"]}
    every = {row["value"] for row in document["weights"]}
    return Plan(
        nodes,
        {value: stored[value] for value in same.values()},
        same,
        {value: stored[value] for value in looked},
        frozenset(kept & every),
    )


def weights_bytes(planned: Plan, document: Mapping[str, Any], precision: Precision) -> int:
    """What the weights of a decoder take on the processor: those that are packed, tables, and the records of others."""
    kept = sum(_packed_bytes(row, precision) for row in planned.weights.values())
    tables = [row for row in planned.tables.values() if _becomes_smaller(row, precision)]
    kept += sum(rows.bytes_of(math.prod(row["shape"]), row["shape"][1], precision) for row in tables)
    return kept + stored_bytes(planned, document, precision)


def stored_bytes(planned: Plan, document: Mapping[str, Any], precision: Precision) -> int:
    """Of the records that stay mapped."""
    tables = {value for value, row in planned.tables.items() if not _becomes_smaller(row, precision)}
    stored = planned.kept | tables
    found: dict[int, int] = {row["offset"]: row["bytes"] for row in document["weights"] if row["value"] in stored}
    return sum(found.values())


def pack(planned: Plan, weights: Weights, precision: Precision, *, wide: bool = False) -> Multiplications:
    """Pack one weight after the other, and give back what its original took: never more than one is there twice.

    ``wide``: what is looked up is float32. (A product is of the type of what is multiplied.)
    """
    packed: dict[str, linear.Packed] = {}
    tables: dict[str, rows.Rows] = {}
    stored: dict[str, torch.Tensor] = {}
    for value in planned.tables:
        if (table := rows.keep(weights.tensors[value].detach(), precision)) is not None:
            tables[value] = table
        else:
            stored[value] = weights.tensors[value]
    needed = planned.kept | stored.keys()
    for value in planned.weights:
        packed[value] = linear.pack(weights.tensors[value].detach(), precision)
        weights.release({name for name, other in planned.same.items() if other == value} - needed)
    weights.release(tables.keys() - needed)
    weights.rest()
    lookups = {_ROWS + value: _lookup(table, wide=wide) for value, table in tables.items()}
    lookups |= {_ROWS + value: _lookup(_stored(table), wide=wide) for value, table in stored.items()}
    return Multiplications(
        lookups | {PACKED + value: packed[other] for value, other in planned.same.items()},
        sum(found.bytes for found in packed.values()) + sum(found.bytes for found in tables.values()),
    )


def stand_ins(planned: Plan, weights: Weights, *, wide: bool = False) -> Multiplications:
    """The same lookups, by the tables as they are mapped, and something in the place of each product that costs next to
    nothing: each output is a sum of two inputs. For trials of what lies between products, whatever these answer.
    """
    tables = {_ROWS + value: _lookup(_stored(weights.tensors[value]), wide=wide) for value in planned.tables}
    products = {
        PACKED + value: _stand_in(planned.weights[other]["shape"], number)
        for number, (value, other) in enumerate(planned.same.items())
    }
    return Multiplications(tables | products, 0)


def _stand_in(shape: Sequence[int], seed: int) -> Callable[..., torch.Tensor]:
    outputs, inputs = shape
    numbers = torch.arange(outputs)
    first, second = (numbers * 7919 + 31 * seed) % inputs, (numbers * 104729 + 17 * seed + 5) % inputs

    def call(x: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        y = x[..., first] - 0.5 * x[..., second]
        return y if bias is None else y + bias

    return call


def _lookup(table: Callable[[torch.Tensor], torch.Tensor], *, wide: bool) -> Callable[..., torch.Tensor]:
    if wide:
        return lambda indices, *_: table(indices).float()
    return lambda indices, *_: table(indices)  # what else an embedding takes is about training


def _stored(table: torch.Tensor) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda indices: torch.nn.functional.embedding(indices, table)


def _packable(row: Node) -> bool:
    floating = TORCH[row["dtype"]] in (torch.float32, torch.bfloat16, torch.float16)
    return len(row["shape"]) == 2 and floating and 0 not in row["shape"]


def _key(row: Node) -> Key:
    return (row["offset"], row["start"], row["dtype"], tuple(row["shape"]), tuple(row["stride"]))


def _becomes_smaller(row: Node, precision: Precision) -> bool:
    return precision is Precision.INT8 or (precision is Precision.BFLOAT16 and row["dtype"] != "bfloat16")


def _replaced(node: Node, stored: Mapping[str, Node], *, tables: bool) -> Node:
    """With another name, and without the weight among its arguments."""
    args = node["args"]
    at = {LINEAR: 1, LOOKUP: 0 if tables else None}.get(node["op"])
    if at is None or node["kwargs"] or len(args) <= at:
        return node
    weight = args[at]
    if not isinstance(weight, dict) or weight.get("v") not in stored:
        return node
    name = (PACKED if node["op"] == LINEAR else _ROWS) + weight["v"]
    return {**node, "op": name, "args": [*args[:at], *args[at + 1 :]]}


def _packed_bytes(row: Node, precision: Precision) -> int:
    outputs, inputs = row["shape"]
    return linear.bytes_of(outputs, inputs, TORCH[row["dtype"]], precision)
