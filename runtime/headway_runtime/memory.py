"""How much memory this process may use, and has: what torch does not ask before it allocates."""

import resource
from dataclasses import dataclass
from pathlib import Path

CGROUP = Path("/sys/fs/cgroup")
PROC = Path("/proc")

STACKS = 256 << 20
"""Bytes of address space beyond real memory that threads yet to be started may reserve for their stacks."""


@dataclass(frozen=True, slots=True)
class Room:
    """Bytes that may be used in all, and whose bound that is, in words."""

    bytes: int
    whose: str


def host_room(cgroup: Path = CGROUP, proc: Path = PROC) -> Room:
    """For a program on the processor: the container's limit, or all memory of a machine that sets none."""
    total = Room(_field(proc / "meminfo", "MemTotal") or 1 << 62, "the memory of this machine")
    limits = [_number(cgroup / "memory.max"), _number(cgroup / "memory" / "memory.limit_in_bytes")]
    limit = min((n for n in limits if n is not None), default=total.bytes)
    return Room(limit, "the container's memory limit") if limit < total.bytes else total


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
    return _field(proc / "self" / "status", "RssAnon") or 0


def bound_allocations(room: Room, proc: Path = PROC) -> int:
    """Let this process allocate what is left of ``room`` and no more: what a request's data ask for beyond that (a
    size that is computed from numbers) fails that request, and not the pod. Returns the bytes left.

    The limit is on address space that is private and writable (RLIMIT_DATA), which is counted when it is allocated;
    mapped weights are not. It can only be lowered from here on.
    """
    left = max(0, room.bytes - in_use(proc))
    has = _field(proc / "self" / "status", "VmData") or 0
    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
    wanted = has + left + STACKS
    bound = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (bound, bound))
    return left


def _number(file: Path) -> int | None:
    """A limit in bytes; None for "max" or a file that is not there."""
    try:
        return int(file.read_text())
    except (OSError, ValueError):
        return None


def _field(file: Path, name: str) -> int | None:
    """``Name:   123 kB`` in bytes."""
    try:
        lines = file.read_text().splitlines()
    except OSError:
        return None
    found = next((line.split() for line in lines if line.startswith(f"{name}:")), None)
    return int(found[1]) * 1024 if found and len(found) > 1 and found[1].isdigit() else None
