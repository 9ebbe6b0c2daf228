"""Instructions that carry graphs (``control``), measured: both branches, and one step of a loop.

What a loop stacks is counted for all its steps; the rows before they are stacked are not (the bound stays a lower one).
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import torch

from headway_runtime.program.control import Graph, LoopError
from headway_runtime.program.shape_gate.unknown import UNKNOWN, any_unknown


class Meter(Protocol):
    """What counts tensors that came to be."""

    def enter(self, result: Any) -> None: ...

    def loosely(self) -> AbstractContextManager[None]: ...


class MeasuredAutocast:
    """What is computed under autocast has element types that only the device's own kernels decide: it is counted at
    half its bytes, and what comes of it is unknown.
    """

    def __init__(self, meter: Meter, body: Graph) -> None:
        self._meter = meter
        self._body = body

    def __call__(self, *operands: Any, enabled: bool, **_: Any) -> Sequence[Any]:
        if not enabled:
            return self._body(*operands)
        with self._meter.loosely():
            return [UNKNOWN for _ in self._body(*operands)]


class MeasuredCond:
    """Both branches, one after the other: the larger one makes the peak. Results that differ are unknown."""

    def __init__(self, meter: Meter, *branches: Graph) -> None:
        self._meter = meter
        self._branches = branches

    def __call__(self, predicate: Any, *operands: Any) -> list[Any]:
        branches = self._branches
        if isinstance(predicate, bool):  # decided by sizes, not by data
            branches = branches[:1] if predicate else branches[1:]
        first = [_described(value) for value in branches[0](*operands)]
        results = branches[-1](*operands)
        return [value if _described(value) == known else UNKNOWN for value, known in zip(results, first, strict=True)]


class MeasuredScan:
    """One step, and the results of all."""

    def __init__(self, meter: Meter, body: Graph) -> None:
        self._meter = meter
        self._body = body

    def __call__(self, carried: Sequence[Any], xs: Sequence[Any], more: Sequence[Any]) -> list[Any]:
        steps = _steps(xs)
        results = self._body(*carried, *_row(xs), *more)
        rows = results[len(carried) :]
        state = []
        for was, now in zip(carried, results[: len(carried)], strict=True):
            if was is not UNKNOWN and now is not UNKNOWN and _described(was) != _described(now):
                raise LoopError("what a scan carries changes its shape or type from one step to the next")
            state.append(UNKNOWN if was is UNKNOWN else now)
        return [*state, *_stacked(rows, steps, self._meter)]


class MeasuredMap:
    """One step, and the results of all."""

    def __init__(self, meter: Meter, body: Graph) -> None:
        self._meter = meter
        self._body = body

    def __call__(self, xs: Sequence[Any], more: Sequence[Any]) -> list[Any]:
        return _stacked(self._body(*_row(xs), *more), _steps(xs), self._meter)


MEASURED: dict[str, Callable[..., Callable[..., Any]]] = {
    "autocast": MeasuredAutocast,
    "cond": MeasuredCond,
    "map": MeasuredMap,
    "scan": MeasuredScan,
}


def _steps(xs: Sequence[Any]) -> int | None:
    """Rows that all of ``xs`` have; None when data decide."""
    if any_unknown(xs):
        return None
    rows = {x.shape[0] if x.dim() else -1 for x in xs}
    if len(rows) != 1 or -1 in rows:
        raise LoopError("a loop over tensors with different numbers of rows")
    return int(rows.pop())


def _row(xs: Sequence[Any]) -> list[Any]:
    return [UNKNOWN if x is UNKNOWN else x.new_empty(x.shape[1:]) for x in xs]


def _stacked(rows: Sequence[Any], steps: int | None, meter: Meter) -> list[Any]:
    results = [UNKNOWN if steps is None or row is UNKNOWN else row.new_empty((steps, *row.shape)) for row in rows]
    meter.enter(results)
    return results


def _described(value: Any) -> Any:
    return (value.shape, value.dtype) if isinstance(value, torch.Tensor) else value
