"""Which rows are tried along a dimension, of which sizes, and up to which sizes they are filled.

Most are of the shortest size, against the largest bucket: where padding shows most. (An unmasked mean of 127 positions
moves by 7e-4 when a 128th is added, and one of 5 by 0.13 when 123 are.)
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch

from headway_runtime.buckets import Buckets, Sizes
from headway_runtime.errors import first_line
from headway_runtime.logs import log
from headway_runtime.program import Program
from headway_runtime.proof.runs import Answers, OutOfTimeError, Row, Runs
from headway_runtime.proof.samples import Material

LEAST = 8
"""Rows of the shortest size."""
ATTEMPTS = 24
MOST_ROWS = 8
"""Of one run."""


@dataclass(frozen=True, slots=True)
class Plan:
    """``others``: sizes of the other dimensions, the batch left out. ``real``: sizes that rows have, shortest first;
    ``full``: what they are filled up to, ``middle`` a size between, if there is one. ``rows``: most in one run.
    """

    dimension: str
    others: Sizes
    real: tuple[int, ...]
    full: int
    middle: int | None
    rows: int

    def sizes(self, size: int) -> dict[str, int]:
        """All sizes but the batch, with this one along the dimension."""
        return {**self.others, self.dimension: size}


@dataclass(frozen=True, slots=True)
class Case:
    """A row and its answers in a run of its own."""

    row: Row
    alone: Answers


class CannotTryError(Exception):
    """Why nothing can be said of padding."""


def plan(program: Program, buckets: Buckets, batch: str, dimension: str) -> Plan | None:
    """None when there is only one size, so that nothing is ever padded. Raises CannotTryError."""
    full = buckets.largest(dimension)
    others = _others(buckets, batch, dimension, full)

    def allowed(size: int, rows: int) -> bool:
        return program.check({**others, dimension: size, batch: rows}) is None

    fewest = max(1, program.dimensions[batch].min)
    least = max(1, program.dimensions[dimension].min)
    short = list(_some(range(least, full), lambda n: allowed(n, fewest), 4))
    if not short:
        return None
    longer = [n for part in (4, 2) for n in _some(range(full // part, least, -1), lambda n: allowed(n, fewest), 1)]
    almost = list(_some(range(full - 1, least, -1), lambda n: allowed(n, fewest), 1))
    most, least_rows = max(fewest, min(MOST_ROWS, buckets.largest(batch))), max(2, fewest)
    rows = next((n for n in range(most, least_rows - 1, -1) if allowed(full, n)), None)
    if rows is None:
        raise CannotTryError(f"no run of two rows of {dimension} {full} is one that the program was exported for")
    middle = next(_some(range(full // 2 + 1, full), lambda n: allowed(n, rows), 1), None)
    return Plan(dimension, others, tuple(dict.fromkeys([*short, *sorted(longer), *almost])), full, middle, rows)


def cases(runs: Runs, material: Material, plan_: Plan) -> list[Case]:
    """Rows that the program answers alone: `LEAST` of the shortest size, and one of each other size.

    Raises CannotTryError when it answers too few of them with finite numbers.
    """
    found = _same_size(runs, material, plan_.sizes(plan_.real[0]), LEAST)
    varied = vary([case.alone for case in found])
    for number, size in enumerate(plan_.real[1:]):
        try:
            if varied:
                found += _case(runs, material, plan_.sizes(size), LEAST + number)
            else:  # such as a softmax over one position: always 1
                more = _same_size(runs, material, plan_.sizes(size), LEAST)
                varied = vary([case.alone for case in more])
                found += more
        except OutOfTimeError:
            raise
        except Exception as error:  # it does not take all the sizes that it declares
            log("longer_row_refused", dimension=plan_.dimension, size=size, error_type=type(error).__name__)
    return found


def _same_size(runs: Runs, material: Material, sizes: Sizes, count: int) -> list[Case]:
    """So many cases of one size. Raises CannotTryError."""
    found: list[Case] = []
    why = "its answers to them are not finite"
    for number in range(ATTEMPTS):
        if len(found) == count:
            return found
        try:
            found += _case(runs, material, sizes, number)
        except OutOfTimeError:
            raise
        except Exception as error:
            why = f"it fails on them: {type(error).__name__}: {first_line(error, 120)}"
    raise CannotTryError(
        f"the program answers {len(found)} of {ATTEMPTS} rows cut from {material.origin}: {why}; record inputs that it "
        "answers: headway export --sample"
    )


def vary(answers: Sequence[Answers]) -> bool:
    """Whether the answers to rows of one size differ at all: nothing can be learnt from constants."""
    return any(not torch.equal(one, other) for each in answers[1:] for one, other in zip(answers[0], each, strict=True))


def _case(runs: Runs, material: Material, sizes: Sizes, number: int) -> list[Case]:
    """None when an output holds no finite number."""
    row = Row(material.row({**sizes, runs.batch: 1}, number), sizes)
    alone = runs.alone(row)
    return [Case(row, alone)] if all(map(_finite, alone)) else []


def _finite(tensor: torch.Tensor) -> bool:
    return not tensor.dtype.is_floating_point or tensor.numel() == 0 or bool(tensor.isfinite().any())


def _others(buckets: Buckets, batch: str, dimension: str, full: int) -> dict[str, int]:
    """The cheapest warmed sizes of the other dimensions beside the full one, above 1 where there are such."""
    beside = [
        {name: size for name, size in sizes.items() if name not in (batch, dimension)}
        for sizes in buckets.combinations
        if sizes[dimension] == full
    ]
    if not beside:
        raise CannotTryError(f"no combination of buckets has {dimension} {full}")
    return min(beside, key=lambda sizes: (sum(size < 2 for size in sizes.values()), sorted(sizes.values())))


def _some(sizes: Sequence[int], allowed: Callable[[int], bool], count: int, tries: int = 64) -> Iterator[int]:
    """The first few of these sizes that the program allows."""
    for size in sizes[:tries]:
        if count and allowed(size):
            count -= 1
            yield size
