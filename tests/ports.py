"""Ports of loopback for servers that are started a moment later."""

import itertools
import random
import socket
from contextlib import suppress

_ORDER = itertools.cycle(random.SystemRandom().sample(range(12_000, 28_000), 16_000))
"""Below the ports that the kernel gives to whoever connects: one that was free stays free until it is used."""


def free_port() -> int:
    """A port that nobody has, and that was not drawn before: of two drawn in turn, neither is used yet."""
    while True:
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", next(_ORDER)))
            return int(probe.getsockname()[1])
