"""Shapes of the operators whose result has the shape of their first argument; see ``fast``."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from headway_runtime.program.shape_gate.sizes import axes_of, broadcast, like, one_type, per_channel, summed_type


def _softmax(x: Tensor, dim: int, dtype: torch.dtype | None = None) -> Tensor | None:
    known = axes_of(x, [dim]) is not None and (
        x.is_floating_point() if dtype is None else isinstance(dtype, torch.dtype)
    )
    return like(x, x.shape, dtype) if known else None


def _layer_norm(
    x: Tensor, normalized_shape: list[int], weight: Tensor | None = None, bias: Tensor | None = None, *_: Any, **__: Any
) -> Tensor | None:
    tail = list(normalized_shape)
    known = x.is_floating_point() and tail and list(x.shape[-len(tail) :]) == tail and one_type(x, weight, bias)
    return like(x, x.shape) if known and all(t is None or list(t.shape) == tail for t in (weight, bias)) else None


def _group_norm(
    x: Tensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None, *_: Any, **__: Any
) -> Tensor | None:
    known = x.dim() >= 2 and x.is_floating_point() and num_groups > 0 and x.shape[1] % num_groups == 0
    known = known and one_type(x, weight, bias) and per_channel(weight, x.shape[1]) and per_channel(bias, x.shape[1])
    return like(x, x.shape) if known else None


def _batch_norm(
    x: Tensor, weight: Any, bias: Any, running_mean: Any, running_var: Any, *_: Any, **__: Any
) -> Tensor | None:
    given = (weight, bias, running_mean, running_var)
    known = x.dim() >= 2 and x.is_floating_point() and one_type(x, *given)
    return like(x, x.shape) if known and all(per_channel(t, x.shape[1]) for t in given) else None


def _cumulative(x: Tensor, dim: int, dtype: torch.dtype | None = None) -> Tensor | None:
    return None if axes_of(x, [dim]) is None else like(x, x.shape, dtype or summed_type(x))


def _masked_fill(x: Tensor, mask: Tensor, value: Any) -> Tensor | None:
    shape = broadcast(x.shape, mask.shape)
    known = shape is not None and mask.dtype == torch.bool and isinstance(value, int | float)
    return like(x, shape) if known and x.is_floating_point() and shape is not None else None


def _triangle(x: Tensor, diagonal: int = 0) -> Tensor | None:
    return like(x, x.shape) if x.dim() >= 2 else None


def _filled(x: Tensor, *_: Any, dtype: torch.dtype | None = None, **__: Any) -> Tensor:
    return like(x, x.shape, dtype)


def _turned(x: Tensor, dims: list[int]) -> Tensor | None:
    return like(x, x.shape) if dims and axes_of(x, dims) is not None else None


def _rolled(x: Tensor, shifts: list[int], dims: list[int] | None = None) -> Tensor | None:
    return _turned(x, dims) if dims and len(dims) == len(shifts) and x.numel() else None


def _sorted(x: Tensor, dim: int = -1, descending: bool = False) -> tuple[Tensor, Tensor] | None:
    return (like(x, x.shape), like(x, x.shape, torch.int64)) if axes_of(x, [dim]) and not x.is_complex() else None


def _quantized(x: Tensor, scale: Any, zero: Any, low: int, high: int, dtype: torch.dtype) -> Tensor | None:
    limits = torch.iinfo(dtype) if not dtype.is_floating_point else None
    inside = limits is not None and limits.min <= low <= high <= limits.max
    return like(x, x.shape, dtype) if inside and x.dtype == torch.float32 else None


def _dequantized(
    x: Tensor, scale: Any, zero: Any, low: int, high: int, dtype: torch.dtype, *, out_dtype: torch.dtype | None = None
) -> Tensor | None:
    return like(x, x.shape, out_dtype or torch.float32) if x.dtype == dtype and x.numel() else None


SAME: Mapping[str, Callable[..., Any]] = {
    "aten.softmax.int": _softmax,
    "aten.log_softmax.int": _softmax,
    "aten.layer_norm.default": _layer_norm,
    "aten.rms_norm.default": _layer_norm,
    "aten.group_norm.default": _group_norm,
    "aten.batch_norm.default": _batch_norm,
    "aten.cumsum.default": _cumulative,
    "aten.masked_fill.Scalar": _masked_fill,
    "aten.tril.default": _triangle,
    "aten.triu.default": _triangle,
    "aten.zeros_like.default": _filled,
    "aten.ones_like.default": _filled,
    "aten.full_like.default": _filled,
    "aten.flip.default": _turned,
    "aten.roll.default": _rolled,
    "aten.sort.default": _sorted,
    "quantized_decomposed.quantize_per_tensor.default": _quantized,
    "quantized_decomposed.dequantize_per_tensor.default": _dequantized,
}
