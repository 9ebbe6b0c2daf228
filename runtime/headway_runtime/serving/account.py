"""What every request counts as, whatever it asks for: in flight, answered, refused, or left by its client."""

import time

from headway_runtime.errors import RequestError
from headway_runtime.pod import Pod


class Account:
    """On the event loop."""

    def __init__(self, pod: Pod) -> None:
        self._pod = pod

    def begin(self) -> float:
        """A request's first byte was seen: it counts as in flight until `end`. Returns time.monotonic()."""
        now = time.monotonic()
        self._pod.in_flight += 1
        self._pod.arrivals.append(now)
        return now

    def end(self, began: float, status: int | None, refused: RequestError | str | None = None) -> None:
        """It was answered with this HTTP status (of gRPC: the corresponding one); None: its client has gone. A stream
        that began well and failed counts as what ended it.
        """
        pod, metrics = self._pod, self._pod.metrics
        pod.in_flight -= 1
        if refused is not None:
            pod.refused(refused if isinstance(refused, str) else refused.kind)
        if status is None:
            metrics.left()
            return
        metrics.answered(status, time.monotonic() - began)
        pod.requests += 1
        pod.failures += status in (500, 504)

    def allowed(self) -> float:
        """Seconds that a request may wait, from its first byte. Raises NotServingError."""
        return self._pod.serving()[1].queue_timeout
