"""A decoder as it will run: in 32 bits between its products, with fewer operators, where both were seen to be right."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from headway_runtime.kernels.pointwise import Pointwise
from headway_runtime.prepare.decoder import DecoderGeometry
from headway_runtime.program import packing
from headway_runtime.program.fusion import trial
from headway_runtime.program.fusion.trial import Written
from headway_runtime.program.fusion.widen import widen
from headway_runtime.program.packing import Plan
from headway_runtime.program.weights import Weights

NARROW = 0.05
"""Of the largest logit: by how much a program in 16 bits may differ from the same in 32, which is rounding."""


@dataclass(frozen=True, slots=True)
class Lean:
    """What is built: `document` and the tensors that it reads, what its larger operators stand for, and whether what is
    looked up is float32.
    """

    document: Mapping[str, Any]
    constants: Mapping[str, torch.Tensor]
    functions: Mapping[str, Callable[..., Any]]
    wide: bool = False


def lean(
    document: Mapping[str, Any],
    planned: Plan,
    weights: Weights,
    geometry: DecoderGeometry,
    *,
    kernels: Pointwise | None,
) -> Lean:
    """`document` has its nodes from the plan, and its inputs in the contract's order. Without `kernels` it stays as it
    is.
    """
    kept = {value: tensor for value, tensor in weights.tensors.items() if value in planned.kept}
    if kernels is None:
        return Lean(document, kept, {})
    written = Written(document, kept, packing.stand_ins(planned, weights).resolve, geometry)
    widened = _widened(written, planned, weights) if planned.is_half else None
    fused = trial.fused(widened or written, kernels)
    if fused is None:
        return Lean(document, kept, {})
    outputs = [{"value": name} for name in fused.outputs]
    changed = {**document, "nodes": fused.nodes, "outputs": outputs}
    return Lean(changed, fused.constants, fused.functions, wide=widened is not None)


def _widened(written: Written, planned: Plan, weights: Weights) -> Written | None:
    changed = widen(written.document["nodes"], written.constants)
    if changed is None:
        return None
    nodes, constants = changed
    resolve = packing.stand_ins(planned, weights, wide=True).resolve
    found = replace(written, document={**written.document, "nodes": nodes}, constants=constants, resolve=resolve)
    return found if trial.alike(written, found, tolerance=NARROW) else None
