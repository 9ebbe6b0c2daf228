"""Which stored weights a program that answers at once multiplies by in packed form: large ones, where that is quicker.

A packed weight takes the place of the one that is mapped from the file. It is multiplied by in 0.5 to 0.9 of the time
that torch takes (AMD EPYC 9004: most with few rows), and a row's answer is the same bits whatever rows are beside it.
It costs memory of this process, where pages of a mapping are shared by all pods of a node that map the same file.
"""

import math
import time
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import torch
from headway_api.types import Precision

from headway_runtime.kernels import library, linear
from headway_runtime.logs import log
from headway_runtime.program import packing
from headway_runtime.program.weights import Weights

LEAST = 2**16
"""Numbers of a weight: to call a kernel takes longer than torch's own dispatch, which smaller ones do not earn back."""

NARROWEST = 64  # outputs, and inputs: packed columns come in strips

_TRIED = 512  # outputs and inputs of the weight that is tried
_ROWS = (4, 64)
_TIMES = 7


def pack_where_quicker(
    document: Mapping[str, Any], weights: Weights
) -> tuple[packing.Plan, packing.Multiplications] | None:
    """What of the program is packed, and gone from `weights`; None when nothing is. On the processor only."""
    large = [row for row in document["weights"] if _large(row)]
    planned = packing.plan({**document, "weights": large})
    if not planned.weights or not quicker():
        return None
    found = packing.pack(planned, weights, Precision.EXPORTED)
    log("weights_packed", weights=len(planned.weights), bytes=found.bytes, kernels=library.describe())
    return planned, found


@cache
def quicker() -> bool:
    """Whether this processor multiplies by packed weights in less time, by trying it: with some processors torch comes
    with kernels that are as quick.
    """
    if library.native() is None:
        return False
    with torch.no_grad():
        weight, bias = torch.randn(_TRIED, _TRIED), torch.randn(_TRIED)
        packed = linear.pack(weight, Precision.EXPORTED)
        inputs = [torch.randn(rows, _TRIED) for rows in _ROWS]
        theirs = [[_seconds(torch.nn.functional.linear, x, weight, bias) for x in inputs] for _ in range(_TIMES)]
        ours = [[_seconds(packed, x, bias) for x in inputs] for _ in range(_TIMES)]
    found = _least(ours) < _least(theirs)
    log("packed_weights_tried", seconds=_least(ours), seconds_of_torch=_least(theirs), quicker=found)
    return found


def _large(row: Mapping[str, Any]) -> bool:
    if row["dtype"] != "float32" or row["written"] or len(row["shape"]) != 2:
        return False
    outputs, inputs = row["shape"]
    return bool(min(outputs, inputs) >= NARROWEST and outputs * inputs >= LEAST)


def _seconds(function: Any, *arguments: torch.Tensor) -> float:
    began = time.perf_counter()
    function(*arguments)
    return time.perf_counter() - began


def _least(rounds: Sequence[Sequence[float]]) -> float:
    """The best time of each number of rows, together: what else the machine does only adds."""
    return math.fsum(map(min, zip(*rounds, strict=True)))
