"""Sizes and element types, for the rules of ``fast`` and ``same``."""

from collections.abc import Sequence

import torch
from torch import Tensor


def broadcast(*shapes: Sequence[int]) -> tuple[int, ...] | None:
    """The common shape; None when there is none."""
    rank = max((len(s) for s in shapes), default=0)
    padded = [(1,) * (rank - len(s)) + tuple(s) for s in shapes]
    common = []
    for sizes in zip(*padded, strict=True):
        others = {n for n in sizes if n != 1}
        if len(others) > 1:
            return None
        common.append(others.pop() if others else 1)
    return tuple(common)


def fits(shape: Sequence[int], into: Sequence[int]) -> bool:
    """Whether a tensor broadcasts into another without making it larger."""
    return broadcast(shape, into) == tuple(into)


def one_type(*tensors: Tensor | None) -> bool:
    """Whether all have the same element type."""
    return len({t.dtype for t in tensors if t is not None}) == 1


def like(x: Tensor, shape: Sequence[int], dtype: torch.dtype | None = None) -> Tensor:
    """A dense tensor of this shape."""
    made: Tensor = x.new_empty(shape, dtype=dtype or x.dtype)
    return made


def per_channel(vector: Tensor | None, channels: int) -> bool:
    """Whether there is one element for each channel, or no such tensor."""
    return vector is None or tuple(vector.shape) == (channels,)


def axes_of(x: Tensor, dim: Sequence[int] | None) -> set[int] | None:
    """Axes that a reduction goes over: all when none is named; None when one is not there or named twice."""
    if not dim:
        return set(range(x.dim()))
    axes = {d % x.dim() for d in dim} if x.dim() and all(-x.dim() <= d < x.dim() for d in dim) else set()
    return axes if len(axes) == len(dim) else None


def summed_type(x: Tensor) -> torch.dtype:
    """Sums of whole numbers are int64."""
    return x.dtype if x.is_floating_point() or x.is_complex() else torch.int64
