"""Putting one operator process together: the parts, the first look at the cluster, the watches, and the end.

The order of a start: /healthz answers; the kind is served (the chart installs both at once); the store is complete; the
workers work; kopf watches. What kopf shows before the workers start is in the store and the queue already.
"""

import asyncio
import logging
import os
import signal
import socket
import time

import kopf

from headway_operator import server, watch
from headway_operator.cluster import Cluster
from headway_operator.config import Config
from headway_operator.connection import api_client
from headway_operator.debug import Debug
from headway_operator.events import Recorder
from headway_operator.metrics import Metrics
from headway_operator.mounts import Mounts
from headway_operator.observe import Observer
from headway_operator.obstacles import Obstacles
from headway_operator.reconcile import Reconciler
from headway_operator.reports import Reports
from headway_operator.router.podtemplate import Image
from headway_operator.router.reconcile import RouterReconciler
from headway_operator.runner import Runner
from headway_operator.store import Owner, Store
from headway_operator.workqueue import WorkQueue

_log = logging.getLogger(__name__)


class App:
    """The parts of one operator process."""

    def __init__(self, config: Config, cluster: Cluster, metrics: Metrics) -> None:
        self.store = Store()
        self.queue: WorkQueue[Owner] = WorkQueue()
        self.reports = Reports(metrics)
        self.router = RouterReconciler(
            cluster=cluster,
            store=self.store,
            image=Image(config.router_image, config.router_pull_secrets),
            cluster_domain=config.cluster_domain,
            wake=self.queue.add,
            clock=time.time,
        )
        self.runner = Runner(
            cluster=cluster,
            store=self.store,
            queue=self.queue,
            metrics=metrics,
            handlers={"md": self._reconciler(config, cluster, metrics).handle, "router": self._route},
            namespaces=config.namespaces,
            resync_seconds=config.resync_seconds,
        )

    def _reconciler(self, config: Config, cluster: Cluster, metrics: Metrics) -> Reconciler:
        obstacles = Obstacles(cluster, time.monotonic)
        observer = Observer(
            store=self.store,
            reports=self.reports,
            mounts=Mounts(cluster, time.time),
            obstacles=obstacles,
            route_state=self.router.route_state,
            default_image=config.runtime_image,
        )
        instance = f"{socket.gethostname()}-{os.getpid()}"
        return Reconciler(
            cluster=cluster,
            store=self.store,
            observer=observer,
            reports=self.reports,
            obstacles=obstacles,
            recorder=Recorder(cluster=cluster, metrics=metrics, clock=time.time, instance=instance),
            publish=self.router.publish,
            withdraw=self.router.withdraw,
            clock=time.time,
        )

    async def _route(self, owner: Owner) -> float | None:
        return await self.router.reconcile(owner.namespace)

    async def close(self) -> None:
        """Close what the parts hold open."""
        await self.reports.close()
        await self.router.close()


async def run(config: Config, debug: Debug) -> None:
    """Run one operator until SIGTERM, SIGINT or a failure that only a new process can mend."""
    metrics = Metrics()
    cluster = Cluster(await api_client(config.kubeconfig), metrics=metrics, debug=debug)
    app = App(config, cluster, metrics)
    serving = await server.serve(
        host=config.host, port=config.port, metrics=metrics, queue=app.queue, complaints=app.runner.complaints
    )
    try:
        _end_on_signal()
        await app.runner.start(config.workers)
        _log.info("started", extra={"namespaces": config.namespaces or "all", "objects": len(app.store)})
        await kopf.operator(
            registry=watch.registry(app.runner, metrics, debug, config.kubeconfig),
            settings=watch.settings(),
            clusterwide=not config.namespaces,
            namespaces=config.namespaces,
            standalone=True,
        )
    except asyncio.CancelledError:
        _log.info("ended_by_signal")
    finally:
        await app.runner.stop()
        await asyncio.gather(serving.cleanup(), app.close(), cluster.close())
        _log.info("stopped")


def _end_on_signal() -> None:
    """End in order on the signals that come before kopf has its own handlers for them."""
    task = asyncio.current_task()
    assert task is not None
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
