"""Where a client runs, and what of it would spoil the figures."""

import os
import platform
from collections.abc import Sequence
from pathlib import Path

CLIENT_BUSY = 0.7  # of a processor
SHARED = "client and server share few processors here: latencies under load are too high"


def machine() -> dict[str, object]:
    """Where the client runs, and how busy that was: a figure without this cannot be compared."""
    return {
        "processor": _processor(),
        "processors": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
        "loadAverage": round(os.getloadavg()[0], 2),
    }


def _processor() -> str:
    lines: Sequence[str] = ()
    if Path("/proc/cpuinfo").exists():
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.processor() or platform.machine())
