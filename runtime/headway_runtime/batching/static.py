"""Which bucket a run takes where shapes are static: the smallest warmed one that holds it. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from math import prod

from headway_runtime.batching.layout import Layout

Sizes = Mapping[str, int]


class StaticShapes:
    """`captured`: the buckets whose shapes can be run, of all the program's dimensions. A run is filled up to a bucket
    along the batch and the padded dimensions, and must have its sizes along the others.
    """

    def __init__(self, layout: Layout, captured: Iterable[Sizes]) -> None:
        free = {layout.batch, *layout.padded}
        self._free = free
        self._by_rest: dict[tuple[tuple[str, int], ...], list[Sizes]] = {}
        for sizes in sorted(captured, key=lambda sizes: prod(sizes.values())):
            self._by_rest.setdefault(self._rest(sizes), []).append(sizes)

    def __call__(self, sizes: Sizes) -> Sizes | None:
        """The bucket; None when none holds a run of these sizes."""
        candidates: Sequence[Sizes] = self._by_rest.get(self._rest(sizes), ())
        return next(
            (bucket for bucket in candidates if all(bucket[name] >= size for name, size in sizes.items())), None
        )

    def _rest(self, sizes: Sizes) -> tuple[tuple[str, int], ...]:
        return tuple((name, size) for name, size in sizes.items() if name not in self._free)
