"""How much memory this process may use, and has: what torch does not ask before it allocates."""

import ctypes
import resource
from pathlib import Path

from headway_runtime.prepare.room import PROC, Room, field_of, host_room

__all__ = ["Room", "bound_allocations", "device_room", "give_back", "host_room", "in_use", "out_of_memory"]

STACKS = 256 << 20
"""Bytes of address space beyond real memory that threads yet to be started may reserve for their stacks."""


def device_room() -> Room:
    """For a program on the first GPU: what is free on it now. Not tried on a GPU yet."""
    import torch

    free, _ = torch.cuda.mem_get_info()
    return Room(free, "the free memory of the GPU")


def out_of_memory(error: BaseException) -> bool:
    """Whether an exception says that memory ran out, of Python, of torch on a CPU or of torch on a GPU."""
    import torch

    return isinstance(error, MemoryError | torch.OutOfMemoryError) or "can't allocate memory" in str(error)


def in_use(proc: Path = PROC) -> int:
    """Bytes of memory of its own (no files) that this process has touched."""
    return field_of(proc / "self" / "status", "RssAnon") or 0


def give_back() -> None:
    """Give the system back what was freed: loading and trying take far more than serving. Where the C library is not
    glibc, it does so by itself, or not.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def bound_allocations(room: Room, proc: Path = PROC) -> int:
    """Let this process allocate what is left of ``room`` and no more: what a request's data ask for beyond that (a
    size that is computed from numbers) fails that request, and not the pod. Returns the bytes left.

    The limit is on address space that is private and writable (RLIMIT_DATA), which is counted when it is allocated;
    mapped weights are not. It can only be lowered from here on.
    """
    left = max(0, room.bytes - in_use(proc))
    has = field_of(proc / "self" / "status", "VmData") or 0
    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
    wanted = has + left + STACKS
    bound = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (bound, bound))
    return left
