"""Load on a text model: so many clients, each of which reads its answer to the end before it asks again.

There is no open loop: a text model is set by how many sequences run at a time, and that is what the clients are.
"""

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from headway_runtime.bench.connection import Address
from headway_runtime.bench.load import MAX_CONNECTIONS, event_loop
from headway_runtime.bench.streamed import Answer, Connection

LONGEST_PAUSE = 1.0  # seconds, however much a refusal asks for
LEAST_PAUSE = 0.05
SETTLE = 10.0  # seconds at least for what is under way at the end


@dataclass(slots=True)
class Streams:
    """What came. `seconds`: how long requests were sent, until `end` of `time.monotonic`."""

    seconds: float
    end: float = 0.0
    offered: int = 0
    answers: list[Answer] = field(default_factory=list)
    unanswered: int = 0
    client_cpu: float = 0.0  # seconds of processor that this client used, of `client_seconds`
    client_seconds: float = 0.0


def closed_streams(address: Address, requests: Iterator[bytes], *, connections: int, seconds: float) -> Streams:
    """Ask for `seconds` by so many clients, then wait for what is under way, as long again or `SETTLE` at most."""
    assert 1 <= connections <= MAX_CONNECTIONS
    with asyncio.Runner(loop_factory=event_loop) as runner:
        return runner.run(_run(address, requests, connections, seconds))


async def _run(address: Address, requests: Iterator[bytes], connections: int, seconds: float) -> Streams:
    found = Streams(seconds)
    processor, began = time.process_time(), time.monotonic()
    found.end = began + seconds
    clients = [asyncio.create_task(_client(address, requests, found)) for _ in range(connections)]
    _, late = await asyncio.wait(clients, timeout=seconds + max(SETTLE, seconds))
    for task in late:
        task.cancel()
    await asyncio.gather(*clients, return_exceptions=True)
    for task in clients:
        if not task.cancelled() and (error := task.exception()) is not None:
            raise error
    found.unanswered = len(late)
    found.client_cpu, found.client_seconds = time.process_time() - processor, time.monotonic() - began
    return found


async def _client(address: Address, requests: Iterator[bytes], found: Streams) -> None:
    connection = Connection(address)
    try:
        while time.monotonic() < found.end:
            found.offered += 1
            answer = await connection.ask(next(requests))
            found.answers.append(answer)
            if not answer.good:
                left = found.end - time.monotonic()
                await asyncio.sleep(min(max(LEAST_PAUSE, answer.retry_after), LONGEST_PAUSE, max(0.0, left)))
    finally:
        connection.close()
