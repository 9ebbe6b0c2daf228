"""Writing the router's objects: only what differs, and never what is another's."""

import logging
from collections.abc import Sequence

from headway_operator.cluster import Cluster
from headway_operator.compare import Settled
from headway_operator.kinds import kind_of
from headway_operator.observed import Object
from headway_operator.store import Store
from headway_operator.trim import trimmed

_log = logging.getLogger(__name__)


class Writer:
    """Applies and deletes the objects of routers."""

    def __init__(self, cluster: Cluster, store: Store) -> None:
        self._cluster = cluster
        self._store = store
        self._settled = Settled()

    async def write(self, desired: Sequence[Object]) -> None:
        """Bring the objects to what is desired, in this order. Raises ClusterError at the first that fails."""
        for wanted in desired:
            await self._write(wanted)

    async def delete(self, live: Object) -> None:
        """Delete this very object."""
        await self._cluster.delete(live)
        self._settled.forget(live["metadata"]["uid"])

    async def _write(self, desired: Object) -> None:
        kind, metadata = kind_of(desired), desired["metadata"]
        live = self._store.get(kind, metadata["namespace"], metadata["name"])
        if live is not None:
            if (where := self._settled.difference(desired, live)) is None:
                return
            fields = {"namespace": metadata["namespace"], "object": f"{kind.kind}/{metadata['name']}"}
            _log.info("apply", extra={**fields, "because": where})
        result = await self._cluster.apply(desired, live)
        self._store.put(result)
        self._settled.answered(desired, trimmed(result))
