"""Prometheus metrics of a pod. One registry for each process; names start with `headway_`."""

from collections.abc import Mapping, Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, generate_latest

from headway_runtime.warmup import describe

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SECONDS: Sequence[float] = tuple(
    base * 10.0**exponent for exponent in range(-4, 2) for base in (1.0, 1.5, 2.0, 3.0, 5.0, 7.0)
)
_ROWS: Sequence[float] = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 256, 512, 1024)


class Metrics:
    """Every metric, as attributes of one object."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self.requests = Counter("headway_requests", "Inference requests answered.", ["code"], registry=registry)
        self.latency = Histogram(
            "headway_request_seconds",
            "From the request's head to its answer, of answers with code 200.",
            buckets=_SECONDS,
            registry=registry,
        )
        self.queue_time = Histogram(
            "headway_queue_seconds",
            "From admission to the start of the run.",
            buckets=_SECONDS,
            registry=registry,
        )
        self.run_time = Histogram("headway_run_seconds", "One run of the program.", buckets=_SECONDS, registry=registry)
        self.batch_rows = Histogram("headway_batch_rows", "Rows in one run.", buckets=_ROWS, registry=registry)
        self.rejections = Counter(
            "headway_rejections", "Requests answered with an error, by reason.", ["reason"], registry=registry
        )
        self.bucket_runs = Counter(
            "headway_bucket_runs", "Runs by the smallest bucket that holds them.", ["bucket"], registry=registry
        )
        self.waiting = Gauge("headway_queue_rows", "Rows that wait.", registry=registry)
        self.in_flight = Gauge("headway_requests_in_flight", "Requests being answered.", registry=registry)
        self.load_seconds = Gauge("headway_load_seconds", "Time to load the program.", registry=registry)
        self.warm_seconds = Gauge("headway_warm_seconds", "Time to warm all buckets.", registry=registry)
        self.bucket_seconds = Gauge(
            "headway_bucket_seconds", "One run of a bucket, measured while warming.", ["bucket"], registry=registry
        )
        self.parity_agrees = Gauge(
            "headway_parity_agrees",
            "0 when this pod's answers differ from the artifact's golden ones, and it serves all the same.",
            registry=registry,
        )
        self.parity_agrees.set(1)
        self.sandbox_complete = Gauge(
            "headway_sandbox_complete",
            "0 when a part of the sandbox is missing here, and the pod serves all the same.",
            registry=registry,
        )
        self.knobs = Info("headway_knobs", "Hash of the knobs file in force.", registry=registry)
        self.revision = Info("headway_revision", "What this pod serves.", registry=registry)

    def warmed(self, sizes: Mapping[str, int], seconds: float) -> None:
        """A bucket was run while warming."""
        self.bucket_seconds.labels(describe(sizes)).set(seconds)

    def ran(self, bucket: Mapping[str, int], rows: int, seconds: float) -> None:
        """The program was run."""
        self.bucket_runs.labels(describe(bucket)).inc()
        self.batch_rows.observe(rows)
        self.run_time.observe(seconds)

    def render(self) -> bytes:
        """The text exposition."""
        return generate_latest(self.registry)
