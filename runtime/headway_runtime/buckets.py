"""Which sizes of each dimension are warmed, costed, and the largest admitted.

A bucket gives every dimension of the program a size. Sizes the user set are checked against the program; the others
default to powers of two. Beyond the largest of a dimension a request is refused, or runs alone at its own size
(`spec.batching.oversize`). Pure: nothing runs here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from itertools import product
from math import prod

from headway_runtime.errors import FatalError
from headway_runtime.program import Dimension, Program

FIELD = "spec.batching.shapeBuckets"
LARGEST_DEFAULT_BATCH = 32
LARGEST_DEFAULT_SIZE = 512
MAX_COMBINATIONS = 64

Sizes = Mapping[str, int]
"""Axis sizes by dimension name."""


class Admission(Enum):
    """What becomes of a request, by its sizes."""

    ADMITTED = "within the buckets"
    OVERSIZE = "beyond the largest bucket, so it runs alone and unpadded"
    REFUSED = "beyond what is admitted"


@dataclass(frozen=True, slots=True)
class Buckets:
    """`sizes`: the ascending sizes of each dimension, by name. `combinations`: what is warmed, largest first.

    `ceilings`: the largest size of each dimension that runs alone beyond its largest bucket, None as far as the
    program's range goes; without it, nothing beyond the largest bucket is admitted.
    """

    sizes: Mapping[str, tuple[int, ...]]
    combinations: tuple[Sizes, ...]
    ceilings: Mapping[str, int | None] | None = None

    def largest(self, name: str) -> int:
        """The largest bucket of a dimension."""
        return self.sizes[name][-1]

    def without(self, name: str, size: int) -> "Buckets":
        """The same without one size of a dimension."""
        sizes = {**self.sizes, name: tuple(n for n in self.sizes[name] if n != size)}
        return replace(self, sizes=sizes, combinations=tuple(c for c in self.combinations if c[name] != size))

    def admission(self, sizes: Sizes) -> Admission:
        """What becomes of a request with these sizes (of some dimensions or of all), which the program allows."""
        beyond = [name for name, size in sizes.items() if size > self.largest(name)]
        if not beyond:
            return Admission.ADMITTED
        if self.ceilings is None or any(_exceeds(sizes[name], self.ceilings.get(name)) for name in beyond):
            return Admission.REFUSED
        return Admission.OVERSIZE

    def refusal(self, sizes: Sizes) -> str | None:
        """Why a request with these sizes is not admitted, with the largest size that is; None when it is."""
        for name, size in sizes.items():
            if size <= (largest := self.largest(name)):
                continue
            if self.ceilings is None:
                return f"{name} is {size}; at most {largest} is admitted, the largest of {FIELD}.{name}"
            if _exceeds(size, ceiling := self.ceilings.get(name)):
                return f"{name} is {size}; at most {ceiling} is admitted, for which this pod has the memory"
        return None

    def covering(self, sizes: Sizes) -> dict[str, int]:
        """The smallest bucket that holds these sizes; above the ceiling, the ceiling."""
        return {
            name: next((size for size in values if size >= sizes[name]), values[-1])
            for name, values in self.sizes.items()
        }


def _exceeds(size: int, ceiling: int | None) -> bool:
    return ceiling is not None and size > ceiling


def resolve_buckets(program: Program, asked: Mapping[str, Sequence[int]] | None) -> Buckets:
    """Check what the user asked for (`spec.batching.shapeBuckets`) and add defaults for the rest.

    Raises FatalError `UnknownDimension`, `NotBatchable` or `BucketOutOfRange`, with the field at fault.
    """
    chosen: dict[str, tuple[int, ...]] = {}
    for name, values in (asked or {}).items():
        if name not in program.dimensions:
            raise _unknown(program, name)
        chosen[name] = _checked(name, values, program.dimensions[name])
    sizes = {name: chosen.get(name) or _default(d, name == program.batch) for name, d in program.dimensions.items()}
    _thin(sizes, fixed=chosen)
    return Buckets(sizes, _combinations(program, sizes, all_asked=len(chosen) == len(sizes)))


def _unknown(program: Program, name: str) -> FatalError:
    field = f"{FIELD}.{name}"
    if name == "batch" and program.batch is None:
        message = f"{field}: this program cannot be batched: {program.not_batchable}; remove {field}"
        return FatalError("NotBatchable", message, condition="Accepted", field=field)
    known = ", ".join(program.dimensions)
    have = f"its dimensions are {known}" if known else "it has none: every size is fixed"
    message = f"{field}: the program has no dimension named {name!r}; {have}"
    return FatalError("UnknownDimension", message, condition="Accepted", field=field)


def _checked(name: str, values: Sequence[int], dimension: Dimension) -> tuple[int, ...]:
    for value in values:
        if value < dimension.min or (dimension.max is not None and value > dimension.max):
            field = f"{FIELD}.{name}"
            allowed = f"{dimension.min} or more" if dimension.max is None else f"{dimension.min} to {dimension.max}"
            message = f"{field}: {value} is outside the program's range, {allowed}"
            raise FatalError("BucketOutOfRange", message, condition="Accepted", field=field)
    return tuple(sorted(set(values)))


def _default(dimension: Dimension, is_batch: bool) -> tuple[int, ...]:
    """Powers of two in range, and the ceiling itself, so that no size up to it is turned away."""
    cap = LARGEST_DEFAULT_BATCH if is_batch else LARGEST_DEFAULT_SIZE
    ceiling = max(1, dimension.min, cap if dimension.max is None else min(cap, dimension.max))
    powers = {2**exponent for exponent in range(ceiling.bit_length())}
    return tuple(sorted({size for size in powers if dimension.min <= size <= ceiling} | {ceiling}))


def _thin(sizes: dict[str, tuple[int, ...]], fixed: Mapping[str, tuple[int, ...]]) -> None:
    """Drop every other size of the longest default list until the combinations are few enough; the ceilings stay."""
    while (count := prod(len(values) for values in sizes.values())) > MAX_COMBINATIONS:
        longest = max((name for name in sizes if name not in fixed), key=lambda name: len(sizes[name]), default=None)
        if longest is None or len(sizes[longest]) == 1:
            message = f"{FIELD}: {count} combinations; at most {MAX_COMBINATIONS} are warmed, so list fewer sizes"
            raise FatalError("BucketOutOfRange", message, condition="Accepted", field=FIELD)
        sizes[longest] = sizes[longest][::-1][::2][::-1]


def _combinations(program: Program, sizes: Mapping[str, tuple[int, ...]], *, all_asked: bool) -> tuple[Sizes, ...]:
    """Every combination that the program's guards allow. When the user listed all sizes, each must be allowed."""
    allowed: list[Sizes] = []
    broken: str | None = None
    for values in product(*(values[::-1] for values in sizes.values())):
        combination = dict(zip(sizes, values, strict=True))
        why = program.check(combination)
        if why is None:
            allowed.append(combination)
        elif broken is None:
            broken = why
    if broken is not None and (all_asked or not allowed):
        advice = "" if all_asked else "; the default sizes do not fit, list some that do"
        raise FatalError("BucketOutOfRange", f"{FIELD}: {broken}{advice}", condition="Accepted", field=FIELD)
    return tuple(allowed)
