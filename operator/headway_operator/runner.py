"""Workers that take keys from the queue, and the resync that compares the store with the cluster.

The watches (kopf) only fill the store and the queue. Nothing runs before the first resync: with half of the store
filled, a pass would take what it has not seen yet for something that does not exist.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping

from headway_api import names

from headway_operator import errors
from headway_operator.cluster import Cluster
from headway_operator.kinds import MODEL_DEPLOYMENT, POD, WATCHED, Kind
from headway_operator.metrics import Metrics
from headway_operator.observed import Object
from headway_operator.store import Owner, Store
from headway_operator.workqueue import WorkQueue

_log = logging.getLogger(__name__)

FIRST_RESYNC_BACKOFF, LONGEST_RESYNC_BACKOFF = 0.5, 30.0  # seconds between attempts
SECOND_RESYNC = 5.0  # seconds after the start
STUCK_WORK = 300.0  # seconds in one pass after which the operator counts as stuck
STUCK_QUEUE = 120.0  # seconds that a due key may wait
MISSED_RESYNCS = 3  # intervals without a resync after which the operator counts as blind

Handler = Callable[[Owner], Awaitable[float | None]]


def selector(kind: Kind) -> str:
    """The labels by which the API server picks what the operator watches and lists of a kind."""
    if kind is MODEL_DEPLOYMENT:
        return ""
    return names.LABEL_COMPONENT if kind is POD else f"{names.LABEL_MANAGED_BY}={names.MANAGED_BY}"


class Runner:
    """The loop around the reconcilers. A handler returns the seconds until its key is due again, None for never."""

    def __init__(
        self,
        *,
        cluster: Cluster,
        store: Store,
        queue: WorkQueue[Owner],
        metrics: Metrics,
        handlers: Mapping[str, Handler],
        namespaces: Iterable[str] = (),
        resync_seconds: float = 300.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._cluster = cluster
        self._store = store
        self._queue = queue
        self._metrics = metrics
        self._handlers = handlers
        self._namespaces: tuple[str | None, ...] = tuple(namespaces) or (None,)
        self._resync_seconds = resync_seconds
        self._clock = clock
        self._resynced_at = clock()
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self, workers: int) -> None:
        """Fill the store, however long that takes, and start to work."""
        await self._resync_until_done()
        self._tasks = [asyncio.create_task(self._work(), name=f"worker {number}") for number in range(workers)]
        self._tasks.append(asyncio.create_task(self._resync_forever(), name="resync"))

    async def stop(self) -> None:
        """End the workers where they are: every pass can be cut off anywhere."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []

    def saw(self, obj: Object, *, deleted: bool) -> None:
        """A watch showed an object: remember it and wake whom it concerns. Never fails, never waits."""
        for owner in self._store.remove(obj) if deleted else self._store.put(obj):
            self._queue.add(owner)

    def complaints(self) -> list[str]:
        """What is wrong with the loop; nothing when it is alive."""
        found = []
        if (seconds := self._queue.longest_work) > STUCK_WORK:
            found.append(f"a pass runs for {seconds:.0f} s")
        if (seconds := self._queue.oldest_wait) > STUCK_QUEUE:
            found.append(f"a key waits for a worker for {seconds:.0f} s")
        if (seconds := self._clock() - self._resynced_at) > MISSED_RESYNCS * self._resync_seconds:
            found.append(f"no resync for {seconds:.0f} s")
        found += [f"task ended: {task.get_name()}" for task in self._tasks if task.done()]
        return found

    async def _work(self) -> None:
        while True:
            owner = await self._queue.get()
            try:
                await self._pass(owner)
            finally:
                self._queue.done(owner)

    async def _pass(self, owner: Owner) -> None:
        started = self._clock()
        fields = {"reconciler": owner.reconciler, "namespace": owner.namespace, "model": owner.name}
        try:
            again = await self._handlers[owner.reconciler](owner)
            outcome = "done"
        except (errors.ConflictError, errors.GoneError) as error:
            outcome, again = "conflict", self._queue.retry(owner)
            _log.info("pass_conflict", extra={**fields, "error": str(error), "again": again})
        except errors.TransientError as error:
            outcome, again = "transient", self._queue.retry(owner, at_least=error.retry_after or 0.0)
            _log.warning("pass_failed", extra={**fields, "error": str(error), "again": again})
        except errors.ClusterError as error:
            outcome, again = "refused", self._queue.retry(owner)
            _log.error("pass_failed", extra={**fields, "error": str(error), "again": again})
        except Exception:
            outcome, again = "error", self._queue.retry(owner)
            _log.exception("pass_failed", extra={**fields, "again": again})
        else:
            self._queue.forget(owner)
            if again is not None:
                self._queue.add_after(owner, again)
        seconds = self._clock() - started
        self._metrics.passes.labels(owner.reconciler, outcome).inc()
        self._metrics.pass_seconds.labels(owner.reconciler).observe(seconds)
        _log.debug("pass", extra={**fields, "outcome": outcome, "again": again, "seconds": round(seconds, 4)})

    async def _resync_forever(self) -> None:
        """Once more soon after the start: kopf lists for itself, and never tells what vanished between both lists."""
        pause = min(SECOND_RESYNC, self._resync_seconds)
        while True:
            await asyncio.sleep(pause)
            await self._resync_until_done()
            pause = self._resync_seconds

    async def _resync_until_done(self) -> None:
        backoff = FIRST_RESYNC_BACKOFF
        while True:
            try:
                await self._resync()
            except errors.ClusterError as error:
                _log.warning("resync_failed", extra={"error": str(error), "again": backoff})
                await asyncio.sleep(backoff)
                backoff = min(LONGEST_RESYNC_BACKOFF, backoff * 2)
            else:
                return

    async def _resync(self) -> None:
        """List every kind once and let the store be that; then look at every ModelDeployment once."""
        news: set[Owner] = set()
        for kind in WATCHED:
            for namespace in self._namespaces:
                objects, version = await self._cluster.list(kind, namespace, labels=selector(kind))
                news |= self._store.replace(kind, objects, version, namespace)
        self._resynced_at = self._clock()
        self._metrics.resync_time.set_to_current_time()
        for md in self._store.everything(MODEL_DEPLOYMENT):
            news |= {
                Owner("md", md["metadata"]["namespace"], md["metadata"]["name"]),
                _router(md["metadata"]["namespace"]),
            }
        for owner in sorted(news):
            self._queue.add(owner)


def _router(namespace: str) -> Owner:
    return Owner("router", namespace)
