"""What gRPC adds to HTTP/2: message frames, statuses, timeouts, compression, metadata. Pure: no socket, no clock.

Source: https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md
"""

import re
import zlib
from enum import IntEnum

PREFIX = 5  # bytes before a message: whether it is compressed, and its length
ENCODINGS = b"identity, deflate, gzip"  # what is read
MAX_MESSAGE_TEXT = 2000  # characters of an error: clients bound a call's metadata, often at 8 KiB

_WBITS = {b"gzip": 31, b"deflate": 15}
_TIMEOUT = re.compile(rb"([0-9]{1,8})([HMSmun])")
_UNITS = {b"H": 3600.0, b"M": 60.0, b"S": 1.0, b"m": 1e-3, b"u": 1e-6, b"n": 1e-9}
_PLAIN = frozenset(range(0x20, 0x7F)) - {ord("%")}
_FAST = 1  # zlib's level: an answer must not wait for its last percent


class Status(IntEnum):
    """The status codes that are answered here, by gRPC's names."""

    OK = 0
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    RESOURCE_EXHAUSTED = 8
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14


_BY_HTTP = {
    400: Status.INVALID_ARGUMENT,
    404: Status.NOT_FOUND,
    413: Status.RESOURCE_EXHAUSTED,
    415: Status.UNIMPLEMENTED,
    429: Status.RESOURCE_EXHAUSTED,
    501: Status.UNIMPLEMENTED,
    503: Status.UNAVAILABLE,
    504: Status.DEADLINE_EXCEEDED,
}


class WireError(Exception):
    """A call that is not gRPC as it is read here; it is answered with `status`."""

    def __init__(self, status: Status, message: str) -> None:
        super().__init__(message)
        self.status = status


def status_of(http: int) -> Status:
    """The status that corresponds to an HTTP status of an error."""
    return _BY_HTTP.get(http, Status.INTERNAL)


def seconds(timeout: bytes) -> float:
    """The value of a `grpc-timeout` header, in seconds. Raises WireError."""
    found = _TIMEOUT.fullmatch(timeout)
    if found is None:
        raise WireError(Status.INVALID_ARGUMENT, f"grpc-timeout {_shown(timeout)}: at most 8 digits and one of HMSmun")
    return int(found[1]) * _UNITS[found[2]]


def escaped(message: str) -> bytes:
    """The value of a `grpc-message` header: UTF-8, percent-encoded, cut to what clients take."""
    raw = message[:MAX_MESSAGE_TEXT].encode(errors="replace")
    if _PLAIN.issuperset(raw):
        return raw
    return b"".join(b"%c" % byte if byte in _PLAIN else b"%%%02X" % byte for byte in raw)


def framed(message: bytes, encoding: bytes | None) -> bytes:
    """A message behind its prefix, compressed when there is an encoding."""
    if encoding is None:
        return len(message).to_bytes(PREFIX, "big") + message
    packer = zlib.compressobj(_FAST, wbits=_WBITS[encoding])
    packed = packer.compress(message) + packer.flush()
    return b"\1" + len(packed).to_bytes(PREFIX - 1, "big") + packed


def encoding(header: bytes | None) -> bytes | None:
    """What compresses the messages of a call by its `grpc-encoding`; None for nothing. Raises WireError."""
    if header is None or header == b"identity":
        return None
    if header not in _WBITS:
        raise WireError(Status.UNIMPLEMENTED, f"grpc-encoding {_shown(header)} is not read; {ENCODINGS.decode()} are")
    return header


def length(prefix: bytes | bytearray, limit: int) -> int:
    """Bytes of the message behind a prefix. Raises WireError when it is longer than `limit`."""
    if prefix[0] > 1:
        raise WireError(Status.INVALID_ARGUMENT, f"a message begins with byte {prefix[0]}; 0 and 1 are flags")
    size = int.from_bytes(prefix[1:PREFIX], "big")
    if size > limit:
        raise WireError(Status.RESOURCE_EXHAUSTED, too_long(size, limit))
    return size


def unpacked(message: bytes | memoryview, encoding: bytes | None, limit: int) -> bytes:
    """A compressed message as it was. Raises WireError when it is none, or longer than `limit` bytes."""
    if encoding is None:
        raise WireError(Status.INVALID_ARGUMENT, "a message is marked as compressed, but there is no grpc-encoding")
    unpacker = zlib.decompressobj(wbits=_WBITS[encoding])
    try:
        whole = unpacker.decompress(message, limit + 1)
    except zlib.error as error:
        raise WireError(Status.INVALID_ARGUMENT, f"a message is not {encoding.decode()}: {error}") from None
    if len(whole) > limit:
        raise WireError(Status.RESOURCE_EXHAUSTED, too_long(None, limit))
    if not unpacker.eof:
        raise WireError(Status.INVALID_ARGUMENT, f"a message is not whole {encoding.decode()}")
    return whole


def too_long(size: int | None, limit: int) -> str:
    """Why a message is refused."""
    found = f"{size} bytes" if size is not None else f"more than {limit} bytes once unpacked"
    return f"a message of {found}; at most {limit} are read"


def _shown(value: bytes) -> str:
    return repr(value[:40].decode("latin-1"))
