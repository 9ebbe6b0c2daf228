"""The CPU time and memory of a tree of processes, from /proc. Imports nothing but the standard library."""

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class Stat:
    """One line of /proc/PID/stat (proc_pid_stat(5)). Times in clock ticks, user and system together."""

    pid: int
    parent: int
    own: int
    reaped: int  # of children that have ended and were waited for, with theirs
    resident: int  # bytes

    @classmethod
    def parse(cls, text: str) -> Self:
        """The name in the second field may hold spaces and parentheses, so fields are counted from its end."""
        head, _, tail = text.rpartition(")")
        fields = tail.split()
        user, system, reaped_user, reaped_system = (int(field) for field in fields[11:15])
        return cls(
            pid=int(head.split("(", 1)[0]),
            parent=int(fields[1]),
            own=user + system,
            reaped=reaped_user + reaped_system,
            resident=int(fields[21]) * PAGE,
        )


@dataclass(frozen=True, slots=True)
class ProcessTable:
    """Every process at one moment, by pid."""

    stats: Mapping[int, Stat]

    @classmethod
    def now(cls) -> Self:
        found = {}
        for name in os.listdir("/proc"):
            if name.isdecimal():
                with suppress(FileNotFoundError, ProcessLookupError):
                    found[int(name)] = Stat.parse(Path("/proc", name, "stat").read_text())
        return cls(found)


def descendants(root: int, table: ProcessTable) -> list[int]:
    """Every process below `root`, nearest first."""
    children: dict[int, list[int]] = {}
    for stat in table.stats.values():
        children.setdefault(stat.parent, []).append(stat.pid)
    found, at = [root], 0
    while at < len(found):
        found += children.get(found[at], [])
        at += 1
    return found[1:]


def cpu_seconds(root: int, table: ProcessTable) -> float:
    """User and system time that `root` and everything below it, alive or ended, have used so far.

    An ended process counts as reaped by its parent; `supervise.py` sees to it that every one has a parent in the tree.
    """
    pids = [root, *descendants(root, table)]
    stats = [table.stats[pid] for pid in pids if pid in table.stats]
    return sum(stat.own + stat.reaped for stat in stats) / TICKS


def resident_bytes(root: int, table: ProcessTable) -> int:
    """Resident memory of the tree; pages that several processes share count once for each."""
    pids = [root, *descendants(root, table)]
    return sum(table.stats[pid].resident for pid in pids if pid in table.stats)


def thread_seconds(pid: int) -> float:
    """CPU time of one process's threads that are alive, to the nanosecond: for what takes less than many ticks."""
    used = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):
            used += int((task / "schedstat").read_text().split()[0])
    return used / 1e9
