"""Hostile arguments for operators: wrong ranks, empty, huge and least integers, NaN, mixed types, uneven lists.

Input tensors lie between two pages that nobody may touch, flush with one of them: an operator that reads or writes one
element too far ends the process instead of passing unnoticed.
"""

import ctypes
import math
import mmap
import random
import re
from typing import Any

import torch
from headway_runtime.prepare.translate.operators import Signature

INTS = [0, 1, 2, 3, 4, 5, 7, 64, -1, -2, -3, -5, 1000, 2**31 - 1, -(2**31), 2**40, 2**62, -(2**62), 2**63 - 1, -(2**63)]
FLOATS = [0.0, 1.0, -1.0, 0.5, 1e-30, 1e30, float("inf"), float("-inf"), float("nan"), 2.0**62]
WORDS = """
    none tanh mean sum constant reflect replicate circular floor trunc zeros border reflection bilinear nearest ij xy
    ij,jk->ik bij,bjk->bik i,i fro nuc L U R amax amin prod same valid linear higher lower midpoint forward ortho
"""
TEXTS = WORDS.split()
SHAPES = [
    (), (0,), (1,), (3,), (5,), (2, 3), (3, 3), (0, 4), (4, 0, 2), (2, 3, 4), (3, 3, 3), (1, 2, 4, 4), (2, 2, 3, 3),
    (1, 1, 2, 3, 3), (2, 1, 3, 2, 2, 1),
]  # fmt: skip
DTYPES = [
    torch.float32, torch.float32, torch.float32, torch.int64, torch.int64, torch.int32, torch.bool, torch.float64,
    torch.complex64, torch.bfloat16, torch.float16, torch.uint8, torch.int8, torch.int16, torch.uint16,
]  # fmt: skip
FORMATS = [torch.contiguous_format, torch.preserve_format, torch.channels_last]

_LIST = re.compile(r"(\w+\??)\[(\d*)\]\Z")
_SLOTS, _PAGES = 64, 3


class Guarded:
    """Memory for small tensors, each between two pages without access. Slots are used again in turn."""

    def __init__(self) -> None:
        self._page = mmap.PAGESIZE
        self._slot = (_PAGES + 1) * self._page
        self._memory = mmap.mmap(-1, _SLOTS * self._slot + self._page)
        self._base = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        protect = ctypes.CDLL(None, use_errno=True).mprotect
        protect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
        for slot in range(_SLOTS + 1):
            if protect(self._base + slot * self._slot, self._page, 0):
                raise OSError(ctypes.get_errno(), "mprotect")
        self._next = 0

    def copy(self, tensor: torch.Tensor, *, at_end: bool) -> torch.Tensor:
        """The same values in guarded memory; itself when it is empty or too large."""
        size = tensor.numel() * tensor.element_size()
        if not 0 < size <= _PAGES * self._page:
            return tensor
        self._next = (self._next + 1) % _SLOTS
        start = self._base + self._next * self._slot + self._page
        address = start + _PAGES * self._page - size if at_end else start
        block = (ctypes.c_char * size).from_address(address)
        made = torch.frombuffer(block, dtype=tensor.dtype).view(tensor.shape)
        return made.copy_(tensor)


class Arguments:
    """Draws arguments. ``base``: shape and element type that most tensors of one call share, so that calls get past
    the first checks.
    """

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._memory = Guarded()
        self._base = ((2, 3), torch.float32)

    def seed(self, seed: str) -> None:
        """From here on the same arguments as from every other instance with this seed."""
        self._rng.seed(seed)
        torch.manual_seed(self._rng.randrange(2**31))

    def of(self, signature: Signature) -> tuple[list[Any], dict[str, Any], dict[str, Any]]:
        """(positional, by keyword, all by name)."""
        rng = self._rng
        self._base = rng.choice(SHAPES), rng.choice(DTYPES)
        given = [p for p in signature.parameters if p.required or rng.random() < 0.5]
        values = {p.name: self.value(p.type) for p in given}
        args = [values[p.name] for p in given if not p.keyword_only and p.required]
        named = {p.name: values[p.name] for p in given if p.keyword_only or not p.required}
        return args, named, values

    def value(self, kind: str) -> Any:
        """An argument of torch type ``kind``."""
        rng = self._rng
        if kind.endswith("?"):
            return None if rng.random() < 0.4 else self.value(kind[:-1])
        if match := _LIST.match(kind):
            count = int(match[2]) if match[2] and rng.random() < 0.8 else rng.randrange(5)
            return [self.value(match[1]) for _ in range(count)]
        match kind:
            case "Tensor":
                return self.tensor()
            case "Scalar":
                return rng.choice([*INTS, *FLOATS, True, 2.5 + 1j])
            case "int" | "SymInt":
                return rng.choice(INTS[:11] if rng.random() < 0.75 else INTS)
            case "float":
                return rng.choice(FLOATS)
            case "bool":
                return rng.random() < 0.5
            case "str":
                return rng.choice(TEXTS)
            case "ScalarType":
                return rng.choice(DTYPES)
            case "Device":
                return torch.device("cpu")
            case "Layout":
                return torch.strided
            case "MemoryFormat":
                return rng.choice(FORMATS)
        raise ValueError(kind)

    def tensor(self) -> torch.Tensor:
        """A small tensor: often of the call's base shape and type, sometimes of integers that would be indices."""
        rng = self._rng
        shape, dtype = self._base
        if rng.random() < 0.4:
            shape = rng.choice(SHAPES)
        if rng.random() < 0.3:
            dtype = rng.choice(DTYPES)
        if dtype.is_floating_point or dtype.is_complex:
            made = torch.randn(shape).to(dtype) * rng.choice([0, 1, 1, 1, 1e30, math.nan])
        elif rng.random() < 0.25 and dtype != torch.bool:
            limits = torch.iinfo(dtype)
            made = torch.full(
                shape, rng.choice([limits.min, limits.max, limits.max // 2, 0, max(-1, limits.min)]), dtype=dtype
            )
        else:
            made = torch.randint(rng.choice([-5, 0, 0]), 6, shape).to(dtype)
        made = self._memory.copy(made, at_end=rng.random() < 0.8)
        if made.dim() and rng.random() < 0.2:
            made = made.transpose(0, -1)
        if rng.random() < 0.1 and made.numel():
            made = made[:1].expand(3, *made.shape[1:]) if made.dim() else made.expand(2)
        return made
