"""What gRPC adds to HTTP/2, without a socket."""

import gzip
import urllib.parse
import zlib

import pytest
from headway_runtime.protocols.grpc import bounds, wire
from headway_runtime.protocols.grpc.wire import Status, WireError

LIMIT = 1000


@pytest.mark.parametrize(
    ("timeout", "seconds"),
    [(b"1H", 3600), (b"2M", 120), (b"30S", 30), (b"99999999m", 99999.999), (b"5u", 5e-6), (b"7n", 7e-9), (b"0S", 0)],
)
def test_a_timeout_is_read_in_every_unit(timeout: bytes, seconds: float) -> None:
    assert wire.seconds(timeout) == pytest.approx(seconds)


@pytest.mark.parametrize("timeout", [b"", b"5", b"S", b"-1S", b"1.5S", b"123456789S", b"1s", "\uff11S".encode()])
def test_a_timeout_of_another_form_is_refused(timeout: bytes) -> None:
    with pytest.raises(WireError, match="grpc-timeout") as refused:
        wire.seconds(timeout)
    assert refused.value.status is Status.INVALID_ARGUMENT


@pytest.mark.parametrize("text", ["plain text", "100 % sure", "zwölf\n\t\x00", "日本", "a" * 5000, "\ud800"])
def test_a_message_survives_the_trip_through_a_header(text: str) -> None:
    escaped = wire.escaped(text)
    assert all(0x20 <= byte < 0x7F for byte in escaped)
    expected = text[: wire.MAX_MESSAGE_TEXT].encode(errors="replace").decode()
    assert urllib.parse.unquote(escaped.decode()) == expected


def test_a_plain_message_stays_as_it_is() -> None:
    assert wire.escaped("input 'x': 3 values") == b"input 'x': 3 values"


@pytest.mark.parametrize("encoding", [None, b"gzip", b"deflate"])
@pytest.mark.parametrize("message", [b"", b"x", b"tensor" * 100])
def test_a_message_is_unpacked_as_it_was_packed(message: bytes, encoding: bytes | None) -> None:
    framed = wire.framed(message, encoding)
    assert wire.length(framed[: wire.PREFIX], LIMIT) == len(framed) - wire.PREFIX
    assert framed[0] == (encoding is not None)
    body = framed[wire.PREFIX :]
    assert (body if encoding is None else wire.unpacked(body, encoding, LIMIT)) == message


def test_a_message_may_be_as_long_as_the_limit_and_no_longer() -> None:
    assert wire.length(LIMIT.to_bytes(5, "big"), LIMIT) == LIMIT
    with pytest.raises(WireError, match="1001 bytes; at most 1000") as refused:
        wire.length((LIMIT + 1).to_bytes(5, "big"), LIMIT)
    assert refused.value.status is Status.RESOURCE_EXHAUSTED


@pytest.mark.parametrize("encoding", [b"gzip", b"deflate"])
def test_a_small_message_that_unpacks_beyond_the_limit_is_refused(encoding: bytes) -> None:
    exact, bomb = (wire.framed(b"\0" * size, encoding)[wire.PREFIX :] for size in (LIMIT, 10_000_000))
    assert len(wire.unpacked(exact, encoding, LIMIT)) == LIMIT
    with pytest.raises(WireError, match="more than 1000 bytes once unpacked") as refused:
        wire.unpacked(bomb, encoding, LIMIT)
    assert refused.value.status is Status.RESOURCE_EXHAUSTED


@pytest.mark.parametrize(
    ("body", "encoding", "says"),
    [
        (b"plain", b"gzip", "is not gzip"),
        (gzip.compress(b"message")[:-4], b"gzip", "not whole gzip"),
        (zlib.compress(b"message")[:-2], b"deflate", "not whole deflate"),
        (gzip.compress(b"message"), None, "no grpc-encoding"),
    ],
)
def test_a_message_that_is_not_what_it_says_is_refused(body: bytes, encoding: bytes | None, says: str) -> None:
    with pytest.raises(WireError, match=says):
        wire.unpacked(body, encoding, LIMIT)


def test_a_first_byte_that_is_no_flag_is_refused() -> None:
    with pytest.raises(WireError, match="byte 2"):
        wire.length(b"\2\0\0\0\1", LIMIT)


def test_an_encoding_that_is_not_read_is_named_with_those_that_are() -> None:
    assert wire.encoding(None) is None
    assert wire.encoding(b"identity") is None
    with pytest.raises(WireError, match=r"snappy.*identity, deflate, gzip") as refused:
        wire.encoding(b"snappy")
    assert refused.value.status is Status.UNIMPLEMENTED


@pytest.mark.parametrize(
    ("http", "status"), [(400, 3), (404, 5), (413, 8), (415, 12), (429, 8), (500, 13), (501, 12), (503, 14), (504, 4)]
)
def test_errors_have_the_status_that_clients_act_upon(http: int, status: int) -> None:
    assert wire.status_of(http) == status


def test_an_allowance_ends_after_its_burst_and_comes_back_with_time() -> None:
    allowance = bounds.Allowance(burst=3, rate=2, left=3, at=100.0)
    assert [allowance.use(100.0) for _ in range(4)] == [True, True, True, False]
    assert allowance.use(101.5)  # 3 more, of which one made good the use too many
    assert allowance.use(101.5)
    assert not allowance.use(101.5)
    assert [allowance.use(1000.0) for _ in range(4)] == [True, True, True, False]
