"""What a session found, as values and as JSON. Times are in seconds; keys of the JSON are camelCase, and none goes."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from headway_api.podconfig import Recommendation
from headway_api.types import Precision
from headway_api.units import format_duration

from headway_runtime.bench.advise import Advised, Setting
from headway_runtime.bench.costs import Costs
from headway_runtime.bench.samples import Samples
from headway_runtime.bench.statistics import Summary, percentile


@dataclass(frozen=True, slots=True)
class Measurement:
    """One load and what came of it. `rate`: None in a closed loop; `server_cpu`: seconds, None for a pod elsewhere."""

    label: str
    connections: int
    rate: float | None
    samples: Samples
    summary: Summary
    server_cpu: float | None

    @property
    def cpu_per_request(self) -> float | None:
        """Seconds of the pod's processors for each answer, good or not."""
        answered = len(self.samples.latencies) + sum(map(len, self.samples.refusals.values()))
        return None if self.server_cpu is None or not answered else self.server_cpu / answered

    @property
    def client_share(self) -> float:
        """Share of one processor that this client used: near 1, the client was measured, and not the server."""
        return self.samples.client_cpu / self.samples.seconds if self.samples.seconds else 0.0

    @property
    def client_lag(self) -> float:
        """Seconds by which 1 of 100 requests was sent late, though a connection was free: the client's own fault."""
        return percentile(sorted(self.samples.lags), 99) if self.samples.lags else 0.0

    def to_dict(self) -> dict[str, Any]:
        """JSON."""
        samples, summary = self.samples, self.summary
        return {
            "label": self.label,
            "connections": self.connections,
            "rate": self.rate,
            "seconds": round(samples.seconds, 3),
            "offered": samples.offered,
            "answered": summary.count,
            "throughput": round(samples.throughput, 3),
            "latency": {
                name: number(getattr(summary, attribute))
                for name, attribute in (
                    ("mean", "mean"),
                    ("p50", "p50"),
                    ("p90", "p90"),
                    ("p99", "p99"),
                    ("p99.9", "p999"),
                    ("max", "most"),
                )
            },
            "errors": errors(samples),
            "meanBatch": samples.mean_batch,
            "cpuPerRequest": number(self.cpu_per_request),
            "clientCpuShare": round(self.client_share, 3),
            "clientLag": round(self.client_lag, 6),
        }


@dataclass(frozen=True, slots=True)
class TargetRate:
    """The highest rate (requests/s) whose 99th percentile was within `target`; None when none was found."""

    target: float
    rate: float | None
    tried: tuple[tuple[float, float], ...]  # rate, 99th percentile


@dataclass(slots=True)
class Results:
    """All of a session."""

    model: str
    url: str
    sizes: Mapping[str, str]
    ranges: Mapping[str, tuple[int, int]]
    binary: bool
    machine: Mapping[str, Any]
    measurements: list[Measurement] = field(default_factory=list)
    at_target: TargetRate | None = None
    precision: Precision | None = None  # of the pod's large weights; None: unknown
    costs: Costs | None = None
    now: Setting | None = None
    advised: Advised | None = None
    doubt: str | None = None  # why the advice cannot be trusted
    pod_says: Recommendation | None = None
    verified: list[Measurement] = field(default_factory=list)  # with the advised knobs
    warnings: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """JSON."""
        found: dict[str, Any] = {
            "model": self.model,
            "url": self.url,
            "requests": {"sizes": dict(self.sizes), "ranges": dict(self.ranges), "binary": self.binary},
            "machine": dict(self.machine),
            "measurements": [each.to_dict() for each in self.measurements],
            "warnings": [*([self.doubt] if self.doubt else []), *self.warnings],
        }
        if self.precision is not None:
            found["precision"] = self.precision.value
        if self.at_target is not None:
            found["latencyTarget"] = {
                "target": self.at_target.target,
                "rate": self.at_target.rate,
                "tried": [{"rate": rate, "p99": number(p99)} for rate, p99 in self.at_target.tried],
            }
        if self.costs is not None:
            found["costs"] = [
                {
                    "sizes": dict(curve.sizes),
                    "fixed": curve.fixed,
                    "perRow": curve.per_row,
                    "error": curve.error,
                    "points": [{"rows": point.rows, "seconds": point.seconds} for point in curve.points],
                }
                for curve in self.costs.curves
            ]
        if self.pod_says is not None:
            found["podRecommendation"] = self.pod_says.to_dict()
        if self.advised is not None and self.now is not None:
            found["advice"] = {
                "reason": self.advised.reason.value,
                "now": _setting(self.now),
                "advised": _setting(self.advised.setting),
                "shapeBuckets": {name: list(sizes) for name, sizes in self.advised.buckets.items()},
                "why": list(self.advised.why),
                "verified": [each.to_dict() for each in self.verified],
            }
        return found


def errors(samples: Samples) -> dict[str, int]:
    """Requests without a good answer, by kind."""
    return {**{str(status): len(times) for status, times in sorted(samples.refusals.items())}, **samples.losses}


def _setting(setting: Setting) -> dict[str, Any]:
    return {"maxBatch": setting.max_batch, "maxWait": format_duration(setting.max_wait)}


def number(value: float | None) -> float | None:
    """JSON has no NaN and no infinity."""
    return None if value is None or not math.isfinite(value) else value
