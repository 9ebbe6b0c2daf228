"""How much memory a container may use, as its kernel says: read before anything large is made. No torch.

Both containers of a pod have the same limits, so the prepare step knows what the serving process will have.
"""

from dataclasses import dataclass, field
from pathlib import Path

CGROUP = Path("/sys/fs/cgroup")
PROC = Path("/proc")
MEMORY_FIELD = "spec.template.resources.limits.memory"

_UNITS = ("KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


@dataclass(frozen=True, slots=True)
class Room:
    """Bytes that may be used in all, and whose bound that is, in words. `limited`: it is a container's own."""

    bytes: int
    whose: str
    limited: bool = field(default=True, compare=False)


def host_room(cgroup: Path = CGROUP, proc: Path = PROC) -> Room:
    """For a program on the processor: the container's limit, or all memory of a machine that sets none."""
    total = Room(field_of(proc / "meminfo", "MemTotal") or 1 << 62, "the memory of this machine", limited=False)
    limits = [_number(cgroup / "memory.max"), _number(cgroup / "memory" / "memory.limit_in_bytes")]
    limit = min((n for n in limits if n is not None), default=total.bytes)
    return Room(limit, "the container's memory limit") if limit < total.bytes else total


def free(proc: Path = PROC) -> int:
    """Bytes that this machine could give now without taking them from anybody."""
    return field_of(proc / "meminfo", "MemAvailable") or 0


def field_of(file: Path, name: str) -> int | None:
    """``Name:   123 kB`` in bytes."""
    try:
        lines = file.read_text().splitlines()
    except OSError:
        return None
    found = next((line.split() for line in lines if line.startswith(f"{name}:")), None)
    return int(found[1]) * 1024 if found and len(found) > 1 and found[1].isdigit() else None


def readable(size: int) -> str:
    """``1.5 GiB``."""
    if size < 1024:
        return f"{size} bytes"
    power = min((size.bit_length() - 1) // 10, len(_UNITS))
    return f"{size / 1024**power:.1f} {_UNITS[power - 1]}"


def _number(file: Path) -> int | None:
    """A limit in bytes; None for "max" or a file that is not there."""
    try:
        return int(file.read_text())
    except (OSError, ValueError):
        return None
