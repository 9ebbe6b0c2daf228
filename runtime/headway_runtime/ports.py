"""The ports, bound before the process confines itself: afterwards it can make no socket."""

import socket
from typing import NamedTuple

from headway_runtime.errors import FatalError


class Listeners(NamedTuple):
    """Bound sockets; None: gRPC is not served."""

    inference: socket.socket
    admin: socket.socket
    grpc: socket.socket | None


def listen(host: str, port: int) -> socket.socket:
    """Bind a port. Raises FatalError `PortTaken`."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise FatalError(
            "PortTaken",
            f"cannot listen on {host} port {port}: {error.strerror}; "
            "for `headway serve`, choose another with --port, --admin-port or --grpc-port",
        ) from None
    listener.setblocking(False)
    return listener


def inherited(descriptor: int) -> socket.socket:
    """One that the parent process listens on already: of `headway serve`, which takes its ports before it prepares."""
    listener = socket.socket(fileno=descriptor)
    listener.setblocking(False)
    return listener
