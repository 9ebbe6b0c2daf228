"""Which instructions a library may use, and which a machine has: by the names of ``/proc/cpuinfo``.

A library with an instruction that the processor lacks ends the process in the middle of a run. So a package names all
that its compiler was allowed to use, and it is refused where one of them is missing.
"""

import platform
import re
from collections.abc import Iterable
from pathlib import Path

CPUINFO = Path("/proc/cpuinfo")
MACHINE = "x86_64"

_LINE = re.compile(r"^flags\s*:(.*)$", re.MULTILINE)


def features(cpuinfo: Path = CPUINFO) -> frozenset[str]:
    """What this machine's processors have. Empty where the kernel does not say."""
    try:
        found = _LINE.search(cpuinfo.read_text(encoding="ascii", errors="replace"))
    except OSError:
        return frozenset()
    return frozenset(found[1].split()) if found else frozenset()


def lacking(needed: Iterable[str], machine: str | None = None, has: frozenset[str] | None = None) -> str | None:
    """Why a library with these needs cannot run here; None when it can. The machine and its features default to this
    one's.
    """
    machine = platform.machine() if machine is None else machine
    if machine != MACHINE:
        return f"it is for {MACHINE}, and this machine is {machine}"
    missing = sorted(set(needed) - (features() if has is None else has))
    return f"this machine's processor lacks {', '.join(missing)}" if missing else None
