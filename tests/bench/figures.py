"""How the figures of these benchmarks are told: medians over alternating rounds, and the machine they are of."""

import os
import platform
import statistics
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int) -> float:
    """User and system time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def spread(values: Iterable[float]) -> dict[str, float]:
    """Median, least and greatest."""
    found = [value for value in values if value == value]
    if not found:
        return {"median": float("nan"), "least": float("nan"), "greatest": float("nan")}
    return {"median": statistics.median(found), "least": min(found), "greatest": max(found)}


def over_rounds(rounds: Iterable[Mapping[str, float]]) -> dict[str, dict[str, float]]:
    """The spread of each figure."""
    found = list(rounds)
    return {name: spread(each[name] for each in found) for name in found[0]}


def told(figure: Mapping[str, float], unit: str = "", scale: float = 1.0) -> str:
    """`12.3 (11.9-13.0) ms`."""
    low, high = figure["least"] * scale, figure["greatest"] * scale
    return f"{figure['median'] * scale:.4g} ({low:.4g}-{high:.4g}){' ' + unit if unit else ''}"


def verdict(name: str, figure: float, bound: float, *, at_most: bool) -> str:
    """A line that says whether a figure is what the project asks for."""
    good = figure <= bound if at_most else figure >= bound
    return (
        f"{'ok  ' if good else 'MISS'} {name}: {figure:.3g} (asked: {'at most' if at_most else 'at least'} {bound:g})"
    )


def machine() -> dict[str, Any]:
    """What the figures are of, and how busy it was with other things."""
    model = next((x for x in Path("/proc/cpuinfo").read_text().splitlines() if x.startswith("model name")), "")
    return {
        "processor": model.partition(":")[2].strip() or platform.machine(),
        "processors": len(os.sched_getaffinity(0)),
        "load": [round(each, 2) for each in os.getloadavg()],
        "python": platform.python_version(),
    }
