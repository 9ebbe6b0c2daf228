"""Prometheus metrics that only a pod has that generates text. Names as everywhere here; meanings are vLLM's, so that
dashboards can be carried over.

The methods are called on the event loop: `ran` once for each step, the others once for each piece or answer.
"""

from collections.abc import Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge

from headway_runtime.generation.delivery import StepRecord
from headway_runtime.histogram import Histogram

_SECONDS: Sequence[float] = tuple(
    float(f"{base}e{exponent}") for exponent in range(-3, 2) for base in (1.0, 1.5, 2.0, 3.0, 5.0, 7.0)
)
_TOKENS: Sequence[float] = tuple(float(2**exponent) for exponent in range(18))


class GenerationMetrics:
    """Every one of them, as attributes of one object."""

    def __init__(self, registry: CollectorRegistry, *, blocks: int) -> None:
        """`blocks`: of the cache that sequences can have."""
        self.first_token = Histogram(
            "headway_time_to_first_token_seconds",
            "From a request's admission to the first token of its answer.",
            bounds=_SECONDS,
            registry=registry,
        )
        self.per_token = Histogram(
            "headway_time_per_output_token_seconds",
            "Of each answer that ended: mean time of a token after the first.",
            bounds=_SECONDS,
            registry=registry,
        )
        self.between_tokens = Histogram(
            "headway_inter_token_seconds",
            "Between two pieces of an answer, as its stream got them.",
            bounds=_SECONDS,
            registry=registry,
        )
        self.step_tokens = Histogram(
            "headway_step_tokens", "Tokens in one run of the program.", bounds=_TOKENS, registry=registry
        )
        self.lengths = Histogram(
            "headway_sequence_tokens",
            "Tokens of each sequence that ended, prompt and answer.",
            bounds=_TOKENS,
            registry=registry,
        )
        self.prompt_tokens = Counter("headway_prompt_tokens", "Tokens of prompts that were begun.", registry=registry)
        self.generation_tokens = Counter("headway_generation_tokens", "Tokens of answers.", registry=registry)
        self.running = Gauge("headway_sequences_running", "Sequences that run now.", registry=registry)
        self.blocks_used = Gauge(
            "headway_kv_blocks_used", "Blocks of the cache that sequences hold now.", registry=registry
        )
        self.blocks = Gauge("headway_kv_blocks", "Blocks of the cache that sequences can have.", registry=registry)
        self.blocks.set(blocks)
        self.prefix = Counter(
            "headway_prefix_cache_tokens",
            "Tokens of prompts: found in the cache (hit), or computed (miss).",
            ["kind"],
            registry=registry,
        )
        self._hit, self._miss = self.prefix.labels("hit"), self.prefix.labels("miss")
        self.preemptions = Counter(
            "headway_preemptions", "Sequences that gave up their blocks and began again.", registry=registry
        )
        self.drafted = Counter("headway_drafted_tokens", "Tokens that speculation proposed.", registry=registry)
        self.accepted = Counter(
            "headway_accepted_tokens", "Of those, the ones that the program would have chosen.", registry=registry
        )
        self.answers = Counter(
            "headway_answers",
            "Answers by how they ended: stop, length, error, cancelled.",
            ["reason"],
            registry=registry,
        )

    def ran(self, record: StepRecord) -> None:
        """The program was run."""
        self.step_tokens.observe(record.tokens)
        self.running.set(record.running)
        self.blocks_used.set(record.blocks_used)
        self.generation_tokens.inc(record.made)
        if record.prompted:
            self.prompt_tokens.inc(record.prompted)
            self._hit.inc(record.cached)
            self._miss.inc(record.prompted - record.cached)
        if record.preempted:
            self.preemptions.inc(record.preempted)
        if record.drafted:
            self.drafted.inc(record.drafted)
            self.accepted.inc(record.accepted)
        for seconds in record.first_tokens:
            self.first_token.observe(seconds)
        for seconds in record.token_seconds:
            self.per_token.observe(seconds)
        for length in record.lengths:
            self.lengths.observe(length)

    def ended(self, reason: str, answers: int = 1) -> None:
        """Answers came to their end: `stop`, `length`, `error` or `cancelled`."""
        self.answers.labels(reason).inc(answers)
