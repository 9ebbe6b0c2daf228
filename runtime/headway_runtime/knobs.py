"""Hot knobs: read, validated, clamped to what the program can honour, watched.

`parse` and `resolve` are pure; `watch` polls the mounted file. A ConfigMap volume changes by swapping a symbolic link,
so the file's identity (inode, size, time) is what changes, and a read sees the old or the new text, never a mixture.
"""

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headway_api.podconfig import Clamp, Knobs, WireModel, knobs_hash
from headway_api.types import NonFinite
from headway_api.units import format_duration, parse_duration, parse_size
from pydantic import ValidationError

from headway_runtime.batching.costs import rows_within
from headway_runtime.batching.policy import Cost, Limits

POLL_SECONDS = 0.1
LONGEST = 30.0  # seconds: the most that maxWait and queue.timeout may be
WAIT_FIELD = "spec.batching.maxWait"
BATCH_FIELD = "spec.batching.maxBatch"
TIMEOUT_FIELD = "spec.batching.queue.timeout"
TARGET_FIELD = "spec.batching.latencyTarget"
LEAST_TARGET = 0.001  # seconds
STEP_FIELD = "spec.generation.stepTokens"
PREFIX_FIELD = "spec.generation.prefixCache"
BODY_FIELD = "spec.limits.requestBytes"
LARGEST_BODY = 1 << 30
NO_TEXT = "the program generates no text; remove it"
_DEFAULT = Knobs()


