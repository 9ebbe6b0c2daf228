"""Shapes of convolutions, pooling and resizing, for their common forms; see ``fast``."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor

Numbers = int | Sequence[int]


def _each(value: Numbers, axes: int) -> list[int] | None:
    """One number for each axis; a single one is for all."""
    values = [value] if isinstance(value, int) else list(value)
    return values * axes if len(values) == 1 else values if len(values) == axes else None


def _windows(
    sizes: Sequence[int], kernel: Numbers, stride: Numbers, padding: Numbers, dilation: Numbers
) -> list[int] | None:
    """How many windows fit along each axis; None when none do."""
    options = [_each(value, len(sizes)) for value in (kernel, stride, padding, dilation)]
    if any(o is None for o in options):
        return None
    counts = []
    for n, k, s, p, d in zip(sizes, *(o or [] for o in options), strict=True):
        reach = n + 2 * p - d * (k - 1) - 1
        if k < 1 or s < 1 or p < 0 or d < 1 or n < 1 or reach < 0:
            return None
        counts.append(reach // s + 1)
    return counts


def _convolution(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Numbers = 1, padding: Numbers = 0,
    dilation: Numbers = 1, groups: int = 1,
) -> Tensor | None:  # fmt: skip
    given = [t for t in (x, weight, bias) if t is not None]
    if x.dim() != weight.dim() or x.dim() < 3 or len({t.dtype for t in given}) > 1 or groups < 1:
        return None
    channels = weight.shape[0]
    if x.shape[1] != weight.shape[1] * groups or channels % groups or not channels or not x.shape[0]:
        return None
    if bias is not None and tuple(bias.shape) != (channels,):
        return None
    counts = _windows(x.shape[2:], list(weight.shape[2:]), stride, padding, dilation)
    return None if counts is None else x.new_empty((x.shape[0], channels, *counts))


def _any_convolution(
    x: Tensor, weight: Tensor, bias: Tensor | None, stride: Numbers, padding: Numbers, dilation: Numbers,
    transposed: bool, output_padding: Numbers, groups: int,
) -> Tensor | None:  # fmt: skip
    return None if transposed else _convolution(x, weight, bias, stride, padding, dilation, groups)


def _of_rank(rank: int, rule: Callable[..., Any]) -> Callable[..., Any]:
    def call(x: Tensor, *args: Any, **named: Any) -> Any:
        return rule(x, *args, **named) if x.dim() == rank else None

    return call


def _max_pool(
    x: Tensor, kernel_size: Numbers, stride: Numbers = (), padding: Numbers = 0, dilation: Numbers = 1,
    ceil_mode: bool = False,
) -> Tensor | None:  # fmt: skip
    return _pooled(x, kernel_size, stride, padding, dilation, ceil_mode)


def _average_pool(
    x: Tensor, kernel_size: Numbers, stride: Numbers = (), padding: Numbers = 0, ceil_mode: bool = False,
    count_include_pad: bool = True, divisor_override: int | None = None,
) -> Tensor | None:  # fmt: skip
    return _pooled(x, kernel_size, stride, padding, 1, ceil_mode) if x.is_floating_point() else None


def _pooled(
    x: Tensor, kernel: Numbers, stride: Numbers, padding: Numbers, dilation: Numbers, ceil_mode: bool
) -> Tensor | None:
    kernels, paddings = _each(kernel, x.dim() - 2), _each(padding, x.dim() - 2)
    if ceil_mode or kernels is None or paddings is None or 0 in x.shape:
        return None
    if any(p > k // 2 for k, p in zip(kernels, paddings, strict=True)):
        return None
    counts = _windows(x.shape[2:], kernel, stride or kernel, padding, dilation)
    return None if counts is None else x.new_empty((*x.shape[:2], *counts))


def _adaptive(x: Tensor, output_size: Sequence[int]) -> Tensor | None:
    known = x.is_floating_point() and len(output_size) == x.dim() - 2 and min(output_size) >= 1 and 0 not in x.shape
    return x.new_empty((*x.shape[:2], *output_size)) if known else None


def _nearest(x: Tensor, output_size: Any, scale_factors: Any) -> Tensor | None:
    if x.dim() != 4 or 0 in x.shape or not x.is_floating_point():
        return None
    if output_size is None and scale_factors is not None and len(scale_factors) == 2:
        output_size = [int(n * s) for n, s in zip(x.shape[2:], scale_factors, strict=True)]
    known = output_size is not None and len(output_size) == 2 and min(output_size) >= 1
    return x.new_empty((*x.shape[:2], *output_size)) if known else None


def _bilinear(x: Tensor, output_size: Any, align_corners: bool, scale_factors: Any) -> Tensor | None:
    return _nearest(x, output_size, scale_factors)


WINDOWS: Mapping[str, Callable[..., Any]] = {
    "aten.conv1d.default": _of_rank(3, _convolution),
    "aten.conv2d.default": _of_rank(4, _convolution),
    "aten.conv3d.default": _of_rank(5, _convolution),
    "aten.convolution.default": _any_convolution,
    "aten.max_pool1d.default": _of_rank(3, _max_pool),
    "aten.max_pool2d.default": _of_rank(4, _max_pool),
    "aten.avg_pool2d.default": _of_rank(4, _average_pool),
    "aten.adaptive_avg_pool2d.default": _of_rank(4, _adaptive),
    "aten.upsample_nearest2d.vec": _nearest,
    "aten.upsample_bilinear2d.vec": _bilinear,
}
