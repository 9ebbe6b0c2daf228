"""Do rows of a batch leave each other alone? Tried before the pod is ready, because a batch holds rows of several
clients.

My row is run among copies of itself, and again among quite different companions, in batches of the same size: the same
kernels then compute it, and its answer must stay the same. And it is run alone: how many rows there are must not matter
beyond rounding. Most is tried in the smallest batch; in the largest one, whether a row depends on one that is far away.
A program that fails (it subtracts the mean over the batch, sorts it, turns it round, or divides by its size) runs one
request at a time. It is a trial by samples, not a proof.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf, nan, prod

import torch

from headway_runtime.batching.layout import Layout
from headway_runtime.buckets import Buckets, Sizes
from headway_runtime.logs import log
from headway_runtime.program import Program, TensorSpec
from headway_runtime.program.datatypes import BY_PROTOCOL
from headway_runtime.proof.noise import apart
from headway_runtime.proof.runs import Answers, Row, Runs, factors, strange
from headway_runtime.proof.samples import Material
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
ROWS = 2
"""Real rows that are tried."""


def independent_rows(
    program: Program, layout: Layout, buckets: Buckets, material: Material, *, rounding: float = 0.0
) -> Layout:
    """The layout itself; or, when a row's answer depends on its companions, one that joins no requests, saying why.
    ``rounding``: of the largest value of an output, what the precision of weights may do to it.
    """
    sizes = _smallest(layout, buckets)
    if sizes is None:
        return layout
    for trial in TRIALS:
        odd = _dependent(program, layout, sizes, trial)
        if odd is not None:
            return _apart(layout, program.outputs[odd].name, "the other rows of its batch")
    for source in material.sources():
        odd, what = _dependent_of_real_rows(Runs(program, layout, inf), sizes, source, rounding)
        if odd is not None:
            return _apart(layout, program.outputs[odd].name, what)
    for source in material.sources():
        odd = _dependent_on_the_distant(Runs(program, layout, inf), _smallest(layout, buckets, largest=True), source)
        if odd is not None:
            return _apart(layout, program.outputs[odd].name, "the other rows of its batch")
    return layout


def _apart(layout: Layout, output: str, what: str) -> Layout:
    log("rows_depend_on_each_other", level="warning", output=output, on=what)
    reason = f"a row of output {output} depends on {what}"
    return Layout(None, reason, (None,) * len(layout.inputs), (None,) * len(layout.outputs))


def _dependent_of_real_rows(runs: Runs, sizes: Sizes, material: Material, rounding: float) -> tuple[int | None, str]:
    """Position of an output whose real rows change with their companions, or with their number, and with which."""
    program, layout = runs.program, runs.layout
    count = sizes[runs.batch]
    rows = [Row(material.row({**sizes, runs.batch: 1}, number), sizes) for number in range(ROWS + 1)]
    changed: list[int | None] = []
    for at, row in enumerate(rows[:ROWS]):
        try:
            expected = runs.alone(row, count)
            if program.check({**sizes, runs.batch: layout.fewest}) is None:
                changed.append(_other(runs.alone(row), expected, rounding))
            for factor in factors(program):
                others = [strange(program, layout, rows[at + 1], factor)] * (count - 1)
                for place, joined in ((0, [row, *others]), (count - 1, [*others, row])):
                    odd = _unlike(expected, runs.together(joined, sizes, None)[place])
                    if odd is not None:
                        return odd, "the other rows of its batch"
        except Exception as error:  # an id that it does not know: the engine repeats such a run row by row
            log("companions_refused", error_type=type(error).__name__)
    if changed and None not in changed:  # one row alone may flip by rounding
        return changed[0], "how many rows there are"
    return None, ""


def _dependent_on_the_distant(runs: Runs, sizes: Sizes | None, material: Material) -> int | None:
    """Position of an output of which the first row, the last or the one in the middle changes when all others do."""
    if sizes is None or sizes[runs.batch] <= ROWS:  # those have been tried
        return None
    program, count = runs.program, sizes[runs.batch]
    kept = (0, count // 2, count - 1)
    rows = [Row(material.row({**sizes, runs.batch: 1}, number), sizes) for number in range(count)]
    try:
        expected = runs.together(rows, sizes, None)
        for factor in factors(program):
            turned = [strange(program, runs.layout, row, factor) for row in (*rows[1:], rows[0])]
            joined = [rows[at] if at in kept else turned[at] for at in range(count)]
            found = runs.together(joined, sizes, None)
            for at in kept:
                if (odd := _unlike(expected[at], found[at])) is not None:
                    return odd
    except Exception as error:
        log("companions_refused", error_type=type(error).__name__)
    return None


def _unlike(expected: Answers, found: Answers) -> int | None:
    for position, (one, other) in enumerate(zip(expected, found, strict=True)):
        if one.shape != other.shape or not torch.allclose(
            one.double(), other.double(), rtol=1e-4, atol=1e-6, equal_nan=True
        ):
            return position
    return None


def _other(expected: Answers, found: Answers, rounding: float) -> int | None:
    for position, (one, other) in enumerate(zip(expected, found, strict=True)):
        if apart(one, other, rounding):
            return position
    return None


def _dependent(program: Program, layout: Layout, sizes: Sizes, trial: Trial) -> int | None:
    """Position of an output whose row changes with its companions."""
    mine = [trial.mine(spec, shape) for spec, shape in zip(program.inputs, program.input_shapes(sizes), strict=True)]
    expected = _answers(program, mine)
    floats = trial.floats if any(tensor.is_floating_point() for tensor in mine) else trial.floats[:1]
    for value in floats if expected is not None else ():
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


def _smallest(layout: Layout, buckets: Buckets, *, largest: bool = False) -> Sizes | None:
    """The cheapest warmed combination in which a row has companions (``largest``: as many as ever), and in which the
    other sizes are above 1 and not the batch's, if there is one: a program that mistakes one axis for another is right
    at 1.
    """
    batch = layout.batch
    if batch is None:
        return None
    fewest = buckets.largest(batch) if largest else layout.fewest
    fitting = [sizes for sizes in buckets.combinations if sizes[batch] >= max(2, fewest)]

    def key(sizes: Sizes) -> tuple[int, int, int]:
        others = [size for name, size in sizes.items() if name != batch]
        return sum(size < 2 for size in others), sum(size == sizes[batch] for size in others), prod(sizes.values())

    return min(fitting, key=key, default=None)


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