class KnobsError(ValueError):
    """The file is not a knobs file; the message says where and why."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Knobs in force: what the policy needs, how long a request may wait (seconds), and what could not be honoured.

    `latency_target`: seconds that one run may take; None: as long as it takes. `request_bytes`: of one request's body,
    after decompression. `cache_bytes`: of answers that are kept; 0: none. The last two rule where text is generated.
    """

    limits: Limits
    queue_timeout: float
    effective: dict[str, Any]
    clamped: tuple[Clamp, ...]
    latency_target: float | None = None
    request_bytes: int = 64 << 20
    cache_bytes: int = 0
    non_finite: NonFinite = NonFinite.ALLOW
    step_tokens: int = 0
    prefix_cache: bool = False


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a program can honour: `largest_batch` is its largest warmed batch, in rows, `not_batchable` says why that is
    1. `cost` is what a run takes (None: not measured), from `least` to `most` along the padded dimensions.
    """

    largest_batch: int
    not_batchable: str | None = None
    cost: Cost | None = None
    least: tuple[int, ...] = ()
    most: tuple[int, ...] = ()


def parse(text: str) -> Knobs:
    """Read a knobs file. Raises KnobsError."""
    try:
        knobs = Knobs.model_validate_json(text)
        parse_duration(knobs.max_wait, WAIT_FIELD)
        parse_duration(knobs.queue.timeout, TIMEOUT_FIELD)
        parse_size(knobs.queue.bytes, "spec.batching.queue.bytes")
        parse_size(knobs.cache_bytes, "spec.batching.cache.bytes")
        parse_size(knobs.request_bytes, BODY_FIELD)
        if knobs.latency_target is not None and parse_duration(knobs.latency_target, TARGET_FIELD) < LEAST_TARGET:
            raise KnobsError(f"{TARGET_FIELD}: {knobs.latency_target!r} is too short; at least 1ms")
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "the file"
        raise KnobsError(f"{where}: {first['msg']}") from None
    except ValueError as error:
        raise KnobsError(str(error)) from None
    return knobs


def unknown(text: str) -> list[str]:
    """Keys of a knobs file (`queue.capcity`) that this pod passes over: those of a newer operator, or misspelt ones."""
    return _unknown(json.loads(text), Knobs, "")


def _unknown(found: Mapping[str, Any], model: type[WireModel], prefix: str) -> list[str]:
    fields = {name: each for field, each in model.model_fields.items() for name in (field, each.alias or field)}
    keys = []
    for key, value in found.items():
        if key not in fields:
            keys.append(prefix + key)
        elif isinstance(value, dict) and isinstance(kind := fields[key].annotation, type):
            keys += _unknown(value, kind, f"{prefix}{key}.")
    return keys


def resolve(knobs: Knobs, bounds: Bounds) -> Settings:
    """What of the knobs a program can honour."""
    clamped: list[Clamp] = []
    target = None if knobs.latency_target is None else parse_duration(knobs.latency_target, TARGET_FIELD)
    max_batch = _max_batch(knobs.max_batch, target, bounds, clamped)
    max_wait = at_most(WAIT_FIELD, knobs.max_wait, clamped)
    timeout = at_most(TIMEOUT_FIELD, knobs.queue.timeout, clamped)
    limits = Limits(max_batch, max_wait, capacity=knobs.queue.capacity, bytes=parse_size(knobs.queue.bytes))
    request_bytes, request_text = largest_body(knobs, clamped)
    if knobs.step_tokens != _DEFAULT.step_tokens:
        clamped.append(unused(STEP_FIELD, str(knobs.step_tokens), NO_TEXT))
    if knobs.prefix_cache != _DEFAULT.prefix_cache:
        clamped.append(unused(PREFIX_FIELD, str(knobs.prefix_cache).lower(), NO_TEXT))
    effective: dict[str, Any] = {
        "maxBatch": max_batch,
        "maxWait": format_duration(max_wait),
        "queue": {
            "capacity": limits.capacity,
            "bytes": knobs.queue.bytes,
            "timeout": format_duration(timeout),
        },
        "nonFinite": knobs.non_finite.value,
        "requestBytes": request_text,
    }
    if target is not None:
        effective["latencyTarget"] = format_duration(target)
    if cache_bytes := parse_size(knobs.cache_bytes):
        effective["cache"] = {"bytes": knobs.cache_bytes}
    return Settings(
        limits,
        timeout,
        effective,
        tuple(clamped),
        latency_target=target,
        request_bytes=request_bytes,
        cache_bytes=cache_bytes,
        non_finite=knobs.non_finite,
    )


async def watch(path: Path, changed: Callable[[str, str], None], failed: Callable[[str], None]) -> None:
    """Call `changed(text, hash)` with the file as it is and after each change, `failed(message)` if it is unreadable.

    Runs until cancelled.
    """
    seen: object = ()
    while True:
        found = _identity(path)
        if found != seen:
            seen = found
            try:
                text = _read(path)
            except (OSError, UnicodeDecodeError) as error:
                failed(f"{path}: {error}")
            else:
                changed(text, knobs_hash(text))
        await asyncio.sleep(POLL_SECONDS)


def _read(path: Path) -> str:
    return path.read_bytes().decode()


def _identity(path: Path) -> tuple[int, ...] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _max_batch(asked: int | None, target: float | None, bounds: Bounds, clamped: list[Clamp]) -> int:
    """Rows of the largest run: no more than were warmed, nor than fit into the target at the smallest sizes. (At larger
    sizes fewer fit; there the cost keeps to the target, see `batching.target`.)
    """
    most, why = bounds.largest_batch, "it is the largest batch bucket"
    if bounds.not_batchable:
        why = f"the program runs one request at a time: {bounds.not_batchable}"
    if target is not None and bounds.cost is not None:
        if (alone := bounds.cost(1, bounds.most)) > target:
            message = f"one row of the largest sizes takes {format_duration(alone)} by itself"
            clamped.append(clamp(TARGET_FIELD, format_duration(target), format_duration(alone), message))
        fitting = rows_within(target, bounds.cost, bounds.least, most)
        if fitting < most:
            most, why = fitting, f"a run of more rows takes longer than {TARGET_FIELD}"
    if asked is None or asked <= most:
        return most if asked is None else asked
    clamped.append(clamp(BATCH_FIELD, str(asked), str(most), why))
    return most


def largest_body(knobs: Knobs, clamped: list[Clamp]) -> tuple[int, str]:
    """Bytes of one request's body, and as they are written."""
    asked = parse_size(knobs.request_bytes)
    if asked <= LARGEST_BODY:
        return asked, knobs.request_bytes
    clamped.append(clamp(BODY_FIELD, knobs.request_bytes, "1Gi", "no larger request is read"))
    return LARGEST_BODY, "1Gi"


def at_most(field: str, asked: str, clamped: list[Clamp]) -> float:
    """Seconds that a request may wait."""
    seconds = parse_duration(asked, field)
    if seconds > LONGEST:
        clamped.append(clamp(field, asked, format_duration(LONGEST), "it is the most a request may wait"))
        return LONGEST
    return seconds


def clamp(field: str, asked: str, effective: str, why: str) -> Clamp:
    """What is said of a knob that is not honoured as asked."""
    return Clamp(
        field=field, asked=asked, effective=effective, message=f"{field}: {asked} is {effective} in effect: {why}"
    )


def unused(field: str, asked: str, why: str) -> Clamp:
    """What is said of a knob that has no meaning for this kind of program."""
    return Clamp(field=field, asked=asked, effective="not used", message=f"{field}: {asked} is not used: {why}")
