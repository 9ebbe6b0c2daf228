"""Fetch an artifact to disk: streamed, hashed on the way, bounded, resumed after a broken connection, with progress
in the log.

What will not change by asking again (not found, not allowed, too large) is reported at once; everything else is tried
a few times.
"""

import hashlib
import re
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import obstore
from obstore import exceptions

from headway_runtime.prepare import log
from headway_runtime.prepare.errors import FetchError
from headway_runtime.prepare.store import Location, locate

MAX_BYTES = 256 << 30
ATTEMPTS = 5
FIRST_DELAY = 1.0
"""Seconds before the second attempt; doubled for each further one."""
CHUNK = 4 << 20
PROGRESS_SECONDS = 5.0

_QUERY = re.compile(r"\?\S+")
_REFUSED = re.compile(r"status code: 403\b|<Code>InvalidAccessKeyId</Code>")
_METADATA_SERVICE = "169.254.169.254"


@dataclass(frozen=True, slots=True)
class Fetched:
    """``digest`` is ``sha256:<hex>`` of the whole file, ``size`` its bytes."""

    digest: str
    size: int


@dataclass(slots=True)
class _Progress:
    """The hash and length of what is on disk so far, and when it was last logged."""

    sha: Any
    done: int = 0
    total: int = 0
    etag: str | None = None
    logged: float = 0.0


class _BrokenError(Exception):
    """The transfer ended early; worth another attempt."""


def fetch(
    uri: str,
    target: Path,
    *,
    credentials: Path,
    max_bytes: int = MAX_BYTES,
    attempts: int = ATTEMPTS,
    sleep: Callable[[float], None] = time.sleep,
    what: str = "artifact",
) -> Fetched:
    """Write the object at ``uri`` to ``target``. Messages call it ``what``. Raises FetchError."""
    location = locate(uri, credentials)
    log.event("fetch.start", uri=uri)  # only now: it is known to hold no password and no signature
    attempts = 1 if location.local else attempts
    progress = _Progress(hashlib.sha256())
    started = time.monotonic()
    with target.open("wb") as out:
        for attempt in range(1, attempts + 1):
            try:
                _transfer(location, out, progress, max_bytes, target, what)
                break
            except _BrokenError as e:
                if attempt == attempts:
                    raise FetchError(
                        "Unreachable", f"the {what} could not be fetched in {attempts} attempts: {e}"
                    ) from e
                delay = FIRST_DELAY * 2 ** (attempt - 1)
                log.event("fetch.retry", attempt=attempt, delay=delay, bytes=progress.done, cause=str(e))
                sleep(delay)
    seconds = round(time.monotonic() - started, 2)
    digest = f"sha256:{progress.sha.hexdigest()}"
    log.event("fetch.done", bytes=progress.done, seconds=seconds, digest=digest)
    return Fetched(digest, progress.done)


def _transfer(location: Location, out: BinaryIO, progress: _Progress, max_bytes: int, target: Path, what: str) -> None:
    """Fetch what is missing. Raises FetchError for good, _BrokenError for another attempt."""
    result = _get(location, progress, out)
    progress.total = result.meta["size"]
    progress.etag = result.meta.get("e_tag")
    if progress.total > max_bytes:
        raise FetchError("TooLarge", f"the {what} has {progress.total} bytes, at most {max_bytes} are allowed")
    free = shutil.disk_usage(target.parent).free + progress.done
    if 2 * progress.total > free:
        raise FetchError(
            "TooLarge",
            f"the {what} has {progress.total} bytes and needs twice that while it is prepared; the volume has {free}",
        )
    try:
        for chunk in result.stream(min_chunk_size=CHUNK):
            _write(out, chunk)
            progress.sha.update(chunk)
            progress.done += len(chunk)
            if progress.done > progress.total:
                raise FetchError("Unreachable", "the store sent more bytes than it announced")
            if time.monotonic() - progress.logged > PROGRESS_SECONDS:
                progress.logged = time.monotonic()
                log.event("fetch.progress", bytes=progress.done, total=progress.total)
    except (exceptions.BaseError, OSError) as e:
        raise _BrokenError(_brief(e)) from e
    if progress.done != progress.total:
        raise _BrokenError(f"{progress.done} of {progress.total} bytes came")


def _write(out: BinaryIO, chunk: Any) -> None:
    """A full disk is no broken transfer: what is on disk is then not what was hashed, and asking again helps nobody."""
    try:
        out.write(chunk)
    except OSError as e:
        raise FetchError("TooLarge", f"the volume of the model could not take the artifact: {e.strerror}") from e


def _get(location: Location, progress: _Progress, out: BinaryIO) -> Any:
    """Open the stream where the last attempt stopped; from the start when the store cannot do that, or the object
    changed.
    """
    if progress.done:
        options: dict[str, Any] = {"range": {"offset": progress.done}}
        if progress.etag:
            options["if_match"] = progress.etag
        try:
            result = obstore.get(location.store, location.key, options=options)
            if result.range[0] == progress.done:
                return result
        except (exceptions.NotSupportedError, exceptions.PreconditionError, exceptions.GenericError, ValueError):
            log.event("fetch.restart", bytes=progress.done)
        out.seek(0)
        out.truncate()
        progress.sha, progress.done = hashlib.sha256(), 0
    try:
        return obstore.get(location.store, location.key)
    except FileNotFoundError as e:
        raise FetchError(
            "NotFound", "there is no object at the URI; check the bucket, the key and the credentials"
        ) from e
    except (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError, PermissionError) as e:
        raise FetchError(
            "Forbidden", "the store refused access; check the Secret named in spec.artifact.credentials and its rights"
        ) from e
    except (exceptions.BaseError, OSError) as e:
        if _REFUSED.search(str(e)):
            raise FetchError(
                "Forbidden", "the store refused access; check the Secret named in spec.artifact.credentials"
            ) from e
        raise _BrokenError(_brief(e)) from e


def _brief(error: Exception) -> str:
    """First line of an error of the client, bounded. A URL in it may be one that a store redirected to: its query is a
    credential.
    """
    lines = str(error).strip().splitlines() or [type(error).__name__]
    text = _QUERY.sub("?…", lines[0])[:200]
    if _METADATA_SERVICE in text:
        text += " (no credentials were given, so the machine was asked for its own; see spec.artifact.credentials)"
    return text
