"""The end of a listener. It resets whoever the system has connected and the loop has not accepted, and to a client that
looks like a lost answer.
"""

import asyncio
import select
import socket
import time
from collections.abc import Callable

LONGEST = 0.5  # seconds, should the loop accept nobody


async def shut(listener: socket.socket, end: Callable[[], None]) -> None:
    """End a listener when nobody waits at it: by `end`, which closes it. Who connects between the last look and that is
    reset still, for the system tells nobody in one breath that they came and that nobody else may: that is some
    microseconds, and one client at a time. The loop must be uvloop's: asyncio's forgets whom it accepted in this turn.
    One that is closed already has ended with who served it.
    """
    if listener.fileno() < 0:
        end()
        return
    listener.listen(0)  # from now on, while one waits, others are left to try again in a second, and find nobody
    poll, latest = select.poll(), time.monotonic() + LONGEST
    poll.register(listener, select.POLLIN)
    while poll.poll(0) and time.monotonic() < latest:  # noqa: ASYNC110 - the system tells nobody
        await asyncio.sleep(0)  # the loop accepts
    end()
