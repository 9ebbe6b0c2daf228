"""The HTTP server of a pod in a thread with its own uvloop, and raw sockets to it: every byte is the test's."""

import asyncio
import contextlib
import json
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Self, TypeVar

import httpx
import uvloop
from headway_runtime.batching.engine import Outcome, RunRecord
from headway_runtime.metrics import Metrics
from headway_runtime.origin import Origin
from headway_runtime.pod import Pod
from headway_runtime.program import Program
from headway_runtime.protocols.http.documents import documents
from headway_runtime.protocols.http.front import Front
from headway_runtime.protocols.http.server import Server, serve

from tests.unit.pod_process import MODEL, question, until
from tests.unit.serving_desk import COLD, model

T = TypeVar("T")
INFER = f"/v2/models/{MODEL}/infer"


@dataclass
class HttpServer:
    """A served pod. `runs` are the runs of its program so far."""

    pod: Pod
    front: Front
    server: Server
    loop: asyncio.AbstractEventLoop
    port: int
    client: httpx.Client
    runs: list[RunRecord] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def infer(self) -> str:
        return self.url + INFER

    def on_loop(self, function: Callable[[], T]) -> T:
        """Run on the event loop, and wait for it."""

        async def call() -> T:
            return function()

        return asyncio.run_coroutine_threadsafe(call(), self.loop).result(60)

    def knobs(self, **knobs: Any) -> None:
        """Other knobs, in force at once."""
        self.on_loop(lambda: self.pod.knobs_changed(json.dumps({"maxWait": "0ms", **knobs}), "test"))
        assert self.pod.report().knobs.error is None, self.pod.report().knobs.error

    def connect(self, timeout: float = 60.0) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=timeout)

    def ask(self, data: bytes, *, half_close: bool = False) -> "Stream":
        """Send bytes on a new connection."""
        stream = Stream(self.connect())
        stream.socket.sendall(data)
        if half_close:
            stream.socket.shutdown(socket.SHUT_WR)
        return stream

    def quiet(self) -> None:
        """Wait until nothing is in flight and no body is held."""
        until(lambda: self.pod.in_flight == 0 and self.front._held == 0, "silence", 30)


@dataclass
class Answer:
    """Of an HTTP request."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Stream:
    """What comes back on a connection."""

    socket: socket.socket
    rest: bytes = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def answer(self, *, bodiless: bool = False) -> Answer:
        """The next answer, informational ones passed over. Raises EOFError when the connection ends instead."""
        while True:
            head, self.rest = self._until(b"\r\n\r\n")
            first, *lines = head.decode("latin-1").split("\r\n")
            status = int(first.split(" ")[1])
            if status >= 200:
                break
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        length = 0 if bodiless else int(headers.get("content-length", 0))
        while len(self.rest) < length:
            self._more()
        body, self.rest = self.rest[:length], self.rest[length:]
        return Answer(status, headers, body)

    def ended(self) -> bool:
        """Whether the server has closed, with nothing more to say."""
        try:
            self._more()
        except EOFError:
            return not self.rest
        return False

    def _until(self, mark: bytes) -> tuple[bytes, bytes]:
        while mark not in self.rest:
            self._more()
        head, _, rest = self.rest.partition(mark)
        return head, rest

    def _more(self) -> None:
        try:
            part = self.socket.recv(65536)
        except ConnectionError:
            part = b""
        if not part:
            raise EOFError(self.rest)
        self.rest += part


def post(body: bytes | dict[str, Any] | None = None, *headers: str, path: str = INFER, version: str = "1.1") -> bytes:
    """A whole request; by default a good one."""
    content = body if isinstance(body, bytes) else json.dumps(body or question([[1, 2]])).encode()
    lines = [f"POST {path} HTTP/{version}", "host: pod", f"content-length: {len(content)}", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + content


@contextmanager
def http_server(program: Program | None, **changes: Any) -> Iterator[HttpServer]:
    """Serve a program; None: the pod is still loading."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(2048)
    started = threading.Event()
    made: list[HttpServer] = []

    async def live() -> None:
        loop = asyncio.get_running_loop()
        pod = Pod(COLD, Metrics(), Origin())
        runs: list[RunRecord] = []
        thread: threading.Thread | None = None
        if program is not None:

            def deliver(outcomes: Sequence[Outcome], record: RunRecord | None) -> None:
                if record is not None:
                    runs.append(record)
                loop.call_soon_threadsafe(pod.served, outcomes, record)

            installed = model(program, deliver, **changes)
            pod.install(installed)
            thread = threading.Thread(target=installed.engine.run, daemon=True)
            thread.start()
        front = Front(pod)
        server = serve(documents(front), front)
        client = httpx.Client(timeout=60)
        made.append(HttpServer(pod, front, server, loop, listener.getsockname()[1], client, runs))
        sweeping = asyncio.create_task(_sweep(pod))
        started.set()
        await server.serve([listener])
        sweeping.cancel()
        if thread is not None:
            installed.engine.stop()
            await loop.run_in_executor(None, thread.join, 10)

    def run() -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(live())

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert started.wait(60)
    served = made[0]
    if program is not None:
        served.knobs()
    try:
        yield served
    finally:
        served.client.close()
        served.server.should_exit = True
        with contextlib.suppress(RuntimeError):
            served.loop.call_soon_threadsafe(_close_all, served.server)
        thread.join(60)
        assert not thread.is_alive(), "the server ends"


async def _sweep(pod: Pod) -> None:
    """What the life cycle does."""
    while True:
        await asyncio.sleep(0.02)
        if pod.model is not None:
            pod.model.sweep()


def _close_all(server: Server) -> None:
    for connection in list(server.server_state.connections):
        connection.transport.abort()  # type: ignore[union-attr]
