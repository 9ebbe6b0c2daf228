"""Multiplication by weights that were packed when the pod loaded: `y = x W^T + b`, in the precision of the weights.

A row's answer is the same bits whatever rows are beside it and however many threads compute it: a token does not depend
on what else is in its step.
"""

from typing import Protocol

import torch
from headway_api.types import Precision

from headway_runtime.kernels import reference
from headway_runtime.kernels.library import Library, native

FLOAT32, BFLOAT16, INT8 = 0, 1, 2  # `Kind` in native/headway.h


class Packed(Protocol):
    """A weight [N, K], ready to be multiplied by. `bytes` of memory that it holds."""

    bytes: int

    def __call__(
        self, x: torch.Tensor, bias: torch.Tensor | None = None, lengths: torch.Tensor | None = None
    ) -> torch.Tensor:
        """x [.., K] and bias [N] of one floating type; [.., N] of that type. Raises RuntimeError for other shapes.

        `lengths`, int64 [B]: of x [B, .., K] only so many rows of each are wanted; the others need not be computed, and
        are 0 then. RuntimeError where there are not so many.
        """


def pack(weight: torch.Tensor, precision: Precision) -> Packed:
    """Pack a floating weight [N, K]. EXPORTED keeps bfloat16 as it is; any other type becomes float32.

    Raises RuntimeError for other shapes and, where values become bytes, for weights that are not finite.
    """
    return pack_with(native(), weight, precision)


def pack_with(library: Library | None, weight: torch.Tensor, precision: Precision) -> Packed:
    """The same with a given library; None: plain torch."""
    if weight.dim() != 2 or not weight.is_floating_point() or not weight.numel():
        raise RuntimeError(f"linear: a weight {weight.dtype} {list(weight.shape)}, where floating [N, K] is wanted")
    if precision is Precision.INT8 and not bool(weight.isfinite().all()):
        raise RuntimeError("linear: a weight with numbers that are not finite cannot be kept in 8 bits")
    kind = _kind(weight.dtype, precision)
    if library is None or weight.device.type != "cpu" or not library.linear_bytes(kind, *weight.shape):
        return _PlainLinear(weight, kind)
    return _NativeLinear(library, weight, kind)


def _kind(dtype: torch.dtype, precision: Precision) -> int:
    if precision is Precision.INT8:
        return INT8
    return BFLOAT16 if precision is Precision.BFLOAT16 or dtype == torch.bfloat16 else FLOAT32


def bytes_of(outputs: int, inputs: int, dtype: torch.dtype, precision: Precision) -> int:
    """What a packed weight [N, K] will hold. Columns come in strips, and numbers of 8 bits in groups: a weight of one
    output or of one input takes up to 64 times of what it has.
    """
    kind = _kind(dtype, precision)
    library = native()
    if library is not None and (size := library.linear_bytes(kind, outputs, inputs)):
        return size
    if kind == INT8:
        return outputs * -(-inputs // reference.GROUP) * (reference.GROUP + 2)
    return outputs * inputs * (2 if kind == BFLOAT16 else 4)


class _NativeLinear:
    def __init__(self, library: Library, weight: torch.Tensor, kind: int) -> None:
        self._library = library
        self._shape = (weight.shape[0], weight.shape[1])
        self._inputs = self._shape[1:]
        self._kind = kind
        self.bytes = library.linear_bytes(kind, *weight.shape)
        self._packed = torch.empty(self.bytes, dtype=torch.uint8)
        self._at = self._packed.data_ptr()
        library.linear_pack(kind, weight.detach().float().contiguous(), self._packed)

    def __call__(
        self, x: torch.Tensor, bias: torch.Tensor | None = None, lengths: torch.Tensor | None = None
    ) -> torch.Tensor:
        outputs, inputs = self._shape
        if x.dtype is not torch.float32:
            return self(x.float(), None if bias is None else bias.float(), lengths).to(x.dtype)
        if bias is not None or not x.is_cpu or x.shape[-1:] != self._inputs:
            _check(x, bias, self._shape, self._packed.device)
            bias = None if bias is None else bias.contiguous().resolve_neg()
        if not x.is_contiguous() or x.is_neg():
            x = x.contiguous().resolve_neg()
        y = torch.empty((*x.shape[:-1], outputs))
        at = (x.data_ptr(), self._at, 0 if bias is None else bias.data_ptr(), y.data_ptr())
        if lengths is None:
            self._library.linear((*at, 0), x.numel() // inputs, self._shape, self._kind)
        else:
            _check_lengths(x, lengths)
            every = (*at, lengths.data_ptr())
            self._library.linear(every, x.numel() // inputs, self._shape, self._kind, len(lengths))
        return y


class _PlainLinear:
    """The same in plain torch, of which the native code is a fast form."""

    def __init__(self, weight: torch.Tensor, kind: int) -> None:
        self._shape = tuple(weight.shape)
        self._kind = kind
        self._scales = weight.new_empty(0)
        if kind == INT8:
            self._weight, self._scales = reference.quantised(weight.float())
        else:
            self._weight = weight.to(torch.bfloat16 if kind == BFLOAT16 else torch.float32)
        self.bytes = sum(t.numel() * t.element_size() for t in (self._weight, self._scales))

    def __call__(
        self, x: torch.Tensor, bias: torch.Tensor | None = None, lengths: torch.Tensor | None = None
    ) -> torch.Tensor:
        _check(x, bias, self._shape, self._weight.device)
        if self._kind == INT8:
            y = reference.linear_int8(x.float(), self._weight, self._scales)
        elif self._kind == BFLOAT16:
            y = x.bfloat16().float() @ self._weight.float().T
        else:
            y = x.float() @ self._weight.T
        return (y if bias is None else y + bias.float()).to(x.dtype)


def _check(x: torch.Tensor, bias: torch.Tensor | None, shape: tuple[int, ...], device: torch.device) -> None:
    outputs, inputs = shape
    if not x.dim() or x.shape[-1] != inputs or x.device != device:
        raise RuntimeError(f"linear: x is {list(x.shape)} on {x.device}, not [.., {inputs}] on {device}")
    if bias is not None and (bias.shape != (outputs,) or bias.dtype != x.dtype or bias.device != device):
        raise RuntimeError(f"linear: the bias is {bias.dtype} {list(bias.shape)}, not {x.dtype} [{outputs}]")


def _check_lengths(x: torch.Tensor, lengths: torch.Tensor) -> None:
    """What the library cannot see: that there are as many numbers as it will read. It looks at the numbers itself."""
    plain = lengths.dtype is torch.int64 and lengths.is_cpu and lengths.is_contiguous() and not lengths.is_neg()
    if not plain or lengths.dim() != 1 or x.dim() < 2 or x.shape[0] != len(lengths):
        raise RuntimeError(f"linear: lengths are {lengths.dtype} {list(lengths.shape)}, of x {list(x.shape)}")
