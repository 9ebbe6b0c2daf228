"""Hot knobs of a pod that generates text: what of them it honours, and what it says of those that have no meaning for
it. Pure.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from headway_api.podconfig import Clamp, Knobs
from headway_api.units import format_duration, parse_duration, parse_size

from headway_runtime.batching.policy import Limits
from headway_runtime.knobs import (
    BATCH_FIELD,
    PREFIX_FIELD,
    STEP_FIELD,
    TARGET_FIELD,
    TIMEOUT_FIELD,
    WAIT_FIELD,
    Settings,
    at_most,
    clamp,
    largest_body,
    unused,
)

CACHE_FIELD = "spec.batching.cache.bytes"
DEFAULT_SEQUENCES = 64
_DEFAULT = Knobs()


@dataclass(frozen=True, slots=True)
class Bounds:
    """What the pod's memory lets a step hold at most: sequences, and tokens of all of them. `why`: in words."""

    sequences: int
    step_tokens: int
    why: str = "no more fit into this pod's memory"


def resolve(knobs: Knobs, bounds: Bounds) -> Settings:
    """What of the knobs a generator can honour. `limits.capacity` counts answers that wait, `limits.bytes` those of
    their prompts.
    """
    clamped: list[Clamp] = []
    sequences = _within(BATCH_FIELD, knobs.max_batch, DEFAULT_SEQUENCES, (bounds.sequences, bounds.why), clamped)
    steps = None if knobs.step_tokens == _DEFAULT.step_tokens else knobs.step_tokens
    tokens = _within(STEP_FIELD, steps, _DEFAULT.step_tokens, (bounds.step_tokens, bounds.why), clamped)
    timeout = at_most(TIMEOUT_FIELD, knobs.queue.timeout, clamped)
    request_bytes, request_text = largest_body(knobs, clamped)
    limits = Limits(sequences, 0.0, capacity=knobs.queue.capacity, bytes=parse_size(knobs.queue.bytes))
    clamped += [found for rule in _UNUSED if (found := rule(knobs)) is not None]
    effective: dict[str, Any] = {
        "maxBatch": sequences,
        "stepTokens": tokens,
        "prefixCache": knobs.prefix_cache,
        "queue": {"capacity": limits.capacity, "bytes": knobs.queue.bytes, "timeout": format_duration(timeout)},
        "nonFinite": knobs.non_finite.value,
        "requestBytes": request_text,
    }
    return Settings(
        limits,
        timeout,
        effective,
        tuple(clamped),
        request_bytes=request_bytes,
        non_finite=knobs.non_finite,
        step_tokens=tokens,
        prefix_cache=knobs.prefix_cache,
    )


def _within(field: str, asked: int | None, usual: int, most: tuple[int, str], clamped: list[Clamp]) -> int:
    """What is asked, or usual, as far as the memory goes; what was only usual is not said to be clamped."""
    bound, why = most
    if asked is None or asked <= bound:
        return min(usual, bound) if asked is None else asked
    clamped.append(clamp(field, str(asked), str(bound), why))
    return bound


def _wait(knobs: Knobs) -> Clamp | None:
    if parse_duration(knobs.max_wait) in (0.0, parse_duration(_DEFAULT.max_wait)):
        return None
    return unused(WAIT_FIELD, knobs.max_wait, "with Continuous nobody waits for company; remove it")


def _target(knobs: Knobs) -> Clamp | None:
    if knobs.latency_target is None:
        return None
    why = f"with Continuous, {STEP_FIELD} and {BATCH_FIELD} bound a step; remove it"
    return unused(TARGET_FIELD, knobs.latency_target, why)


def _cache(knobs: Knobs) -> Clamp | None:
    if parse_size(knobs.cache_bytes) == 0:
        return None
    why = f"answers that are generated are not kept, only what prompts begin with ({PREFIX_FIELD}); remove it"
    return unused(CACHE_FIELD, knobs.cache_bytes, why)


_UNUSED: tuple[Callable[[Knobs], Clamp | None], ...] = (_wait, _target, _cache)
