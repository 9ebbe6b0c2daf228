"""Do rows of a batch leave each other alone? Tried before the pod is ready, because a batch holds rows of several
clients.

My row is run among copies of itself, and again among quite different companions, in batches of the same size: the same
kernels then compute it, and its answer must stay the same. A program that fails (it subtracts the mean over the batch,
sorts it, or turns it round) runs one request at a time. It is a trial by samples, not a proof.
"""

from collections.abc import Sequence
from math import nan, prod

import torch

from headway_runtime.batching.layout import Layout
from headway_runtime.buckets import Buckets, Sizes
from headway_runtime.logs import log
from headway_runtime.program import Program
from headway_runtime.warmup import synthetic

COMPANIONS = (nan, -1000.0)
"""What stands in their floating-point inputs, where my row has ones; whole numbers are 1 where mine are 0."""


def independent_rows(program: Program, layout: Layout, buckets: Buckets) -> Layout:
    """The layout itself; or, when a row's answer depends on its companions, one that joins no requests, saying why."""
    sizes = _smallest(layout, buckets)
    if sizes is None:
        return layout
    mine = [synthetic(spec, shape) for spec, shape in zip(program.inputs, program.input_shapes(sizes), strict=True)]
    expected = program.run(mine)
    for value in COMPANIONS:
        for first in (True, False):
            inputs = [_among(tensor, axis, value, first) for tensor, axis in zip(mine, layout.inputs, strict=True)]
            at = 0 if first else sizes[layout.batch or ""] - 1
            odd = _changed(program, inputs, expected, layout, at)
            if odd is not None:
                reason = f"a row of output {program.outputs[odd].name} depends on the other rows of its batch"
                log("rows_depend_on_each_other", level="warning", output=program.outputs[odd].name)
                return Layout(None, reason, (None,) * len(layout.inputs), (None,) * len(layout.outputs))
    return layout


def _smallest(layout: Layout, buckets: Buckets) -> Sizes | None:
    """The cheapest warmed combination in which a row has companions."""
    batch = layout.batch
    if batch is None:
        return None
    fitting = [sizes for sizes in buckets.combinations if sizes[batch] >= max(2, layout.fewest)]
    return min(fitting, key=lambda sizes: prod(sizes.values()), default=None)


def _among(mine: torch.Tensor, axis: int | None, value: float, first: bool) -> torch.Tensor:
    """The input with all rows but the first, or but the last, replaced."""
    if axis is None:
        return mine
    companions = mine.narrow(axis, 1 if first else 0, mine.shape[axis] - 1)
    others = torch.full_like(companions, value) if mine.is_floating_point() else torch.ones_like(companions)
    row = mine.narrow(axis, 0, 1)
    return torch.cat([row, others] if first else [others, row], dim=axis)


def _changed(
    program: Program,
    inputs: Sequence[torch.Tensor],
    expected: Sequence[torch.Tensor],
    layout: Layout,
    at: int,
) -> int | None:
    """Position of an output whose row `at` is not what it was."""
    try:
        found = program.run(inputs)
    except Exception as error:  # an id that the program does not know: the engine repeats such a run row by row
        log("companions_refused", error_type=type(error).__name__)
        return None
    for position, (before, after, axis) in enumerate(zip(expected, found, layout.outputs, strict=True)):
        if axis is None or before.shape != after.shape:
            continue
        one, other = before.select(axis, at), after.select(axis, at)
        if not torch.allclose(one.double(), other.double(), rtol=1e-4, atol=1e-6, equal_nan=True):
            return position
    return None
