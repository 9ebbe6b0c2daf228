"""A small HTTP server on loopback, in a thread of its own, that answers as a test says: what `headway bench` meets."""

import asyncio
import contextlib
import gc
import threading
import warnings
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass

from headway_runtime.bench.connection import Address

Answer = Callable[[int, bytes], Awaitable[bytes | None]]
"""Given how many requests came before, and the body: the whole answer; None closes the connection."""


@dataclass
class BenchServer:
    """Where it listens, and how many requests and connections have come."""

    address: Address
    requests: int = 0
    connections: int = 0


def answer(body: bytes = b"{}", *, status: int = 200, headers: str = "") -> bytes:
    """A whole HTTP answer."""
    return f"HTTP/1.1 {status} Said\r\ncontent-length: {len(body)}\r\n{headers}\r\n".encode() + body


@contextlib.contextmanager
def bench_server(answers: Answer) -> Iterator[BenchServer]:
    """Serve until the block ends."""
    ready, loop = threading.Event(), asyncio.new_event_loop()
    found = BenchServer(Address("127.0.0.1", 0))
    writers: list[asyncio.StreamWriter] = []

    async def connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        found.connections += 1
        writers.append(writer)
        # Python 3.11 complains of a connection whose task was cancelled, as those are that wait when the block ends.
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0])
                body = await reader.readexactly(length)
                number, found.requests = found.requests, found.requests + 1
                told = await answers(number, body)
                if told is None:
                    break
                writer.write(told)
        writer.close()

    async def serve() -> None:
        server = await asyncio.start_server(connection, "127.0.0.1", 0)
        found.address = Address("127.0.0.1", server.sockets[0].getsockname()[1])
        ready.set()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        server.close()  # from Python 3.12 on, serve_forever() would wait for the clients, too
        for _ in range(3):  # whoever was accepted last appears a few turns of the loop later
            await asyncio.sleep(0.02)
            for writer in writers:
                writer.transport.abort()
        await asyncio.sleep(0.02)

    def run() -> None:
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            tasks.append(runner.get_loop().create_task(serve()))
            runner.run(_until(tasks[0]))

    tasks: list[asyncio.Task[None]] = []
    thread = threading.Thread(target=run)
    thread.start()
    assert ready.wait(60)
    try:
        yield found
    finally:
        loop.call_soon_threadsafe(tasks[0].cancel)
        thread.join(60)
        writers.clear()
        tasks.clear()
        with warnings.catch_warnings():  # a client that came as the loop ended: its connection goes now, without a word
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()


async def _until(task: "asyncio.Task[None]") -> None:
    with contextlib.suppress(asyncio.CancelledError):
        await task


def request(body: bytes = b"{}") -> bytes:
    """A whole HTTP request."""
    return b"POST /v2/models/m/infer HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(body) + body
