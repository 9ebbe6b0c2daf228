"""Do rows of a batch leave each other alone? Tried before the pod is ready, because a batch holds rows of several
clients.

My row is run among copies of itself, and again among quite different companions, in batches of the same size: the same
kernels then compute it, and its answer must stay the same. A program that fails (it subtracts the mean over the batch,
sorts it, or turns it round) runs one request at a time. It is a trial by samples, not a proof.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import nan, prod

import torch

from headway_runtime.batching.layout import Layout
from headway_runtime.buckets import Buckets, Sizes
from headway_runtime.logs import log
from headway_runtime.program import Program, TensorSpec
from headway_runtime.program.datatypes import BY_PROTOCOL
from headway_runtime.warmup import synthetic


@dataclass(frozen=True, slots=True)
class Trial:
    """What stands in my row and in those of its companions: ``mine`` makes an input full of my row; floating-point
    companions hold each of ``floats`` in turn, whole numbers and booleans ``integer``.
    """

    mine: Callable[[TensorSpec, tuple[int, ...]], torch.Tensor]
    floats: tuple[float, ...]
    integer: int


def _between(spec: TensorSpec, shape: tuple[int, ...]) -> torch.Tensor:
    """Halves, so that companions can be more and less; whole numbers 1, as far as the program takes it."""
    dtype = BY_PROTOCOL[spec.datatype]
    return torch.full(shape, 0.5 if dtype.is_floating_point else 1, dtype=dtype)


TRIALS = (Trial(synthetic, (nan, -1000.0), 1), Trial(_between, (1000.0,), 0))


def independent_rows(program: Program, layout: Layout, buckets: Buckets) -> Layout:
    """The layout itself; or, when a row's answer depends on its companions, one that joins no requests, saying why."""
    sizes = _smallest(layout, buckets)
    for trial in TRIALS if sizes is not None else ():
        odd = _dependent(program, layout, sizes or {}, trial)
        if odd is not None:
            reason = f"a row of output {program.outputs[odd].name} depends on the other rows of its batch"
            log("rows_depend_on_each_other", level="warning", output=program.outputs[odd].name)
            return Layout(None, reason, (None,) * len(layout.inputs), (None,) * len(layout.outputs))
    return layout


def _dependent(program: Program, layout: Layout, sizes: Sizes, trial: Trial) -> int | None:
    """Position of an output whose row changes with its companions."""
    mine = [trial.mine(spec, shape) for spec, shape in zip(program.inputs, program.input_shapes(sizes), strict=True)]
    expected = _answers(program, mine)
    for value in trial.floats if expected is not None else ():
        for first in (True, False):
            inputs = [
                _among(tensor, axis, (value, trial.integer), first)
                for tensor, axis in zip(mine, layout.inputs, strict=True)
            ]
            found = _answers(program, inputs)
            at = 0 if first else sizes[layout.batch or ""] - 1
            odd = None if found is None else _changed(expected or (), found, layout, at)
            if odd is not None:
                return odd
    return None


def _answers(program: Program, inputs: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...] | None:
    """None where the program fails, on an id that it does not know: the engine repeats such a run row by row."""
    try:
        return program.run(inputs)
    except Exception as error:
        log("companions_refused", error_type=type(error).__name__)
        return None


def _smallest(layout: Layout, buckets: Buckets) -> Sizes | None:
    """The cheapest warmed combination in which a row has companions."""
    batch = layout.batch
    if batch is None:
        return None
    fitting = [sizes for sizes in buckets.combinations if sizes[batch] >= max(2, layout.fewest)]
    return min(fitting, key=lambda sizes: prod(sizes.values()), default=None)


def _among(mine: torch.Tensor, axis: int | None, companion: tuple[float, int], first: bool) -> torch.Tensor:
    """The input with all rows but the first, or but the last, replaced. ``companion``: (floating-point, whole)."""
    if axis is None:
        return mine
    others = torch.full_like(
        mine.narrow(axis, 1 if first else 0, mine.shape[axis] - 1), companion[0 if mine.is_floating_point() else 1]
    )
    row = mine.narrow(axis, 0, 1)
    return torch.cat([row, others] if first else [others, row], dim=axis)


def _changed(expected: Sequence[torch.Tensor], found: Sequence[torch.Tensor], layout: Layout, at: int) -> int | None:
    """Position of an output whose row `at` is not what it was, or has another shape."""
    for position, (before, after, axis) in enumerate(zip(expected, found, layout.outputs, strict=True)):
        if axis is None:
            continue
        if before.shape != after.shape:  # as wide as its widest row, say
            return position
        one, other = before.select(axis, at), after.select(axis, at)
        if not torch.allclose(one.double(), other.double(), rtol=1e-4, atol=1e-6, equal_nan=True):
            return position
    return None
