"""Bodies in gzip and deflate, both ways. Pure. What is read is bounded after decompression."""

import zlib

from headway_runtime.errors import InvalidRequestError, TooLargeError
from headway_runtime.knobs import BODY_FIELD
from headway_runtime.protocols.http.heads import Coding

_GZIP, _ZLIB, _RAW = 31, 15, -15  # zlib's names for the three framings
_LEVEL = 1  # the cheapest: numbers in JSON halve with it, and gain little by more


def decompress(body: bytes | bytearray, coding: Coding, limit: int) -> bytes:
    """The body as it was. Raises InvalidRequestError, TooLargeError beyond `limit` bytes."""
    framing = _GZIP if coding is Coding.GZIP else (_ZLIB if _is_zlib(body) else _RAW)
    found: list[bytes] = []
    size, rest = 0, bytes(body)
    while rest:  # gzip may have several members
        engine = zlib.decompressobj(framing)
        try:
            part = engine.decompress(rest, limit - size + 1)
        except zlib.error as error:
            raise InvalidRequestError(f"content-encoding {coding.value.decode()}: {error}") from None
        size += len(part)
        if size > limit:
            raise TooLargeError(
                f"more than {limit} bytes when decompressed; that is the most that is read ({BODY_FIELD})"
            )
        if not engine.eof:
            raise InvalidRequestError(f"content-encoding {coding.value.decode()}: the body ends in the middle")
        found.append(part)
        rest = engine.unused_data
        if rest and coding is Coding.DEFLATE:
            raise InvalidRequestError(f"content-encoding deflate: {len(rest)} bytes follow the compressed body")
    return b"".join(found)


def compress(parts: tuple[bytes, ...], coding: Coding) -> bytes:
    """The same, smaller."""
    engine = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP if coding is Coding.GZIP else _ZLIB)
    return b"".join([*map(engine.compress, parts), engine.flush()])


def _is_zlib(body: bytes | bytearray) -> bool:
    """`deflate` is zlib's framing (RFC 9110, 8.4.1.2); some clients send what is inside it alone."""
    return len(body) >= 2 and body[0] & 15 == 8 and (body[0] << 8 | body[1]) % 31 == 0
