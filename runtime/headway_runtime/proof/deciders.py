"""Behind a whole number or a boolean there is a decision: the place of the largest score, or a score beyond a bound.

Rounding moves scores a little, so a decision may flip where two scores all but agree, and only there. And a decision
that does not flip shows little: labels stay the same while padding moves their scores. So the trials look at the scores
themselves. Read from the prepared document. Pure: no program is opened here.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

PLACES = {
    "aten.argmax.default": None,
    "aten.argmin.default": None,
    "aten.argsort.default": None,
    "aten.max.dim": 1,
    "aten.min.dim": 1,
    "aten.sort.default": 1,
    "aten.topk.default": 1,
}
"""Operator that answers places along an axis -> which of its results they are."""

BOUNDS = {f"aten.{name}.Scalar" for name in ("gt", "ge", "lt", "le")}
SAME = {f"aten.{name}" for name in ("to.dtype", "_to_copy.default", "clone.default", "alias.default", "detach.default")}
RESHAPED = {
    f"aten.{name}"
    for name in ("squeeze.dim", "squeeze.default", "unsqueeze.default", "view.default", "reshape.default")
}
MAX_STEPS = 8


@dataclass(frozen=True, slots=True)
class Decider:
    """``scores``: the value behind the output. ``axis``: along which places were chosen, ``kept`` whether the output
    still has it; ``bound``: what the scores were compared with. Neither where the output has another shape.
    """

    output: int
    scores: str
    axis: int | None = None
    kept: bool = False
    bound: float | None = None


def deciders(document: Mapping[str, Any]) -> list[Decider]:
    """One for each output that is a decision of a form that is known here."""
    producers: dict[str, tuple[Mapping[str, Any], int | None]] = {}
    for node in document["nodes"]:
        outs = node["out"] if isinstance(node["out"], list) else [node["out"]]
        for position, name in enumerate(outs):
            if isinstance(name, str):
                producers[name] = (node, position if isinstance(node["out"], list) else None)
    found = [
        _decider(number, output["value"], producers)
        for number, output in enumerate(document["outputs"])
        if not output["dtype"].startswith(("float", "bfloat"))
    ]
    return [decider for decider in found if decider is not None]


def _decider(number: int, value: str, producers: Mapping[str, tuple[Mapping[str, Any], int | None]]) -> Decider | None:
    aligned = True
    for _ in range(MAX_STEPS):
        if value not in producers:
            return None
        node, position = producers[value]
        first = node["args"][0] if node["args"] else None
        if not isinstance(first, dict) or "v" not in first:
            return None
        if node["op"] in PLACES and PLACES[node["op"]] == position:
            return _places(number, node, first["v"], aligned=aligned)
        if node["op"] in BOUNDS:
            bound = node["args"][1] if len(node["args"]) > 1 else None
            fits = aligned and isinstance(bound, int | float)
            return Decider(number, first["v"], bound=float(bound) if fits and bound is not None else None)
        if node["op"] not in SAME | RESHAPED:
            return None
        aligned = aligned and node["op"] in SAME
        value = first["v"]
    return None


def _places(number: int, node: Mapping[str, Any], scores: str, *, aligned: bool) -> Decider:
    args, kwargs, op = node["args"], node["kwargs"], node["op"]
    at = 2 if op == "aten.topk.default" else 1  # topk(x, k, dim)
    axis = args[at] if len(args) > at else kwargs.get("dim", None if op.startswith("aten.arg") else -1)
    if op in ("aten.argsort.default", "aten.sort.default", "aten.topk.default"):
        axis, kept = (-1 if axis is None else axis), True
    else:
        kept = bool(args[2] if len(args) > 2 else kwargs.get("keepdim", False))
    return Decider(number, scores, axis if aligned and isinstance(axis, int) else None, kept)
