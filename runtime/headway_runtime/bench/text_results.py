"""What a session with a text model found, as values and as JSON. Times are in seconds; keys are camelCase."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from headway_api.podconfig import GenerationReport
from headway_api.types import Precision

from headway_runtime.bench.results import number
from headway_runtime.bench.statistics import Summary, summarise
from headway_runtime.bench.streams import Streams

REJECTED = (429, 503)


@dataclass(frozen=True, slots=True)
class TextMeasurement:
    """One number of clients, and what came. `server_cpu`: seconds, None for a pod elsewhere.

    `first`: from the request to its first piece; `between`: two pieces of an answer after each other; `whole`: whole
    answers. Pieces are tokens, but for those that have no text of their own, and those of speculation.
    """

    connections: int
    streams: Streams
    first: Summary
    between: Summary
    whole: Summary
    server_cpu: float | None

    @staticmethod
    def of(connections: int, streams: Streams, server_cpu: float | None) -> "TextMeasurement":
        """Summarise what came."""
        good = [answer for answer in streams.answers if answer.good]
        return TextMeasurement(
            connections,
            streams,
            summarise([answer.first - answer.began for answer in good]),
            summarise([later - earlier for answer in good for earlier, later in pairwise(answer.pieces)]),
            summarise([answer.ended - answer.began for answer in good]),
            server_cpu,
        )

    @property
    def label(self) -> str:
        """For people."""
        return f"clients, {self.connections}"

    @property
    def tokens(self) -> int:
        """Of all whole answers."""
        return sum(answer.tokens for answer in self.streams.answers if answer.good)

    @property
    def prompt_tokens(self) -> int:
        """Of their prompts."""
        return sum(answer.prompt_tokens for answer in self.streams.answers if answer.good)

    @property
    def answers_per_second(self) -> float:
        """While requests were sent: of an answer that ended later, the part that came before."""
        return sum(share for share, _ in self._came()) / self.streams.seconds

    @property
    def tokens_per_second(self) -> float:
        """The same of their tokens."""
        return sum(share * tokens for share, tokens in self._came()) / self.streams.seconds

    def _came(self) -> list[tuple[float, int]]:
        streams = self.streams
        return [(answer.share(streams.end), answer.tokens) for answer in streams.answers if answer.good]

    @property
    def cpu_per_token(self) -> float | None:
        """Seconds of the pod's processors for each token of an answer, its prompt's included."""
        return None if self.server_cpu is None or not self.tokens else self.server_cpu / self.tokens

    @property
    def client_share(self) -> float:
        """Share of one processor that this client used."""
        return self.streams.client_cpu / self.streams.client_seconds if self.streams.client_seconds else 0.0

    @property
    def rejected(self) -> int:
        """Requests that the pod turned away."""
        return sum(answer.status in REJECTED for answer in self.streams.answers)

    @property
    def errors(self) -> dict[str, int]:
        """Requests without a whole answer, by status or by how they were lost."""
        bad = Counter(answer.lost or str(answer.status) for answer in self.streams.answers if not answer.good)
        return dict(
            sorted({**bad, **({"unanswered": self.streams.unanswered} if self.streams.unanswered else {})}.items())
        )

    def to_dict(self) -> dict[str, Any]:
        """JSON."""
        return {
            "label": self.label,
            "connections": self.connections,
            "seconds": round(self.streams.seconds, 3),
            "offered": self.streams.offered,
            "answered": self.whole.count,
            "throughput": round(self.answers_per_second, 3),
            "tokens": self.tokens,
            "promptTokens": self.prompt_tokens,
            "tokensPerSecond": round(self.tokens_per_second, 3),
            "firstToken": _times(self.first),
            "betweenTokens": _times(self.between),
            "latency": _times(self.whole),
            "rejected": self.rejected,
            "errors": self.errors,
            "cpuPerToken": number(self.cpu_per_token),
            "clientCpuShare": round(self.client_share, 3),
        }


@dataclass(slots=True)
class TextResults:
    """All of a session."""

    model: str
    url: str
    sizes: Mapping[str, str]
    machine: Mapping[str, Any]
    room: GenerationReport | None  # None: the pod's report was not reached
    precision: Precision | None = None
    measurements: list[TextMeasurement] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """JSON."""
        found: dict[str, Any] = {
            "model": self.model,
            "url": self.url,
            "task": "generate",
            "requests": {"sizes": dict(self.sizes)},
            "machine": dict(self.machine),
            "measurements": [each.to_dict() for each in self.measurements],
            "warnings": list(self.warnings),
        }
        if self.room is not None:
            found["room"] = self.room.to_dict()
        if self.precision is not None:
            found["precision"] = self.precision.value
        return found


def _times(summary: Summary) -> dict[str, float | None]:
    names = (("mean", "mean"), ("p50", "p50"), ("p90", "p90"), ("p99", "p99"), ("max", "most"))
    return {name: number(getattr(summary, attribute)) for name, attribute in names}
