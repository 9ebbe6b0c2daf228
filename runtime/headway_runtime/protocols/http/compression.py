"""Bodies in gzip and deflate, both ways. Pure. What is read is bounded after decompression."""

import zlib

from headway_runtime.errors import InvalidRequestError, TooLargeError
from headway_runtime.knobs import BODY_FIELD
from headway_runtime.protocols.http.heads import Coding

_GZIP, _ZLIB, _RAW = 31, 15, -15  # zlib's names for the three framings
_PIECE = 2**16  # bytes that are unpacked at once
MAX_MEMBERS = 2**12
"""Of a body in gzip, which may have several, each of which may be empty."""

_LEVEL = 1  # the cheapest: numbers in JSON halve with it, and gain little by more


def decompress(body: bytes | bytearray, coding: Coding, limit: int) -> bytes:
    """The body as it was. Raises InvalidRequestError, TooLargeError beyond `limit` bytes."""
    framing = _GZIP if coding is Coding.GZIP else (_ZLIB if _is_zlib(body) else _RAW)
    named = f"content-encoding {coding.value.decode()}"
    found: list[bytes] = []
    engine = zlib.decompressobj(framing)
    size, members = 0, 1
    for at in range(0, len(body), _PIECE):
        rest = bytes(body[at : at + _PIECE])
        while rest:
            if engine.eof:
                members += 1
                if coding is Coding.DEFLATE:
                    raise InvalidRequestError(f"{named}: more follows the compressed body")
                if members > MAX_MEMBERS:
                    raise InvalidRequestError(f"{named}: more than {MAX_MEMBERS} members")
                engine = zlib.decompressobj(framing)
            try:
                part = engine.decompress(rest, limit - size + 1)
            except zlib.error as error:
                raise InvalidRequestError(f"{named}: {error}") from None
            size += len(part)
            if size > limit:
                raise TooLargeError(
                    f"more than {limit} bytes when decompressed; that is the most that is read ({BODY_FIELD})"
                )
            found.append(part)
            rest = engine.unused_data
    if not engine.eof:
        raise InvalidRequestError(f"{named}: the body ends in the middle")
    return b"".join(found)


def compress(parts: tuple[bytes, ...], coding: Coding) -> bytes:
    """The same, smaller."""
    engine = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP if coding is Coding.GZIP else _ZLIB)
    return b"".join([*map(engine.compress, parts), engine.flush()])


def _is_zlib(body: bytes | bytearray) -> bool:
    """`deflate` is zlib's framing (RFC 9110, 8.4.1.2); some clients send what is inside it alone."""
    return len(body) >= 2 and body[0] & 15 == 8 and (body[0] << 8 | body[1]) % 31 == 0
