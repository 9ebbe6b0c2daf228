"""What is written of children and of the router's objects, against a real API server, when other hands write, too."""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from headway_api import names
from headway_operator.apply import Applier
from headway_operator.cluster import Cluster
from headway_operator.connection import api_client
from headway_operator.kinds import CONFIG_MAP
from headway_operator.metrics import Metrics
from headway_operator.obstacles import Obstacles
from headway_operator.router.writing import Writer
from headway_operator.store import Owner, Store
from kubernetes.aio import client

Object = dict[str, Any]
Write = Callable[[Object], Awaitable[object]]


class Overtaken(Cluster):
    """The API server, where another hand edits what the operator has just written, and its watch tells of it at once:
    before the operator reads the answer to its own write.
    """

    def __init__(self, connection: client.ApiClient, store: Store) -> None:
        super().__init__(connection, metrics=Metrics())
        self._hand = client.CoreV1Api(connection)
        self._store = store
        self.edits = 0

    async def edit(self, obj: Object) -> None:
        """The other hand."""
        metadata = obj["metadata"]
        await self._hand.patch_namespaced_config_map(metadata["name"], metadata["namespace"], {"data": {"x": "edited"}})
        live = await self.get(CONFIG_MAP, metadata["namespace"], metadata["name"])
        assert live is not None
        self._store.put(live)

    async def apply(self, desired: Object, live: Object | None) -> Object:
        result = await super().apply(desired, live)
        if self.edits:
            self.edits -= 1
            await self.edit(desired)
        return result


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
async def cluster(api_server: Path, store: Store) -> AsyncIterator[Overtaken]:
    connected = Overtaken(await api_client(api_server), store)
    yield connected
    await connected.close()


def applying(cluster: Cluster, store: Store, namespace: str) -> Write:
    applier = Applier(cluster=cluster, store=store, obstacles=Obstacles(cluster, lambda: 0.0))
    md: Object = {"metadata": {"name": "a", "namespace": namespace, "uid": "1", "generation": 1}}
    return lambda desired: applier.apply(Owner("md", namespace, "a"), md, [desired], prunable=lambda _: False)


def writing(cluster: Cluster, store: Store, namespace: str) -> Write:
    writer = Writer(cluster, store)
    return lambda desired: writer.write([desired])


@pytest.mark.parametrize("writes", [applying, writing])
async def test_an_edit_that_overtakes_the_answer_to_our_own_write_is_repaired(
    cluster: Overtaken, store: Store, namespace: str, writes: Callable[[Cluster, Store, str], Write]
) -> None:
    write = writes(cluster, store, namespace)
    labels = {names.LABEL_MANAGED_BY: names.MANAGED_BY}
    metadata = {"name": "a", "namespace": namespace, "labels": labels}
    desired: Object = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"x": "wanted"}}
    await write(desired)
    await cluster.edit(desired)
    cluster.edits = 1
    await write(desired)
    live = store.get(CONFIG_MAP, namespace, "a")
    assert live is not None
    assert live["data"] == {"x": "edited"}
    await write(desired)
    live = await cluster.get(CONFIG_MAP, namespace, "a")
    assert live is not None
    assert live["data"] == {"x": "wanted"}
