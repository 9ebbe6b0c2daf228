"""uvicorn, as this pod uses it: our connections and signals, and no access log."""

import contextlib
from collections.abc import Generator
from functools import partial
from typing import Any

import uvicorn

from headway_runtime.protocols.http.connection import Connection
from headway_runtime.protocols.http.front import Front


class Server(uvicorn.Server):
    """A server that leaves signals alone: the life cycle decides when it ends."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """No signals."""
        yield

    def stop_listening(self) -> None:
        """Close the listeners; connections stay."""
        for server in self.servers:
            server.close()

    def cut(self) -> None:
        """The pod ends now: what is being answered is answered with an error."""
        for connection in list(self.server_state.connections):
            if isinstance(connection, Connection):
                connection.cut()


def serve(app: Any, front: Front | None = None) -> Server:
    """A server for an ASGI application, and for the hot routes of a front."""
    protocol: Any = partial(Connection, front=front)
    config = uvicorn.Config(
        app,
        http=protocol,
        ws="none",
        interface="asgi3",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        backlog=2048,
    )
    return Server(config)
