"""For how many sequences there is room, of what length: what a pod reports."""

from collections.abc import Iterable

from headway_api.podconfig import GenerationReport

from headway_runtime.generation import sizing
from headway_runtime.generation.forward import Decoder
from headway_runtime.generation.lengths import RecentLengths, quantile
from headway_runtime.generation.scheduler import Scheduler
from headway_runtime.prepare.decoder import BLOCK_TOKENS


class Room:
    """Of one decoder."""

    def __init__(self, decoder: Decoder) -> None:
        self._context = decoder.facts.context
        self._cache_bytes = decoder.cache.bytes
        self._bytes_per_token = decoder.cache.bytes // (decoder.cache.blocks * BLOCK_TOKENS)
        self._lengths = RecentLengths()

    def ended(self, lengths: Iterable[int]) -> None:
        """Sequences of these lengths have ended."""
        for length in lengths:
            self._lengths.add(length)

    def report(self, scheduler: Scheduler) -> GenerationReport:
        """As things are now."""
        pool, longest = scheduler.pool, scheduler.longest
        lengths = self._lengths.latest()
        seen = quantile(lengths, 0.99) if lengths else None
        recommended = None
        if lengths:
            recommended = sizing.suggested_max_length(lengths, max_length=longest, context=self._context)
        return GenerationReport(
            block_tokens=BLOCK_TOKENS,
            blocks=pool.total,
            blocks_free=pool.available,
            bytes_per_token=self._bytes_per_token,
            cache_bytes=self._cache_bytes,
            max_length=longest,
            sequences=sizing.sequences_in(pool.total, longest),
            length_p99=seen,
            sequences_p99=None if seen is None else sizing.sequences_in(pool.total, seen),
            recommended_max_length=recommended,
        )
