"""What was observed of many requests. Filled while they run, read afterwards."""

from array import array
from collections import Counter
from dataclasses import dataclass, field

from headway_runtime.bench.statistics import Summary, summarise

_BATCH = b"\r\nx-headway-batch-size: "
_QUEUE = b"\r\nx-headway-queue-ms: "


def _doubles() -> "array[float]":
    return array("d")


@dataclass(slots=True)
class Samples:
    """Times in seconds. In an open loop a latency counts from when the request was meant to be sent."""

    seconds: float = 0.0  # how long requests were sent
    offered: int = 0  # requests that were meant to be sent in that time
    in_time: int = 0  # of those with a good answer, how many had it in that time
    latencies: "array[float]" = field(default_factory=_doubles)  # of answers with status 200
    refusals: "dict[int, array[float]]" = field(default_factory=dict)  # by other status
    losses: Counter[str] = field(default_factory=Counter)  # connection_lost, malformed, timeout, unanswered
    lags: "array[float]" = field(default_factory=_doubles)  # open loop: how late this client was, no lane being busy
    batch_rows: float = 0.0  # sum over answers of the rows that ran together
    queue_seconds: float = 0.0  # sum over answers of the time in line
    described: int = 0  # answers that said so
    client_cpu: float = 0.0  # seconds of processor that this client used

    def answered(self, status: int, head: bytes, latency: float) -> None:
        """An answer came."""
        if status == 200:
            self.latencies.append(latency)
            at = head.find(_BATCH)
            if at >= 0:
                self._describe(head, at)
        else:
            self.refusals.setdefault(status, _doubles()).append(latency)

    def _describe(self, head: bytes, at: int) -> None:
        start = at + len(_BATCH)
        self.batch_rows += int(head[start : head.index(b"\r", start)])
        queue = head.find(_QUEUE)
        if queue >= 0:
            start = queue + len(_QUEUE)
            self.queue_seconds += float(head[start : head.index(b"\r", start)]) / 1e3
        self.described += 1

    @property
    def errors(self) -> int:
        """Requests without a good answer."""
        return sum(map(len, self.refusals.values())) + self.losses.total()

    @property
    def throughput(self) -> float:
        """Good answers per second."""
        return self.in_time / self.seconds if self.seconds else 0.0

    @property
    def mean_batch(self) -> float | None:
        """Rows that ran together, as a request sees it; None when the server does not say."""
        return self.batch_rows / self.described if self.described else None

    def summary(self) -> Summary:
        """Percentiles of the good answers."""
        return summarise(self.latencies, lost=self.errors)
