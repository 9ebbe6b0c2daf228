"""Which stored weights a program that answers at once multiplies by in packed form: large ones, where that is quicker,
or in a lower precision (`spec.precision`), which is quicker where the processor has instructions for it.

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
from headway_runtime.precision import FIELD, cannot
from headway_runtime.program import packing
from headway_runtime.program.errors import ProgramError
from headway_runtime.program.weights import Weights

LEAST = 2**16
"""Numbers of a weight: to call a kernel takes longer than torch's own dispatch, which smaller ones do not earn back."""

NARROWEST = 64  # outputs, and inputs: packed columns come in strips

_TRIED = 512  # outputs and inputs of the weight that is tried
_ROWS = (4, 64)
_TIMES = 7


Packed = tuple[packing.Plan, packing.Multiplications]


def pack_where_quicker(document: Mapping[str, Any], weights: Weights) -> Packed | None:
    """What of the program is packed, and gone from `weights`; None when nothing is. On the processor only."""
    planned = _planned(document)
    if not planned.weights or not quicker():
        return None
    return _packed(planned, weights, Precision.EXPORTED)


def pack_in(document: Mapping[str, Any], weights: Weights, precision: Precision) -> Packed:
    """The same in a lower precision, quicker or not. Raises ProgramError `PrecisionRefused`: there is nothing to pack,
    or numbers that 8 bits cannot keep.
    """
    planned = _planned(document)
    if not planned.weights:
        raise cannot_keep(
            precision,
            "this program has no weight that is kept so: of two axes, float32, never written to, with at least 64 "
            f"rows and columns and {LEAST:,} numbers, and read by aten.linear in the main graph",
        )
    names = {row["value"]: row["name"] for row in document["weights"]}
    for value in planned.weights:
        if precision is Precision.INT8 and not bool(weights.tensors[value].isfinite().all()):
            raise cannot_keep(
                precision,
                f"weight {names[value]} holds numbers that are not finite, which 8 bits cannot keep",
                otherwise="BFloat16",
            )
    if not quicker(precision):
        log(
            "lower_precision_is_slower",
            level="warning",
            precision=precision.value,
            kernels=library.describe(),
            consequence="it saves memory, and this processor multiplies faster in float32",
        )
    return _packed(planned, weights, precision)


def cannot_keep(precision: Precision, why: str, *, otherwise: str = "Exported") -> ProgramError:
    """`PrecisionRefused`."""
    message = cannot(precision, f"{why}; write precision: {otherwise}")
    return ProgramError("Accepted", "PrecisionRefused", message, field=FIELD)


def _planned(document: Mapping[str, Any]) -> packing.Plan:
    return packing.plan({**document, "weights": [row for row in document["weights"] if _large(row)]})


def _packed(planned: packing.Plan, weights: Weights, precision: Precision) -> Packed:
    found = packing.pack(planned, weights, precision)
    kernels = library.describe()
    log("weights_packed", weights=len(planned.weights), precision=precision.value, bytes=found.bytes, kernels=kernels)
    return planned, found


@cache
def quicker(precision: Precision = Precision.EXPORTED) -> bool:
    """Whether this processor multiplies by packed weights in less time than by float32 otherwise, by trying it: with
    some processors torch comes with kernels that are as quick, and some have no instructions for a lower precision.
    """
    if library.native() is None:
        return False
    with torch.no_grad():
        weight, bias = torch.randn(_TRIED, _TRIED), torch.randn(_TRIED)
        packed = linear.pack(weight, precision)
        inputs = [torch.randn(rows, _TRIED) for rows in _ROWS]
        theirs = [[_seconds(torch.nn.functional.linear, x, weight, bias) for x in inputs] for _ in range(_TIMES)]
        ours = [[_seconds(packed, x, bias) for x in inputs] for _ in range(_TIMES)]
    seconds, of_torch = _least(ours), _least(theirs)
    found = seconds < of_torch
    log("packed_weights_tried", precision=precision.value, seconds=seconds, seconds_of_torch=of_torch, quicker=found)
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
