"""What the head of an inference request says about reading, running and answering it. Pure."""

from enum import Enum
from functools import lru_cache
from typing import NamedTuple

from headway_api.names import PRIORITY_HEADER, TIMEOUT_HEADER
from headway_api.units import parse_duration

from headway_runtime.batching.policy import Priority
from headway_runtime.errors import InvalidRequestError, UnsupportedEncodingError
from headway_runtime.protocols.http.asgi import Headers

BINARY_HEADER = "inference-header-content-length"
"""Of the binary tensor extension: bytes of the JSON that stands before the tensors."""

_TIMEOUT = TIMEOUT_HEADER.encode()
_PRIORITY = PRIORITY_HEADER.encode()
_BINARY = BINARY_HEADER.encode()
_READ = frozenset({b"content-length", b"content-encoding", b"accept-encoding", b"expect", _TIMEOUT, _PRIORITY, _BINARY})
_PRIORITIES = {priority.name.lower(): priority for priority in Priority}

_KNOWN = 256
"""Heads that are remembered, at most 64 KiB of each: clients say the same over and over, apart from what is not read
here (an `x-request-id`), and lengths of small bodies are soon all known.
"""


class Coding(Enum):
    """How a body is compressed, in both directions."""

    GZIP = b"gzip"
    DEFLATE = b"deflate"


_CODINGS = {b"gzip": Coding.GZIP, b"x-gzip": Coding.GZIP, b"deflate": Coding.DEFLATE}


class Head(NamedTuple):
    """`wait` in seconds; `length` and `json_length` in bytes; None: not said. `expects`: the client waits to be told to
    send its body.
    """

    wait: float | None = None
    length: int | None = None
    coding: Coding | None = None
    json_length: int | None = None
    priority: Priority = Priority.NORMAL
    accepts: Coding | None = None
    expects: bool = False


def read_head(headers: Headers) -> Head:
    """Names are in lower case. Raises InvalidRequestError, UnsupportedEncodingError."""
    return _head(tuple([header for header in headers if header[0] in _READ]))


@lru_cache(_KNOWN)
def _head(headers: tuple[tuple[bytes, bytes], ...]) -> Head:
    found = dict(headers)
    return Head(
        _wait(found.get(_TIMEOUT)),
        _number(found.get(b"content-length"), "content-length"),
        _coding(found.get(b"content-encoding")),
        _number(found.get(_BINARY), BINARY_HEADER),
        _priority(found.get(_PRIORITY)),
        accepted(found.get(b"accept-encoding", b"")),
        _expects(found.get(b"expect")),
    )


def refused_head(headers: Headers) -> Head:
    """Of a request that is answered with an error whatever else it says."""
    return Head(expects=any(name == b"expect" and _expects(value) for name, value in headers))


def accepted(value: bytes) -> Coding | None:
    """The compression that an `accept-encoding` allows and that is written here (RFC 9110, section 12.5.3)."""
    if not value:
        return None
    weights: dict[bytes, float] = {}
    for part in value.lower().split(b","):
        name, _, parameter = part.partition(b";")
        weights[name.strip()] = _weight(parameter.strip())
    others = weights.get(b"*", 0.0)
    best = max((Coding.GZIP, Coding.DEFLATE), key=lambda coding: weights.get(coding.value, others))
    return best if weights.get(best.value, others) > 0 else None


def _expects(value: bytes | None) -> bool:
    return value is not None and value.lower() == b"100-continue"


def _weight(parameter: bytes) -> float:
    if not parameter.startswith(b"q="):
        return 1.0
    try:
        return float(parameter[2:])
    except ValueError:
        return 0.0


def _wait(value: bytes | None) -> float | None:
    if value is None:
        return None
    try:
        return parse_duration(value.decode("latin-1"), f"header {TIMEOUT_HEADER}")
    except ValueError as error:
        raise InvalidRequestError(str(error)) from None


def _number(value: bytes | None, name: str) -> int | None:
    if value is None:
        return None
    if not value.isdigit() or len(value) > 18:
        raise InvalidRequestError(f"header {name}: {_shown(value)} is not a number of bytes")
    return int(value)


def _priority(value: bytes | None) -> Priority:
    if value is None:
        return Priority.NORMAL
    found = _PRIORITIES.get(value.decode("latin-1").strip().lower())
    if found is None:
        raise InvalidRequestError(f"header {PRIORITY_HEADER}: {_shown(value)} is not one of {', '.join(_PRIORITIES)}")
    return found


def _coding(value: bytes | None) -> Coding | None:
    if value is None or value.lower() in (b"identity", b""):
        return None
    found = _CODINGS.get(value.strip().lower())
    if found is None:
        raise UnsupportedEncodingError(
            f"content-encoding {_shown(value)} is not read here; send the body as it is, or with gzip or deflate"
        )
    return found


def _shown(value: bytes) -> str:
    return repr(value.decode("latin-1")[:40])
