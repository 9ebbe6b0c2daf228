"""The life of the serving process: ports, loading, serving, drain.

    bind ports ─► load and warm (engine thread) ─► ready ─► SIGTERM ─► drain ─► exit 0
                          └─ FatalError ─► report, termination message ─► exit 1

*Drain*: the health check says 503 at once (to a router: `degraded`, so that it comes here only while it knows no
healthy pod) and every answer closes its connection (over gRPC: GOAWAY), so that clients turn elsewhere. Requests are
still served for `LINGER` seconds and until none has come for twice the longest pause between the latest ones: then
nobody depends on this pod any more. If they never cease, new ones are refused in the last part of the drain time, and
those admitted are answered.
"""

import asyncio
import gc
import signal
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headway_api.podconfig import Phase, Termination
from headway_api.units import parse_duration

from headway_runtime import door, knobs, memory
from headway_runtime.admin import Admin
from headway_runtime.errors import FatalError
from headway_runtime.loading import load
from headway_runtime.logs import log
from headway_runtime.pod import Pod
from headway_runtime.protocols.grpc.server import GrpcServer
from headway_runtime.protocols.http.documents import documents
from headway_runtime.protocols.http.front import Front
from headway_runtime.protocols.http.server import serve

LINGER = 3.0
QUIET = 1.0
LONGEST_QUIET = 30.0  # seconds: as long as DNS caches usually live
SWEEP_SECONDS = 0.05
FAREWELL = 0.5  # seconds: longer than a request needs to arrive on a connection that was just made
PATIENCE = 2.0  # seconds, for what is being computed when the engine has stopped
LAST_WORDS = 0.5  # seconds, for those that are told that they get no answer
COLLECT_AFTER = 20_000, 20, 100  # new objects, young and middle-aged collections


@dataclass(frozen=True, slots=True)
class Options:
    """Where things are: the prepared program, the knobs file, the listeners (of gRPC, if there is one)."""

    model: Path
    knobs: Path
    inference: socket.socket
    admin: socket.socket
    grpc: socket.socket | None = None


