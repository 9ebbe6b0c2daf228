"""Instructions that carry graphs: one of two by a predicate (``cond``), one for each row (``scan``, ``map``),
one with other element types (``autocast``).

The same steps, copies and stacking as torch's own dense implementations, so the same bits. A loop ends: it has as many
steps as its tensors have rows, and loops inside of loops are bounded together.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

Graph = Callable[..., tuple[Any, ...]]

MAX_STEPS = 1 << 20
"""Steps of a loop, times the steps of the loops around it."""

_around = threading.local()


class LoopError(RuntimeError):
    """A loop of the program is too long, or its tensors do not fit it."""


class Cond:
    """``torch.cond``: one of two graphs, by a predicate of one element."""

    def __init__(self, if_true: Graph, if_false: Graph) -> None:
        self._if_true = if_true
        self._if_false = if_false

    def __call__(self, predicate: Any, *operands: Any) -> tuple[Any, ...]:
        return (self._if_true if bool(predicate) else self._if_false)(*operands)


class Autocast:
    """A graph that runs with autocast on or off, for the device that serves."""

    def __init__(self, body: Graph) -> None:
        self._body = body

    def __call__(
        self, *operands: Any, device: torch.device, dtype: torch.dtype | None, enabled: bool
    ) -> tuple[Any, ...]:
        with torch.autocast(device.type, dtype=dtype, enabled=enabled):
            return self._body(*operands)


class Scan:
    """``scan``: the body takes what is carried, one row of each of ``xs``, and ``more``; it returns what is carried
    on, and rows of results.
    """

    def __init__(self, body: Graph) -> None:
        self._body = body

    def __call__(
        self, carried: Sequence[torch.Tensor], xs: Sequence[torch.Tensor], more: Sequence[Any]
    ) -> tuple[torch.Tensor, ...]:
        """Carried tensors after the last step, then each result stacked: [steps, …]."""
        steps = _steps(xs)
        if steps == 0:
            results = self._body(*carried, *(x.new_zeros(x.shape[1:]) for x in xs), *more)
            return (*carried, *(y.new_empty((0, *y.shape)) for y in results[len(carried) :]))
        kept = [(c.shape, c.dtype) for c in carried]
        state = tuple(carried)
        rows: list[tuple[torch.Tensor, ...]] = []
        with _counted(steps):
            for step in range(steps):
                found = [torch.select_copy(x, 0, 0) if step == 0 else x.select(0, step) for x in xs]
                results = self._body(*state, *found, *more)
                state = results[: len(carried)]
                if [(c.shape, c.dtype) for c in state] != kept:
                    raise LoopError("what a scan carries changes its shape or type from one step to the next")
                rows.append(results[len(carried) :])
        return (*state, *(torch.stack(column) for column in zip(*rows, strict=True)))


class Map:
    """``map``: the body takes one row of each of ``xs``, and ``more``; it returns rows of results."""

    def __init__(self, body: Graph) -> None:
        self._body = body

    def __call__(self, xs: Sequence[torch.Tensor], more: Sequence[Any]) -> tuple[torch.Tensor, ...]:
        """Each result stacked: [steps, …]."""
        steps = _steps(xs)
        if steps == 0:
            raise LoopError("a map over no rows")
        with _counted(steps):
            rows = [self._body(*found, *more) for found in zip(*(x.unbind(0) for x in xs), strict=True)]
        return tuple([torch.stack(column) for column in zip(*rows, strict=True)])


def _steps(xs: Sequence[torch.Tensor]) -> int:
    """Rows that all of ``xs`` have."""
    rows = {x.shape[0] if x.dim() else -1 for x in xs}
    if len(rows) != 1 or -1 in rows:
        raise LoopError("a loop over tensors with different numbers of rows")
    return rows.pop()


@contextmanager
def _counted(steps: int) -> Iterator[None]:
    """Hold this loop's steps, times those around it, against the bound."""
    outside = getattr(_around, "steps", 1)
    if steps * outside > MAX_STEPS:
        raise LoopError(f"a loop of {steps} steps inside of {outside}; at most {MAX_STEPS} are run")
    _around.steps = steps * outside
    try:
        yield
    finally:
        _around.steps = outside
