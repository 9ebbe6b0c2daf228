"""The operator's own metrics, in a registry of their own."""

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)

disable_created_metrics()  # type: ignore[no-untyped-call]


class Metrics:
    """Counters, gauges and histograms of one operator process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self.passes = Counter(
            "headway_passes", "Passes by reconciler and outcome.", ["reconciler", "outcome"], registry=self.registry
        )
        self.pass_seconds = Histogram(
            "headway_pass_seconds",
            "Duration of a pass.",
            ["reconciler"],
            buckets=(0.001, 0.005, 0.02, 0.1, 0.5, 2, 10, 60),
            registry=self.registry,
        )
        self.queue_depth = Gauge("headway_queue_depth", "Keys that wait for a worker.", registry=self.registry)
        self.queue_age = Gauge(
            "headway_queue_oldest_seconds", "How long the oldest due key has waited.", registry=self.registry
        )
        self.api_requests = Counter(
            "headway_api_requests",
            "Requests to the API server; the verbs create, patch and delete are writes. Code 0: no answer.",
            ["resource", "verb", "code"],
            registry=self.registry,
        )
        self.watch_events = Counter(
            "headway_watch_events", "Objects seen by the watches.", ["resource", "type"], registry=self.registry
        )
        self.reports_read = Counter(
            "headway_reports_read", "Reports read from pods.", ["outcome"], registry=self.registry
        )
        self.events = Counter("headway_events", "Events for users, by fate.", ["outcome"], registry=self.registry)
        self.resync_time = Gauge(
            "headway_last_resync_timestamp_seconds", "When the store was last compared.", registry=self.registry
        )

    def api_request(self, resource: str, verb: str, code: int) -> None:
        """Count one request to the API server."""
        self.api_requests.labels(resource, verb, str(code)).inc()

    def text(self) -> bytes:
        """The metrics in Prometheus' text format."""
        return generate_latest(self.registry)