class Life:
    """Runs one pod from its first breath to its last. Use once."""

    def __init__(self, pod: Pod, options: Options) -> None:
        self._pod = pod
        self._options = options
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        self._ended: asyncio.Future[Termination | None] = self._loop.create_future()
        self._thread = threading.Thread(target=self._engine, name="headway-engine", daemon=True)
        front = Front(pod)
        self._inference = serve(documents(front), front)
        self._admin = serve(Admin(pod, self._thread.is_alive))
        self._grpc = GrpcServer(pod)
        self._in_hurry = False

    async def run(self) -> Termination | None:
        """Serve until a signal or a failure; the failure is returned."""
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(number, self._signalled, number)
        servers = [
            asyncio.create_task(self._inference.serve([self._options.inference])),
            asyncio.create_task(self._admin.serve([self._options.admin])),
        ]
        helpers = [
            asyncio.create_task(knobs.watch(self._options.knobs, self._pod.knobs_changed, self._pod.knobs_failed)),
            asyncio.create_task(self._sweep()),
        ]
        if self._options.grpc is not None:
            await self._grpc.start(self._options.grpc)
        self._thread.start()
        failure = await self._first_end([*servers, *helpers])
        if failure is None:
            await self._drain()
        for helper in helpers:
            helper.cancel()
        await asyncio.gather(*helpers, return_exceptions=True)
        await self._close(servers)
        return failure

    @property
    def engine_alive(self) -> bool:
        """Whether the engine thread is still in a run, or loading."""
        return self._thread.is_alive()

    def _engine(self) -> None:
        """The engine thread."""
        try:
            model = load(self._pod, self._options.model, self._deliver, self._hand)
            _settle_memory()
            self._hand(self._pod.install, model)
            model.run()
        except FatalError as error:
            self._hand(self._fail, error.termination())
        except BaseException as error:  # whatever it is, the pod must not look alive without its engine
            log("engine_failed", level="error", error=error)
            message = f"the engine thread ended: {type(error).__name__}: {error}"
            self._hand(self._fail, Termination(reason="EngineFailed", message=message[:1000], condition="Ready"))

    def _hand(self, function: Callable[..., None], *args: object) -> None:
        self._loop.call_soon_threadsafe(function, *args)

    def _deliver(self, function: Callable[..., None], *args: object) -> None:
        """Call a function on the event loop; at once, if this is it."""
        if threading.get_ident() == self._loop_thread:
            function(*args)
        else:
            self._loop.call_soon_threadsafe(function, *args)

    def _signalled(self, number: int) -> None:
        if self._ended.done():
            self._in_hurry = True
        else:
            self._in_hurry = number == signal.SIGINT
            self._ended.set_result(None)

    def _fail(self, failure: Termination) -> None:
        self._pod.failure = failure
        self._pod.phase = Phase.FAILED
        if not self._ended.done():
            self._ended.set_result(failure)

    async def _first_end(self, tasks: list[asyncio.Task[None]]) -> Termination | None:
        """A signal (None), a failure of the engine, or a task that should run for ever and has not."""
        ends: list[asyncio.Future[Any]] = [*tasks, self._ended]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        if self._ended.done():
            return self._ended.result()
        task = next(task for task in tasks if task.done())
        error = task.exception()
        log("task_ended", level="error", error=error)
        failure = Termination(
            reason="InternalError", message=f"a part of the server ended: {error!r}"[:1000], condition="Ready"
        )
        self._fail(failure)
        return failure

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            if (failure := self._pod.overdue()) is not None:
                self._fail(failure)
            if self._pod.model is not None:
                self._pod.model.sweep()

    async def _drain(self) -> None:
        pod = self._pod
        was_serving = pod.phase is Phase.READY
        pod.phase = Phase.DRAINING
        pod.closing = True
        self._grpc.drain()
        timeout = parse_duration(pod.config.drain_timeout, "drainTimeout")
        log("draining", in_flight=pod.in_flight, seconds=timeout)
        began = time.monotonic()
        if was_serving:
            quiet = max(QUIET, min(LONGEST_QUIET, 2 * pod.longest_gap(began)))
            await self._until_quiet(quiet, began + min(LINGER, timeout / 2), began + timeout - min(5.0, timeout / 4))
        pod.refusing = True
        await self._until_quiet(QUIET, time.monotonic(), began + timeout - min(1.0, timeout / 8))
        log("drained", in_flight=pod.in_flight, seconds=round(time.monotonic() - began, 3))

    async def _until_quiet(self, quiet: float, earliest: float, latest: float) -> None:
        """Return once it is `earliest` and nothing was in flight for `quiet` seconds, or when it is `latest`."""
        answered, quiet_since = self._pod.requests, time.monotonic()
        while (now := time.monotonic()) < latest and not self._in_hurry:
            if self._pod.in_flight or self._pod.requests != answered:
                answered, quiet_since = self._pod.requests, now
            elif now >= earliest and now - quiet_since >= quiet:
                return
            await asyncio.sleep(0.02)

    async def _close(self, servers: list[asyncio.Task[None]]) -> None:
        """Answer what still waits, then close the listeners and the connections."""
        self._pod.refusing = True
        await self._stop_listening()
        if self._pod.model is not None:
            self._pod.model.stop()
            await self._loop.run_in_executor(None, self._thread.join, 1.0)
        self._inference.should_exit = self._admin.should_exit = True
        until, cut = time.monotonic() + PATIENCE, False
        while self._pod.in_flight and not cut:
            await asyncio.sleep(0.02)
            cut = time.monotonic() > until
        if cut:  # over both protocols
            self._inference.cut()
        ends = asyncio.wait(servers, timeout=LAST_WORDS if cut else PATIENCE)
        (_, unfinished), _ = await asyncio.gather(ends, self._grpc.close())
        for task in unfinished:
            task.cancel()
        await asyncio.gather(*servers, return_exceptions=True)

    async def _stop_listening(self) -> None:
        """Let nobody connect any more, and tell those who just have that this pod ends: a connection that is closed
        before its first request is read looks to its client like a lost answer.
        """
        await door.shut(self._options.inference, self._inference.stop_listening)
        if self._options.grpc is not None:
            await door.shut(self._options.grpc, self._grpc.stop_listening)
        await asyncio.sleep(FAREWELL)


def _settle_memory() -> None:
    """What is loaded now stays: the garbage collector need not look at it again, nor as often as its defaults have it,
    which for small requests is a tenth of their cost.
    """
    gc.collect()
    memory.give_back()
    gc.freeze()
    gc.set_threshold(*COLLECT_AFTER)
