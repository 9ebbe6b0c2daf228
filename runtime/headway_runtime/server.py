"""uvicorn, as this pod uses it: our signals, no access log, bounded heads, and idle connections that stay open."""

import contextlib
from collections.abc import Generator
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

KEEP_ALIVE_SECONDS = 4000
"""Longer than any client keeps an idle connection (Envoy: an hour): closing one as a request comes would lose it."""

MAX_HEAD = 64 * 2**10
"""Bytes of a request line and its headers (Envoy admits 60 KiB). uvicorn with httptools has no bound of its own."""


class Protocol(HttpToolsProtocol):
    """A connection that ends when the head of a request grows beyond `MAX_HEAD`."""

    _head: int | None = 0  # bytes of the head that is being read; None between a head and the next
    _begun = False  # the head began in this part of the stream, after the end of another request perhaps

    def data_received(self, data: bytes) -> None:
        """A part of the stream (at most 256 KiB). The part in which a head begins is not counted."""
        self._begun = False
        super().data_received(data)
        if self._head is not None and not self._begun and not self.transport.is_closing():
            self._head += len(data)
            if self._head > MAX_HEAD:
                self.send_400_response(f"The head of the request has more than {MAX_HEAD} bytes.")

    def on_message_begin(self) -> None:
        """The first byte of a request."""
        self._head, self._begun = 0, True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """The head is whole."""
        self._head = None
        super().on_headers_complete()


class Server(uvicorn.Server):
    """A server that leaves signals alone: the life cycle decides when it ends."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """No signals."""
        yield


def serve(app: Any) -> Server:
    """A server for an ASGI application."""
    config = uvicorn.Config(
        app,
        http=Protocol,
        ws="none",
        interface="asgi3",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        backlog=2048,
    )
    return Server(config)
