"""What lies between two products of a decoder, in one call each instead of five to ten: a norm, a rotation of
positions, a gate. float32 on the processor; native code only.
"""

import ctypes
import math
import struct
from collections.abc import Callable
from functools import cache

import torch

from headway_runtime.kernels.library import FILE, Library, native

SILU, GELU_TANH = 0, 1  # `Gate` in native/pointwise.cc
_CALL = struct.Struct("5P5qd")  # `Pointwise` there

Call = Callable[[bytes], int]


class Pointwise:
    """The functions of one kind of processor. Every one checks the sizes it is given, whoever gives them, and raises
    RuntimeError.
    """

    def __init__(self, library: Library) -> None:
        code = ctypes.CDLL(str(FILE))
        self._threads = library.threads
        self._norm, self._rotate, self._gate = (
            _function(code, f"headway_{name}_{library.name}") for name in ("norm", "rotate", "gate")
        )

    def norm(self, x: torch.Tensor, weight: torch.Tensor, epsilon: float) -> torch.Tensor:
        """x [.., D] / sqrt(mean(x^2) + epsilon) * weight [D], of the shape of x (Zhang and Sennrich, 2019)."""
        x = _dense(x)
        width = _width(x, weight)
        y = torch.empty_like(x)
        rows = x.numel() // width
        self._norm(
            _CALL.pack(x.data_ptr(), 0, weight.data_ptr(), 0, y.data_ptr(), rows, width, 1, 0, self._threads, epsilon)
        )
        return y

    def add_norm(
        self, x: torch.Tensor, more: torch.Tensor, weight: torch.Tensor, epsilon: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The sum of x and `more`, of one shape [.., D], and its norm."""
        x, more = _dense(x), _dense(more)
        if x.shape != more.shape:
            raise RuntimeError(f"norm: {list(x.shape)} and {list(more.shape)} cannot be added here")
        width = _width(x, weight)
        total, y = torch.empty_like(x), torch.empty_like(x)
        rows = x.numel() // width
        at = (x.data_ptr(), more.data_ptr(), weight.data_ptr(), total.data_ptr(), y.data_ptr())
        self._norm(_CALL.pack(*at, rows, width, 1, 0, self._threads, epsilon))
        return total, y

    def rotate(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, heads: int) -> torch.Tensor:
        """x, cos and sin of any shape whose numbers lie as [T, heads, D], [T, D] and [T, D]; [T, heads, D]: rotary
        positions with halves (Su et al., 2021).
        """
        x, cos, sin = _dense(x), _dense(cos), _dense(sin)
        width = cos.shape[-1]
        tokens = cos.numel() // width if width else 0
        if cos.shape != sin.shape or x.numel() != tokens * heads * width or width % 2:
            raise RuntimeError(
                f"rotation: x is {list(x.shape)}, cos {list(cos.shape)}, sin {list(sin.shape)} for {heads} heads"
            )
        y = torch.empty((tokens, heads, width))
        at = (x.data_ptr(), cos.data_ptr(), sin.data_ptr(), 0, y.data_ptr())
        self._rotate(_CALL.pack(*at, tokens, width, heads, 0, self._threads, 0.0))
        return y

    def gate(self, x: torch.Tensor, by: torch.Tensor, kind: int) -> torch.Tensor:
        """silu(x) * by, or gelu(x) * by with the hyperbolic tangent; both of one shape."""
        x, by = _dense(x), _dense(by)
        if x.shape != by.shape or not x.dim() or kind not in (SILU, GELU_TANH):
            raise RuntimeError(f"gate: {list(x.shape)} by {list(by.shape)}")
        y = torch.empty_like(x)
        width = x.shape[-1]
        rows = math.prod(x.shape[:-1])
        self._gate(
            _CALL.pack(x.data_ptr(), by.data_ptr(), 0, 0, y.data_ptr(), rows, width, 1, kind, self._threads, 0.0)
        )
        return y


@cache
def pointwise() -> Pointwise | None:
    """The functions for this processor, if there is native code for it."""
    library = native()
    return None if library is None else Pointwise(library)


def _function(code: ctypes.CDLL, name: str) -> Call:
    function = code[name]
    function.restype, function.argtypes = ctypes.c_int, (ctypes.c_char_p,)
    return function


def _dense(x: torch.Tensor) -> torch.Tensor:
    if x.dtype is not torch.float32 or x.device.type != "cpu":
        raise RuntimeError(f"{x.dtype} on {x.device} where float32 on cpu is wanted")
    return x if x.is_contiguous() and not x.is_neg() else x.contiguous().resolve_neg()


def _width(x: torch.Tensor, weight: torch.Tensor) -> int:
    """D, which both have."""
    if weight.dim() != 1 or x.shape[-1:] != weight.shape or not weight.is_contiguous() or not len(weight):
        raise RuntimeError(f"norm: x is {list(x.shape)}, the weight {list(weight.shape)}")
    if weight.dtype is not torch.float32:
        raise RuntimeError(f"norm: the weight is {weight.dtype}")
    return len(weight)
