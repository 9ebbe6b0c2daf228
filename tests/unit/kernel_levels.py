"""The levels of the native library that this processor can run, and memory with a wall on each side."""

import ctypes
import mmap
from collections.abc import Sequence
from functools import cache

import torch
from headway_runtime.kernels.library import Library

LEVELS = range(Library().best + 1)


@cache
def library(level: int, threads: int = 1) -> Library:
    return Library(level=level, threads=threads)


def guarded(tensor: torch.Tensor, *, at_end: bool) -> torch.Tensor:
    """The same in pages of its own, pressed against the end or the beginning; what is before and behind kills."""
    page = mmap.PAGESIZE
    size = tensor.numel() * tensor.element_size()
    inner = -(-max(size, 1) // page) * page
    memory = mmap.mmap(-1, inner + 2 * page)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    for wall in (address, address + page + inner):
        if ctypes.CDLL(None).mprotect(ctypes.c_void_p(wall), ctypes.c_size_t(page), 0):
            raise OSError("mprotect failed")
    first = page + (inner - size if at_end else 0)
    within = torch.frombuffer(memory, dtype=torch.uint8, count=size, offset=first) if size else torch.empty(0)
    return within.view(tensor.dtype).view(tensor.shape).copy_(tensor) if size else tensor.clone()


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.shape == b.shape and torch.equal(a.contiguous().view(torch.int32), b.contiguous().view(torch.int32))


def error(answer: torch.Tensor, expected: torch.Tensor) -> float:
    """The greatest difference, relative to the greatest number expected."""
    if not expected.numel():
        return 0.0
    return float((answer.double() - expected.double()).abs().max() / expected.double().abs().max().clamp_min(1e-30))


def pieces_of(lengths: Sequence[tuple[int, int]], size: int) -> list[list[tuple[int, int, int]]]:
    """Steps in which each sequence, alone, gets at most `size` tokens from `past` to `last`."""
    return [
        [(sequence, first, min(first + size, last))]
        for sequence, (past, last) in enumerate(lengths)
        for first in range(past, last, size)
    ]
