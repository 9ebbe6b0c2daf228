"""The trial of one dimension: rows alone, and in the runs that the engine would make of them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from headway_runtime.batching.layout import Layout
from headway_runtime.buckets import Buckets
from headway_runtime.errors import first_line
from headway_runtime.program import Program
from headway_runtime.program.datatypes import BY_PROTOCOL
from headway_runtime.proof.cases import CannotTryError, Case, Plan, cases, vary
from headway_runtime.proof.compare import Difference, compare, exceeds, hear
from headway_runtime.proof.fills import Fill, mentions, values
from headway_runtime.proof.noise import Noise
from headway_runtime.proof.runs import Answers, Filler, OutOfTimeError, Row, Runs, factors, strange
from headway_runtime.proof.samples import Material
from headway_runtime.warmup import describe

FEW = 3
"""Rows of the trials that repeat another with other neighbours or fillings."""


class ChangedError(Exception):
    """An answer is not what it was: the trial has failed."""


@dataclass(frozen=True, slots=True)
class Request:
    """What is to be tried. ``behind``: the prepared document, to look behind outputs. ``exact``: where weights are kept
    in a lower precision, the same program with weights as they were exported, which is tried first: rounding would hide
    what padding does. ``rounding``: of the largest value of an output, what that precision may do to it.
    """

    program: Program
    layout: Layout
    buckets: Buckets
    material: Material
    behind: Mapping[str, Any] | None = None
    exact: Program | None = None
    rounding: float = 0.0

    @property
    def stages(self) -> "tuple[Request, ...]":
        """What is tried one after the other; each must pass."""
        if self.exact is None:
            return (self,)
        return replace(self, program=self.exact, exact=None, rounding=0.0), replace(self, exact=None)


class Trial:
    """The trial of one dimension."""

    def __init__(self, asked: Request, runs: Runs, fills: Sequence[Fill], plan_: Plan) -> None:
        self.asked = asked
        self.runs = runs
        self.fills = fills
        self.plan = plan_
        self.noise = Noise(least=asked.rounding)
        self.worst = Difference("no output", 0.0, 0.0)

    def run(self, padded: Sequence[str]) -> str:
        """What was tried, in words. ``padded``: dimensions that passed before, with which this one is combined.

        Raises ChangedError, CannotTryError or OutOfTimeError.
        """
        plan_, material = self.plan, self.asked.material
        tried = cases(self.runs, material, plan_)
        self._listen(tried)
        companion = self._companion(0)
        self._hold(tried, plan_.full, companion, self._recorded, "")
        if not any(vary(answers) for answers in _by_size(tried)):
            raise CannotTryError(
                f"the answers to all rows cut from {material.origin} are the same, which shows nothing; record inputs "
                "with other answers: headway export --sample"
            )
        for other in self._strange():
            self._hold(_few(tried), plan_.full, other, self._recorded, ", beside NaN or very large numbers")
        for number in (1, 2) if self._free() else ():
            self._hold(_few(tried), plan_.full, companion, self._content(number), " with other contents")
        if plan_.middle is not None:
            shorter = [case for case in tried if case.row.sizes[plan_.dimension] < plan_.middle]
            self._hold(_few(shorter), plan_.middle, self._at(plan_.middle), self._recorded, "")
        if padded:
            self._together(padded)
        sizes = f"{plan_.real[0]} to {plan_.real[-1]}"
        return (
            f"{len(tried)} rows of {material.origin}, {plan_.dimension} {sizes}, were filled up to {plan_.full}: "
            f"the largest difference is {self.worst.largest:.2g} ({self.worst.allowed:.2g} would be rounding)"
        )

    def _listen(self, tried: Sequence[Case]) -> None:
        """Measure the noise: the same rows in runs of other numbers of rows."""
        short = [case for case in tried if case.row.sizes == tried[0].row.sizes]
        for first in range(0, len(short), self.plan.rows):
            part = short[first : first + self.plan.rows]
            if self._allowed(part[0].row.sizes, len(part)):
                found = self.runs.together([case.row for case in part], part[0].row.sizes, None)
                for case, answers in zip(part, found, strict=True):
                    hear(self.runs, self.noise, case.alone, answers)
        for case in tried:
            more = case.row.sizes != tried[0].row.sizes and self._allowed(case.row.sizes, 2)
            hear(self.runs, self.noise, case.alone, self.runs.alone(case.row, 2) if more else case.alone)
        for at, spec in enumerate(self.asked.program.outputs):
            if self.noise.too_loud(at, BY_PROTOCOL[spec.datatype]):
                raise CannotTryError(
                    f"output {spec.name} differs by {self.noise.noise[at]:.2g} when nothing but the number of rows "
                    "changes: too much to tell what padding does"
                )

    def _companion(self, number: int) -> Row:
        return self._at(self.plan.full, number)

    def _at(self, size: int, number: int = 0) -> Row:
        sizes = self.plan.sizes(size)
        return Row(self.asked.material.row({**sizes, self.runs.batch: 1}, number), sizes)

    def _strange(self) -> Iterator[Row]:
        """Companions that hold what nobody should: NaN, and a thousand times what is usual; other whole numbers."""
        for factor in factors(self.asked.program):
            yield strange(self.asked.program, self.asked.layout, self._companion(5), factor)

    def _hold(self, tried: Sequence[Case], size: int, companion: Row, filler: Filler, how: str) -> None:
        """Every case in a run with a companion, first and last in turn, filled up to `size`. Raises ChangedError."""
        rows = max(1, self.plan.rows - 1)
        sizes = self.plan.sizes(size)
        for start in range(0, len(tried), rows):
            part = list(tried[start : start + rows])
            first = (start // rows) % 2 == 0
            joined = [companion, *(c.row for c in part)] if first else [*(c.row for c in part), companion]
            self._compare(part, self._enough(joined, companion, sizes), 1 if first else 0, sizes, filler, how)

    def _enough(self, joined: Sequence[Row], companion: Row, sizes: Mapping[str, int]) -> list[Row]:
        """The rows of a run, with as many more companions as the program's guards ask for. Raises CannotTryError."""
        least = max(len(joined), self.asked.layout.fewest)
        for count in range(least, max(least, self.plan.rows) + 1):
            if self._allowed(sizes, count):
                return [*joined, *[companion] * (count - len(joined))]
        raise CannotTryError(f"the program was not exported for a run of {least} rows at {describe(sizes)}")

    def _allowed(self, sizes: Mapping[str, int], rows: int) -> bool:
        """Whether the program's guards hold for a run of so many rows."""
        count = max(rows, self.asked.layout.fewest)
        return self.asked.program.check({**sizes, self.runs.batch: count}) is None

    def _compare(
        self,
        part: Sequence[Case],
        joined: Sequence[Row],
        offset: int,
        sizes: Mapping[str, int],
        filler: Filler,
        how: str,
    ) -> None:
        try:
            found = self.runs.together(joined, sizes, filler)[offset:]
        except OutOfTimeError:
            raise
        except Exception as error:
            first = first_line(error, 100)
            text = f"the program fails when {self._what(part[0].row, sizes, how)}: {type(error).__name__}: {first}"
            raise ChangedError(text) from error
        for case, answers in zip(part, found, strict=False):
            for each in compare(self.runs, case.alone, answers, self.noise):
                if exceeds(each):
                    raise ChangedError(f"{each.words} when {self._what(case.row, sizes, how)}")
                if each.largest >= self.worst.largest:
                    self.worst = each

    def _together(self, padded: Sequence[str]) -> None:
        """Along all dimensions that passed so far, at once. Raises ChangedError."""
        program, batch = self.asked.program, self.runs.batch
        along = [*padded, self.plan.dimension]
        least = {name: max(1, program.dimensions[name].min) for name in along}
        full = next(
            (
                {name: size for name, size in sizes.items() if name != batch}
                for sizes in self.asked.buckets.combinations
                if sizes[batch] > 1 and all(sizes[name] > least[name] for name in along)
            ),
            None,
        )
        if full is None:
            raise CannotTryError(f"no bucket is large in {' and in '.join(along)}, which would be padded together")
        for number in range(FEW):
            short = {**full, **least, self.plan.dimension: self.plan.real[min(number, len(self.plan.real) - 1)]}
            if not self._allowed(short, 1):
                continue
            row, companion = (Row(self.asked.material.row({**each, batch: 1}, number), each) for each in (short, full))
            joined = self._enough([row, companion], companion, full)
            self._compare([Case(row, self.runs.alone(row))], joined, 0, full, self._recorded, "")

    def _recorded(self, at: int, shape: tuple[int, ...]) -> torch.Tensor:
        spec = self.asked.program.inputs[at]
        return torch.full(shape, self.fills[at].value, dtype=BY_PROTOCOL[spec.datatype])

    def _content(self, number: int) -> Filler:
        """Other contents for the inputs of which no pad value is known: of the samples, and made up."""
        source = self.asked.material if number == 1 else replace(self.asked.material, samples=())

        def filler(at: int, shape: tuple[int, ...]) -> torch.Tensor:
            if self.fills[at].known:
                return self._recorded(at, shape)
            sizes = self.plan.sizes(self.plan.full)
            made = source.row({**sizes, self.runs.batch: 1}, 100 + number)[at].clone()
            return made * -10 if number == 2 and made.is_floating_point() else made

        return filler

    def _free(self) -> bool:
        """Whether there is an input along the dimension for which any value must do."""
        symbol = self.asked.program.dimensions[self.plan.dimension].symbol
        inputs = zip(self.asked.program.inputs, self.fills, strict=True)
        return any(mentions(spec, symbol) and not fill.known for spec, fill in inputs)

    def _what(self, row: Row, sizes: Mapping[str, int], how: str) -> str:
        real = row.sizes
        grown = [f"{name} {real[name]} is filled up to {size}" for name, size in sizes.items() if real[name] != size]
        with_ = values(self.asked.program, self.fills, self.plan.dimension)
        return f"{' and '.join(grown) or 'nothing is filled up'}{how} ({with_})"


def _by_size(tried: Sequence[Case]) -> list[list[Answers]]:
    """The answers to rows of equal sizes."""
    found: dict[tuple[int, ...], list[Answers]] = {}
    for case in tried:
        found.setdefault(tuple(case.row.sizes.values()), []).append(case.alone)
    return list(found.values())


def _few(tried: Sequence[Case]) -> list[Case]:
    return [*tried[: FEW - 1], *tried[-1:]] if len(tried) > FEW else list(tried)
