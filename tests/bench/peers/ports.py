"""Free ports for servers."""

import random
import socket

PORTS = 5  # some servers want the neighbours of their port


def free_ports() -> int:
    """The first of PORTS free neighbours, below the range that the kernel gives to clients, where one could be taken
    between this look and the server's start.
    """
    while True:
        port = random.randrange(20_000, 32_000, PORTS)
        if all(_is_free(port + i) for i in range(PORTS)):
            return port


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True
