"""uvicorn, as this pod uses it: our sockets, our signals, no access log, and idle connections that stay open."""

import contextlib
import socket
from collections.abc import Generator
from typing import Any

import uvicorn

from headway_runtime.errors import FatalError

KEEP_ALIVE_SECONDS = 4000
"""Longer than any client keeps an idle connection (Envoy: an hour): closing one as a request comes would lose it."""


class Server(uvicorn.Server):
    """A server that leaves signals alone: the life cycle decides when it ends."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """No signals."""
        yield


def listen(host: str, port: int) -> socket.socket:
    """Bind a port. Raises FatalError `PortTaken`."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise FatalError("PortTaken", f"cannot listen on {host} port {port}: {error.strerror}") from None
    listener.setblocking(False)
    return listener


def serve(app: Any) -> Server:
    """A server for an ASGI application."""
    config = uvicorn.Config(
        app,
        http="httptools",
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
