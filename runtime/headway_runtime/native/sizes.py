"""Which sizes of a program to try: the ends of its ranges, ordinary ones between, and ones that break an assumption.

Pure: no tensors. Sizes are by dimension name, as everywhere; an expression is evaluated over the program's symbols.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from headway_runtime.prepare.sizes import expression as ex
from headway_runtime.prepare.sizes.dimensions import Dimension, Named

Sizes = dict[str, int]

MAX_AXIS = 256
"""Largest size of an axis that is tried where the program allows more."""
MAX_ELEMENTS = 1 << 22
"""Of all inputs of one trial."""
_STEPS = (7, 2, 3, 4, 5, 8, 12, 13, 16, 17, 24, 31, 32, 48, 63, 64, 65, 100, 128, 129, 200, 255, 256)
_MAX_COMBINATIONS = 50_000


class Sized(Protocol):
    """What is asked of a program."""

    dimensions: Mapping[str, Dimension]

    def check(self, sizes: Mapping[str, int]) -> str | None: ...
    def input_shapes(self, sizes: Mapping[str, int]) -> tuple[tuple[int, ...], ...]: ...


@dataclass(frozen=True, slots=True)
class Space:
    """All sizes that are worth a trial, in a fixed order. ``combinations`` are admissible and small enough."""

    named: Named
    combinations: tuple[Sizes, ...]

    def example(self) -> Sizes | None:
        """For recording: all sizes different and none of them 0 or 1, as far as the program allows it; None when no
        size that was tried is admissible.
        """

        def score(sizes: Sizes) -> tuple[int, int]:
            return -sum(n > 1 for n in sizes.values()), -len(set(sizes.values()))

        return min(self.combinations, key=score, default=None)

    def ends(self) -> list[Sizes]:
        """The smallest, an ordinary and the largest combination."""
        if not self.combinations:
            return []
        ordered = sorted(self.combinations, key=lambda sizes: (sum(sizes.values()), *sizes.values()))
        chosen = [ordered[0], ordered[len(ordered) // 2], ordered[-1]]
        return [sizes for i, sizes in enumerate(chosen) if sizes not in chosen[:i]]

    def breaking(self, condition: ex.Expr) -> Sizes | None:
        """Sizes that the program allows and the condition does not."""
        return next((sizes for sizes in self.combinations if not holds(condition, self.named, sizes)), None)


def space(program: Sized, named: Named) -> Space:
    """The sizes to choose from."""
    names = list(program.dimensions)
    lists = [list(_candidates(named, program.dimensions[name])) for name in names]
    found: list[Sizes] = []
    for values in itertools.islice(_diagonal_first(lists), _MAX_COMBINATIONS):
        sizes = dict(zip(names, values, strict=True))
        if program.check(sizes) is None and _elements(program.input_shapes(sizes)) <= MAX_ELEMENTS:
            found.append(sizes)
    return Space(named, tuple(found))


def holds(condition: ex.Expr, named: Named, sizes: Mapping[str, int]) -> bool:
    """Whether a condition over the program's symbols is true for these sizes."""
    values = {d.symbol: named.axes[d.symbol].symbol_of(sizes[name]) for name, d in named.by_name.items()}
    if None in values.values():
        return False
    try:
        return bool(ex.evaluate(condition, {symbol: int(n) for symbol, n in values.items() if n is not None}))
    except ex.EvaluationError:
        return False


def _candidates(named: Named, dimension: Dimension) -> Iterator[int]:
    """Sizes of one axis: ordinary ones first, then the ends of its range."""
    axis = named.axes[dimension.symbol]
    top = min(dimension.max if dimension.max is not None else MAX_AXIS, max(MAX_AXIS, dimension.min))
    seen: set[int] = set()
    for size in (*(axis.size_of(n) for n in _STEPS), dimension.min, top, *(axis.size_of(n) for n in range(1, 3))):
        if dimension.min <= size <= top and size not in seen:
            seen.add(size)
            yield size


def _diagonal_first(lists: Sequence[Sequence[int]]) -> Iterator[tuple[int, ...]]:
    """All combinations, those first whose members stand at neighbouring places of their lists: with many dimensions
    the whole product is out of reach, and its first part would vary only the last ones.
    """
    seen: set[tuple[int, ...]] = set()
    longest = max(map(len, lists), default=1)
    for shift in (0, 1, 2):
        for start in range(longest):
            values = tuple(items[(start + shift * i) % len(items)] for i, items in enumerate(lists) if items)
            if len(values) == len(lists) and values not in seen:
                seen.add(values)
                yield values
    for values in itertools.product(*lists):
        if values not in seen:
            yield values


def _elements(shapes: Sequence[Sequence[int]]) -> int:
    total = 0
    for shape in shapes:
        count = 1
        for n in shape:
            count *= n
        total += count
    return total
