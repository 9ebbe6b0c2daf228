"""The bytes of an answer's head. Pure, but for the date, which uvicorn keeps."""

from http import HTTPStatus

from headway_api.names import NOT_ADMITTED_HEADER, REVISION_HEADER
from uvicorn.server import ServerState

from headway_runtime.errors import RequestError
from headway_runtime.protocols.http.asgi import Headers
from headway_runtime.protocols.http.heads import BINARY_HEADER, Coding
from headway_runtime.protocols.oip import Written
from headway_runtime.serving.values import Reply

CACHE_HEADER = "x-headway-cache"
QUEUE_HEADER = "x-headway-queue-ms"
BATCH_HEADER = "x-headway-batch-size"

_STATUS = {status.value: b"HTTP/1.1 %d %s\r\n" % (status.value, status.phrase.encode()) for status in HTTPStatus}
_JSON = b"content-type: application/json\r\n"
_BINARY = f"content-type: application/octet-stream\r\n{BINARY_HEADER}: %d\r\n".encode()
_CODED = b"content-encoding: %b\r\nvary: accept-encoding\r\n"
_CLOSE = b"connection: close\r\n"
_HIT = f"{CACHE_HEADER}: hit\r\n".encode()
_EVENTS = b"content-type: text/event-stream; charset=utf-8\r\ncache-control: no-cache\r\nx-accel-buffering: no\r\n"
_CHUNKED = b"transfer-encoding: chunked\r\n"
_FACTS = f"{QUEUE_HEADER}: %.3f\r\n{BATCH_HEADER}: %d\r\ncontent-length: %d\r\n".encode()


class Answers:
    """Heads of answers, which all name the revision and the time."""

    def __init__(self, revision: str) -> None:
        self._revision = f"{REVISION_HEADER}: {revision}\r\n".encode()
        self._defaults: Headers | None = None  # of which the others were made
        self._common = b""
        self._good = b""

    def good(
        self, state: ServerState, reply: Reply, written: Written, *, closes: bool, coding: Coding | None = None
    ) -> bytes:
        """The head of an inference answer; `coding` is how its body is compressed."""
        if state.default_headers is not self._defaults:
            self._refresh(state)
        facts = _FACTS % (reply.queue_seconds * 1e3, reply.batch_rows, written.length)
        kind = _JSON if written.json_length is None else _BINARY % written.json_length
        if coding is not None:
            kind += _CODED % coding.value
        return b"".join((self._good, facts, kind, _HIT if reply.cached else b"", _CLOSE if closes else b"", b"\r\n"))

    def plain(self, state: ServerState, status: int, length: int, extra: Headers, *, closes: bool) -> bytes:
        """The head of any other answer, in JSON."""
        if state.default_headers is not self._defaults:
            self._refresh(state)
        lines = [_STATUS[status], self._common, _JSON, b"content-length: %d\r\n" % length, *map(_line, extra)]
        return b"".join([*lines, _CLOSE if closes else b"", b"\r\n"])

    def events(self, state: ServerState, *, chunked: bool, closes: bool) -> bytes:
        """The head of a stream of events, which nobody on the way shall keep; not `chunked`, it ends with its
        connection.
        """
        if state.default_headers is not self._defaults:
            self._refresh(state)
        return b"".join((self._good, _EVENTS, _CHUNKED if chunked else b"", _CLOSE if closes else b"", b"\r\n"))

    def _refresh(self, state: ServerState) -> None:
        self._defaults = state.default_headers
        self._common = b"".join(map(_line, self._defaults)) + self._revision
        self._good = _STATUS[200] + self._common


def headers_of(error: RequestError) -> Headers:
    """What an error says besides its status and message."""
    return [*error.headers(), *([] if error.admitted else [(NOT_ADMITTED_HEADER.encode(), b"1")])]


def _line(header: tuple[bytes, bytes]) -> bytes:
    return b"%b: %b\r\n" % header
