"""Hot knobs: read, validated, clamped to what the program can honour, watched.

`parse` and `resolve` are pure; `watch` polls the mounted file. A ConfigMap volume changes by swapping a symbolic link,
so the file's identity (inode, size, time) is what changes, and a read sees the old or the new text, never a mixture.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headway_api.podconfig import Clamp, Knobs, knobs_hash
from headway_api.units import format_duration, parse_duration, parse_size
from pydantic import ValidationError

from headway_runtime.batching.policy import Limits

POLL_SECONDS = 0.1
LONGEST = 30.0  # seconds: the most that maxWait and queue.timeout may be
WAIT_FIELD = "spec.batching.maxWait"
BATCH_FIELD = "spec.batching.maxBatch"
TIMEOUT_FIELD = "spec.batching.queue.timeout"


class KnobsError(ValueError):
    """The file is not a knobs file; the message says where and why."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Knobs in force: what the policy needs, how long a request may wait (seconds), and what could not be honoured."""

    limits: Limits
    queue_timeout: float
    effective: dict[str, Any]
    clamped: tuple[Clamp, ...]


def parse(text: str) -> Knobs:
    """Read a knobs file. Raises KnobsError."""
    try:
        knobs = Knobs.model_validate_json(text)
        parse_duration(knobs.max_wait, WAIT_FIELD)
        parse_duration(knobs.queue.timeout, TIMEOUT_FIELD)
        parse_size(knobs.queue.bytes, "spec.batching.queue.bytes")
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "the file"
        raise KnobsError(f"{where}: {first['msg']}") from None
    except ValueError as error:
        raise KnobsError(str(error)) from None
    return knobs


def resolve(knobs: Knobs, largest_batch: int, *, not_batchable: str | None = None) -> Settings:
    """What of the knobs this program can honour; `largest_batch` is its largest warmed batch, in rows."""
    clamped: list[Clamp] = []
    max_batch = largest_batch if knobs.max_batch is None else knobs.max_batch
    if max_batch > largest_batch:
        why = (
            f"the program runs one request at a time: {not_batchable}"
            if not_batchable
            else "it is the largest batch bucket"
        )
        clamped.append(_clamp(BATCH_FIELD, str(max_batch), str(largest_batch), why))
        max_batch = largest_batch
    max_wait = _at_most(WAIT_FIELD, knobs.max_wait, clamped)
    timeout = _at_most(TIMEOUT_FIELD, knobs.queue.timeout, clamped)
    limits = Limits(max_batch, max_wait, capacity=knobs.queue.capacity, bytes=parse_size(knobs.queue.bytes))
    effective = {
        "maxBatch": max_batch,
        "maxWait": format_duration(max_wait),
        "queue": {
            "capacity": limits.capacity,
            "bytes": knobs.queue.bytes,
            "timeout": format_duration(timeout),
        },
    }
    return Settings(limits, timeout, effective, tuple(clamped))


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


def _at_most(field: str, asked: str, clamped: list[Clamp]) -> float:
    seconds = parse_duration(asked, field)
    if seconds > LONGEST:
        clamped.append(_clamp(field, asked, format_duration(LONGEST), "it is the most a request may wait"))
        return LONGEST
    return seconds


def _clamp(field: str, asked: str, effective: str, why: str) -> Clamp:
    return Clamp(
        field=field, asked=asked, effective=effective, message=f"{field}: {asked} is {effective} in effect: {why}"
    )
