"""The gRPC server of a pod: one listener, all connections, and their common bounds."""

import asyncio
import contextlib
import socket
import time

from headway_api.names import REVISION_HEADER

from headway_runtime.errors import BodiesFullError
from headway_runtime.pod import Pod
from headway_runtime.protocols.grpc import bounds
from headway_runtime.protocols.grpc.connection import Connection
from headway_runtime.protocols.grpc.exchange import Exchange, Header
from headway_runtime.protocols.grpc.methods import Methods
from headway_runtime.protocols.grpc.refusals import refuse
from headway_runtime.protocols.grpc.wire import Status, WireError

BACKLOG = 2048
LOOK_SECONDS = 2.0  # between looks for connections that are stuck
CLOSING_SECONDS = 2.0  # until connections must have sent what was answered
_CONTENT = b"application/grpc"


class GrpcServer:
    """Serves on a bound socket, from `start` to `close`."""

    def __init__(self, pod: Pod) -> None:
        self._pod = pod
        self._methods = Methods(pod)
        self._listener: asyncio.Server | None = None
        self._looks: asyncio.Task[None] | None = None
        self._held = 0
        self.draining = False
        self._connections: set[Connection] = set()
        self._empty = asyncio.Event()
        self.revision: Header = (REVISION_HEADER.encode(), pod.config.revision.encode())

    async def start(self, listener: socket.socket) -> None:
        """Accept connections."""
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_server(lambda: Connection(self), sock=listener, backlog=BACKLOG)
        self._looks = asyncio.create_task(self._look())

    def drain(self) -> None:
        """Say that the pod ends: not healthy any more, and every connection is to be ended by its client."""
        self.draining = True
        self._methods.health.tell()
        for connection in list(self._connections):
            connection.drain()

    def stop_listening(self) -> None:
        """Close the listener; connections stay."""
        if self._listener is not None:
            self._listener.close()

    async def close(self) -> None:
        """End: accept nothing more, send what is answered, disconnect."""
        self.stop_listening()
        if self._looks is not None:
            self._looks.cancel()
            await asyncio.gather(self._looks, return_exceptions=True)
        self._methods.health.close()
        for connection in list(self._connections):
            connection.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSING_SECONDS):
                while self._connections:
                    self._empty.clear()
                    await self._empty.wait()
        for connection in list(self._connections):
            connection.abort()

    # What a connection needs (`connection.Host`).

    def connected(self, connection: Connection) -> None:
        """A client has come."""
        self._connections.add(connection)

    def disconnected(self, connection: Connection) -> None:
        """It has left."""
        self._connections.discard(connection)
        self._empty.set()

    def limit(self) -> int:
        """Bytes of a message."""
        settings = self._pod.settings
        return bounds.MAX_MESSAGE if settings is None else settings.request_bytes

    def call(self, exchange: Exchange) -> None:
        """A call begins. Raises RequestError or WireError to refuse it."""
        metadata = exchange.metadata
        content = metadata.get(b"content-type", b"")
        if metadata.get(b":method") != b"POST" or not _is_grpc(content):
            raise WireError(Status.UNIMPLEMENTED, "this port speaks gRPC with protocol buffers only")
        self._methods.begin(exchange)

    def hold(self, size: int) -> None:
        """Bytes that wait for the rest of their message."""
        most = max(bounds.MAX_HELD, self.limit())
        if size > 0 and self._held + size > most:
            raise BodiesFullError(f"{most} bytes of messages are being read", retry_after=1)
        self._held += size

    def refuse(self, exchange: Exchange, error: Exception) -> None:
        """Answer a call with an error."""
        refuse(exchange, error)

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            now = time.monotonic()
            for connection in list(self._connections):
                if connection.stuck(now):
                    connection.abort()
                else:
                    connection.hurry(now)


def _is_grpc(content: bytes) -> bool:
    return content in (_CONTENT, _CONTENT + b"+proto") or content.startswith((_CONTENT + b";", _CONTENT + b"+proto;"))
