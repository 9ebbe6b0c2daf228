"""Prometheus metrics of a pod. One registry for each process; names start with `headway_`.

The methods are called on the event loop, once for each request or run; what has no method is set where it is known.
"""

from collections.abc import Iterable, Mapping, Sequence

import torch
from prometheus_client import CollectorRegistry, Counter, Gauge, Info, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from headway_runtime.batching.policy import Priority
from headway_runtime.batching.work import RunRecord
from headway_runtime.drift import DriftCollector
from headway_runtime.generation.delivery import StepRecord
from headway_runtime.generation_metrics import GenerationMetrics
from headway_runtime.histogram import Histogram, Tally
from headway_runtime.warmup import describe

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SECONDS: Sequence[float] = tuple(
    float(f"{base}e{exponent}") for exponent in range(-4, 2) for base in (1.0, 1.5, 2.0, 3.0, 5.0, 7.0)
)
_ROWS: Sequence[float] = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 256, 512, 1024)


class Metrics:
    """Every metric, as attributes of one object."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self.requests = Tally("headway_requests", "Inference requests answered.", label="code", registry=registry)
        self.latency = Histogram(
            "headway_request_seconds",
            "From the request's head to its answer, of answers with code 200.",
            bounds=_SECONDS,
            registry=registry,
        )
        self.queue_time = Histogram(
            "headway_queue_seconds",
            "From admission to the start of the run.",
            label="priority",
            bounds=_SECONDS,
            registry=registry,
        )
        self.rejections = Tally(
            "headway_rejections", "Requests answered with an error, by reason.", label="reason", registry=registry
        )
        self.cancelled = Counter(
            "headway_cancelled", "Requests whose client left before the answer.", registry=registry
        )
        self.waiting = Gauge("headway_queue_rows", "Rows that wait.", registry=registry)
        self.in_flight = Gauge("headway_requests_in_flight", "Requests being answered.", registry=registry)
        self.step_time = Histogram(
            "headway_step_seconds",
            "One turn of a step around the program: texts or images of the requests that came together; one run of"
            " another program of the artifact.",
            label="step",
            bounds=_SECONDS,
            registry=registry,
        )
        self._add_runs()
        self._add_cache()
        self._add_life()
        registry.register(_GpuMemory())
        self.drift = DriftCollector()
        registry.register(self.drift)
        self.generation: GenerationMetrics | None = None
        self._latency = self.latency.series("")
        self._by_priority = {level: self.queue_time.series(level.name.lower()) for level in Priority}

    def _add_runs(self) -> None:
        registry = self.registry
        self.run_time = Histogram("headway_run_seconds", "One run of the program.", bounds=_SECONDS, registry=registry)
        self.busy = Counter("headway_busy_seconds", "Time in runs, of all instances together.", registry=registry)
        self.instances = Gauge("headway_instances", "Runs that this pod has at a time.", registry=registry)
        self.batch_rows = Histogram("headway_batch_rows", "Rows in one run.", bounds=_ROWS, registry=registry)
        self.batch_requests = Counter("headway_run_requests", "Requests that shared the runs.", registry=registry)
        self.bucket_runs = Counter(
            "headway_bucket_runs", "Runs by the smallest bucket that holds them.", ["bucket"], registry=registry
        )
        self.cells = Counter(
            "headway_cells",
            "Positions (rows times padded sizes) that were computed: of requests (real), or added to them (padding).",
            ["kind"],
            registry=registry,
        )
        self.retries = Counter(
            "headway_retries", "Runs that failed and were repeated in parts.", ["reason"], registry=registry
        )
        self.non_finite = Counter(
            "headway_non_finite", "Requests whose answer held NaN or infinity.", registry=registry
        )
        self._real, self._padding = self.cells.labels("real"), self.cells.labels("padding")
        self._failed, self._no_memory = self.retries.labels("failed"), self.retries.labels("out_of_memory")

    def _add_cache(self) -> None:
        registry = self.registry
        self.cache_requests = Counter(
            "headway_cache_requests",
            "Requests by what the response cache did: hit, follow (waited for an equal one), miss.",
            ["outcome"],
            registry=registry,
        )
        self._by_outcome = {name: self.cache_requests.labels(name) for name in ("hit", "follow", "miss")}
        self.cache_evictions = Counter("headway_cache_evictions", "Answers that made room.", registry=registry)
        self.cache_bytes = Gauge("headway_cache_bytes", "Size of the answers that are kept.", registry=registry)
        self.cache_entries = Gauge("headway_cache_entries", "Answers that are kept.", registry=registry)

    def _add_life(self) -> None:
        registry = self.registry
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

    def answered(self, code: int, seconds: float) -> None:
        """A request was answered with this HTTP status (gRPC: the corresponding one), `seconds` after its head."""
        self.requests.counts[code] += 1
        if code == 200:
            self._latency.observe(seconds)

    def refused(self, reason: str) -> None:
        """A request got an error; `reason` is its kind, a word."""
        self.rejections.counts[reason] += 1

    def left(self) -> None:
        """A client went away before its answer."""
        self.cancelled.inc()

    def queued(self, priority: Priority, seconds: float) -> None:
        """A request waited so long for its run."""
        self._by_priority[priority].observe(seconds)

    def stepped(self, step: str, seconds: float) -> None:
        """A turn of a step ended: `text`, `image`, `preprocess` or `postprocess`."""
        self.step_time.series(step).observe(seconds)

    def warmed(self, sizes: Mapping[str, int], seconds: float) -> None:
        """A bucket was run while warming."""
        self.bucket_seconds.labels(describe(sizes)).set(seconds)

    def ran(self, record: RunRecord, bucket: Mapping[str, int]) -> None:
        """The program was run; `bucket` is the smallest that holds the run."""
        self.bucket_runs.labels(describe(bucket)).inc()
        self.batch_rows.observe(record.rows)
        self.batch_requests.inc(record.requests)
        self.run_time.observe(record.seconds)
        self.busy.inc(record.seconds)
        self._real.inc(record.real_cells)
        self._padding.inc(record.run_cells - record.real_cells)
        if record.retried:
            lacking = min(record.out_of_memory, record.retried)
            self._no_memory.inc(lacking)
            self._failed.inc(record.retried - lacking)
        if record.non_finite:
            self.non_finite.inc(record.non_finite)

    def generates(self, blocks: int) -> None:
        """It generates text, with so many blocks for keys and values."""
        self.generation = GenerationMetrics(self.registry, blocks=blocks)

    def generated(self, record: StepRecord) -> None:
        """One step of generation was run."""
        self.run_time.observe(record.seconds)
        self.busy.inc(record.seconds)
        self.batch_rows.observe(record.sequences)
        self.batch_requests.inc(record.sequences)
        for begun in record.begun:
            self._by_priority[begun.priority].observe(begun.waited)
        if record.retried:
            self._failed.inc(record.retried)
        if record.non_finite:
            self.non_finite.inc(record.non_finite)
        if self.generation is not None:
            self.generation.ran(record)

    def cached(self, outcome: str) -> None:
        """What the response cache did for a request: `hit`, `follow` or `miss`."""
        self._by_outcome[outcome].inc()

    def cache_holds(self, *, size: int, entries: int, evicted: int) -> None:
        """The response cache has so many bytes and answers now; `evicted` of them just made room."""
        self.cache_bytes.set(size)
        self.cache_entries.set(entries)
        self.cache_evictions.inc(evicted)

    def render(self) -> bytes:
        """The text exposition."""
        return generate_latest(self.registry)


class _GpuMemory(Collector):
    """Memory of this process's GPU, read when asked for; no samples without a GPU."""

    def collect(self) -> Iterable[GaugeMetricFamily]:
        family = GaugeMetricFamily(
            "headway_gpu_memory_bytes",
            "GPU memory: allocated (tensors), reserved (by this process), free and total (of the GPU).",
            labels=["kind"],
        )
        if torch.cuda.is_available() and torch.cuda.is_initialized():
            free, total = torch.cuda.mem_get_info()
            for kind, value in (
                ("allocated", torch.cuda.memory_allocated()),
                ("reserved", torch.cuda.memory_reserved()),
                ("free", free),
                ("total", total),
            ):
                family.add_metric([kind], value)
        yield family
