"""Rows that only fill a run up are not multiplied, where that was shown to change no answer.

A run of texts of 5, 9 and 30 tokens has 90 cells, of which 46 hold nothing that anybody asked for. A product of an x
[batch, padded dimension, K] with packed weights can leave them out: its answer is 0 there. Which products have such an
x is told by the shapes of the program (`found`), once it is known along which dimension runs are padded; whether it may
be done is tried with the padding itself (`proof.runs`). A run says how long its rows really are (`Real`): nothing is
shared between runs, and the machine carries it in a register of its own.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, product
from typing import Any

import torch

from headway_runtime.program.errors import ProgramError
from headway_runtime.program.interface import Interface
from headway_runtime.program.packing import LINEAR, PACKED, Multiplications, Node, Plan
from headway_runtime.program.shape_gate import ShapeGate

REAL: Node = {"value": "real:", "written": False}
"""The input of a machine that carries a `Real`, or None. No value of a document has a colon in its name."""

TRIED = (2, 3, 5, 7, 11, 13)
"""Sizes at which shapes are derived; the largest and the least of a dimension are there for one of few sizes."""
COMBINATIONS = 3
MOST_TRIED = 512

Function = Callable[..., Any]
Sizes = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Skips:
    """Along which dimension runs are padded, the numbers of the nodes whose x is [batch, dimension, K], and which share
    of a run's time these products take.
    """

    dimension: str
    nodes: frozenset[int]
    share: float = 0.0

    def cost(self, real: int, run: int) -> float:
        """What a run of so many cells costs where so many are real, of what it would cost if all were."""
        return 1 - self.share * (1 - real / run)

    def real(self, lengths: Sequence[int], size: int) -> "Real":
        """How long the rows of a run, which are filled up to `size`, really are."""
        return Real(torch.tensor(lengths, dtype=torch.int64), size, self.nodes)


@dataclass(frozen=True, slots=True)
class Real:
    """Of one run: the real length of each of its rows, int64 [batch], and to what they are filled up."""

    lengths: torch.Tensor
    size: int
    nodes: frozenset[int]


def carried(planned: Plan, products: Multiplications) -> tuple[tuple[Node, ...], Callable[[str], Function]]:
    """The nodes of a plan, each product of which is told of `REAL`, and what their operators stand for."""
    nodes: list[Node] = []
    told: dict[str, Function] = {}
    for number, node in enumerate(planned.nodes):
        if node["op"].startswith(PACKED):
            name, args = f"{node['op']}:{number}", node["args"]
            told[name] = _Product(products.by_weight[node["op"]], number)
            bias = args[1] if len(args) > 1 else None
            nodes.append({**node, "op": name, "args": [args[0], bias, {"v": REAL["value"]}]})
        else:
            nodes.append(node)
    return tuple(nodes), lambda name: told[name] if name in told else products.resolve(name)


class _Product:
    """One product of the program. The weight may belong to others, whose x is another."""

    def __init__(self, packed: Function, number: int) -> None:
        self._packed = packed
        self._number = number

    def __call__(self, x: torch.Tensor, bias: torch.Tensor | None, real: Real | None) -> Any:
        if real is None or self._number not in real.nodes or x.dim() != 3:
            return self._packed(x, bias)
        if x.shape[0] != len(real.lengths) or x.shape[1] != real.size:
            return self._packed(x, bias)
        return self._packed(x, bias, real.lengths)


def found(document: Mapping[str, Any], program: Interface, batch: str, dimension: str, most: Sizes) -> Skips | None:
    """Which products of a prepared document have an x [batch, dimension, K]; None where there are none, or where no
    sizes tell that. ``most``: the largest size of each dimension.

    What a file says of its shapes counts for nothing: they are derived, at sizes all of which differ.
    """
    at = {
        number: node["args"][0]["v"]
        for number, node in enumerate(document["nodes"])
        if node["op"] == LINEAR and node["args"] and isinstance(node["args"][0], dict) and "v" in node["args"][0]
    }
    telling = list(islice(_telling(program, batch, dimension, most), COMBINATIONS))
    if not at or len(telling) < 2:
        return None
    gate = ShapeGate(document, program)
    left = set(at)
    try:
        for sizes in telling:
            shapes = gate.shapes(list(at.values()), sizes)
            wanted = (sizes[batch], sizes[dimension])
            left &= {
                number
                for number, shape in zip(at, shapes, strict=True)
                if shape is not None and len(shape) == 3 and shape[:2] == wanted
            }
    except ProgramError:
        return None
    return Skips(dimension, frozenset(left)) if left else None


def _telling(program: Interface, batch: str, dimension: str, most: Sizes) -> Iterator[Sizes]:
    """A few combinations of sizes that the program takes. No two sizes of one are equal, nor those along the batch, or
    along the dimension, of two: an axis that is neither is another one in at least one of them.
    """
    names = list(program.dimensions)
    each = [_sizes(program, name, most[name]) for name in names]
    seen: set[tuple[str, int]] = set()
    for chosen in islice(product(*each), MOST_TRIED):
        sizes = dict(zip(names, chosen, strict=True))
        own = {(batch, sizes[batch]), (dimension, sizes[dimension])}
        if len(set(chosen)) < len(chosen) or own & seen or program.check(sizes) is not None:
            continue
        seen |= own
        yield sizes


def _sizes(program: Interface, name: str, most: int) -> list[int]:
    least = max(1, program.dimensions[name].min)
    return list(dict.fromkeys(size for size in (*TRIED, most, least) if least <= size <= most))
