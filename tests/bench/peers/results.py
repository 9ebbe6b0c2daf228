"""What was measured, as a table and as JSON."""

import platform
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from headway_runtime.bench.statistics import percentile

from tests.bench.peers.catalogue import Peer, Settings
from tests.bench.peers.client import RefusedError
from tests.bench.peers.figures import Figure, table
from tests.bench.peers.running import Round


@dataclass(slots=True)
class Result:
    """Of one peer with one setting: its rounds under the name of each drive. `reason`: why it has no figures."""

    peer: Peer
    settings: Settings
    versions: dict[str, str] = field(default_factory=dict)
    rounds: dict[str, list[Mapping[str, float]]] = field(default_factory=dict)
    idle_cpu: float = 0.0  # CPU seconds per second while others were driven
    resident: int = 0  # bytes, at the end
    reason: str | None = None

    def figure(self, name: str, drive: str = "closed") -> Figure:
        return Figure.of([r[name] for r in self.rounds[drive]])


def of_round(measured: Round, *, may_refuse: bool = False) -> Mapping[str, float]:
    """Figures of one round. Raises RefusedError unless refusals are part of the test."""
    outcome = measured.outcome
    if outcome.refused and not (may_refuse and outcome.latencies):
        raise RefusedError(outcome)
    ordered, refused = outcome.ordered(), sum(outcome.refused.values())
    return {
        "answers": len(ordered),
        "cpu_s": measured.cpu,
        "cpu_us": measured.cpu / len(ordered) * 1e6,
        "per_cpu_second": len(ordered) / measured.cpu,
        "per_second": len(ordered) / outcome.seconds,
        "p50_ms": percentile(ordered, 50) * 1e3,
        "p99_ms": percentile(ordered, 99) * 1e3,
        "refused": refused / (refused + len(ordered)),
    }


def measured_of(results: Sequence[Result], drive: str) -> list[Result]:
    """Those with figures of this drive, cheapest first."""
    found = [r for r in results if not r.reason and r.rounds.get(drive)]
    return sorted(found, key=lambda r: r.figure("cpu_us", drive).median)


def ratio(result: Result, base: Result, drive: str) -> Figure:
    """CPU per request against another server's in the same round, which met the same neighbours."""
    pairs = zip(result.rounds[drive], base.rounds[drive], strict=False)
    return Figure.of([ours["cpu_us"] / theirs["cpu_us"] for ours, theirs in pairs])


def name(result: Result) -> str:
    """The peer and its version."""
    versions = [result.versions[package] for package in result.peer.packages[:1] if package in result.versions]
    return " ".join([result.peer.title, *versions])


def shown(results: Sequence[Result], drive: str = "closed", *, together: bool = True) -> str:
    """A Markdown table of one drive, cheapest first; ratios to Headway's JSON where all were up `together`."""
    found = measured_of(results, drive)
    base = next((r for r in found if together and r.peer.name == "headway"), None)
    header = ["server", "CPU µs/request", "ratio to Headway", "requests/s", "p50 ms", "p99 ms", "refused", "settings"]
    rows = [
        [
            name(r),
            r.figure("cpu_us", drive).text(1),
            ratio(r, base, drive).text(2) if base else "",
            r.figure("per_second", drive).text(),
            r.figure("p50_ms", drive).text(1),
            r.figure("p99_ms", drive).text(1),
            f"{r.figure('refused', drive).median:.1%}",
            settings_text(r.settings),
        ]
        for r in found
    ]
    return table(header, rows)


def standing(results: Sequence[Result]) -> str:
    """What the servers take while they stand by, and which versions they really import; then what did not run."""
    header = ["server", "idle CPU", "resident MB", "versions"]
    rows = [
        [
            r.peer.title,
            f"{r.idle_cpu:.1%}",
            f"{r.resident / 1e6:,.0f}",
            " ".join(f"{k} {v}" for k, v in r.versions.items()),
        ]
        for r in results
        if not r.reason
    ]
    failed = [
        f"{r.peer.title} ({settings_text(r.settings)}): not measured here: {r.reason}" for r in results if r.reason
    ]
    return "\n".join([table(header, rows), *failed])


def settings_text(settings: Settings) -> str:
    """In few words."""
    more = "".join(f", {k}={v}" for k, v in settings.items() if k not in ("max_batch", "max_wait"))
    if settings["max_batch"] == 1:
        return f"no batching{more}"
    return f"batch {settings['max_batch']}, wait {settings['max_wait'] * 1e3:g} ms{more}"


def as_json(results: Sequence[Result]) -> list[dict[str, Any]]:
    """Every round, with medians and ranges."""
    return [
        {
            "server": r.peer.name,
            "settings": dict(r.settings),
            "versions": r.versions,
            "reason": r.reason,
            "rounds": r.rounds,
            "figures": {
                drive: {k: asdict(r.figure(k, drive)) for k in rounds[0]} for drive, rounds in r.rounds.items()
            },
            "idle_cpu": r.idle_cpu,
            "resident_bytes": r.resident,
        }
        for r in results
    ]


def machine() -> str:
    """One line about where and when this runs."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    load = Path("/proc/loadavg").read_text().split()[0]
    when = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
    kernel, python = platform.release(), platform.python_version()
    return f"{when}; {len(names)} x {names[0]}; Linux {kernel}; Python {python}; load {load} before the run"
