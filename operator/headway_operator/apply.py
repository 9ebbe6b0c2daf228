"""Making the cluster be as desired: apply what differs, delete what is ours and not wanted, leave all else alone."""

import logging
from collections.abc import Callable, Sequence

from headway_operator import errors
from headway_operator.cluster import Cluster
from headway_operator.compare import Settled
from headway_operator.kinds import CHILDREN, CONTROLLER_REVISION, kind_of
from headway_operator.observed import Object
from headway_operator.obstacles import Obstacles
from headway_operator.ownership import is_controlled_by
from headway_operator.store import Owner, Store
from headway_operator.trim import trimmed

_log = logging.getLogger(__name__)


class Applier:
    """Applies and prunes the children of ModelDeployments."""

    def __init__(self, *, cluster: Cluster, store: Store, obstacles: Obstacles) -> None:
        self._cluster = cluster
        self._store = store
        self._obstacles = obstacles
        self._settled = Settled()
        self._deleted: dict[Owner, set[str]] = {}  # UIDs whose end no watch has shown yet

    async def apply(
        self, owner: Owner, md: Object, desired: Sequence[Object], *, prunable: Callable[[Object], bool]
    ) -> bool:
        """Bring the children of `md` to `desired`, in its order; whether that took any write.

        Raises ClusterError at the first call that fails, except for objects of others, which are passed over and noted.
        """
        wrote = False
        foreign: list[Object] = []
        for wanted in desired:
            if self._obstacles.is_in_the_way(owner, wanted):
                foreign.append(wanted)
                continue
            try:
                wrote |= await self._apply_one(owner, md, wanted)
            except errors.ForeignObjectError as error:
                _log.warning("name_conflict", extra={"namespace": owner.namespace, "object": error.reference})
                foreign.append(wanted)
                wrote = True  # the next pass reports it
        self._obstacles.met_foreign(owner, foreign)
        return await self._prune(owner, md, desired, prunable) or wrote

    async def _apply_one(self, owner: Owner, md: Object, desired: Object) -> bool:
        kind, metadata = kind_of(desired), desired["metadata"]
        live = self._store.get(kind, metadata["namespace"], metadata["name"])
        if live is None and kind is CONTROLLER_REVISION:  # one that lost its labels is in no list and no watch
            live = await self._cluster.get(kind, metadata["namespace"], metadata["name"])
        rendered = desired
        if live is not None:
            desired = _kept_record(desired, live)
            if (where := self._settled.difference(desired, live)) is None:
                return False
            _log.info("apply", extra={**_fields(desired), "because": where})
        else:
            _log.info("create", extra=_fields(desired))
        try:
            result = await self._cluster.apply(desired, live)
        except errors.PredecessorError as error:
            self._obstacles.met_predecessor(owner, md, error.reference)
            raise
        except errors.RejectedError as error:
            message = f"The API server refuses {desired['kind']}/{metadata['name']}: {error.words}"
            self._obstacles.met_refusal(owner, md, message, by_spec=error.status in (400, 422))
            raise
        self._store.put(result)
        if _is_news(rendered, result):
            raise errors.ConflictError(f"{metadata['name']} was recorded before: its pods are rendered from that")
        self._settled.answered(desired, trimmed(result))
        return True

    def forget(self, owner: Owner) -> None:
        """The ModelDeployment is gone."""
        self._deleted.pop(owner, None)

    async def _prune(
        self, owner: Owner, md: Object, desired: Sequence[Object], prunable: Callable[[Object], bool]
    ) -> bool:
        """Delete what this very ModelDeployment controls and does not want: what depends on others first."""
        wanted = {(kind_of(obj), obj["metadata"]["name"]) for obj in desired}
        known = self._deleted.pop(owner, set())
        ending: set[str] = set()
        for kind in reversed(CHILDREN):
            for live in self._store.owned(owner, kind):
                metadata = live["metadata"]
                unwanted = (kind, metadata["name"]) not in wanted and prunable(live)
                if not unwanted or not is_controlled_by(live, md):
                    continue
                if metadata["uid"] not in known and "deletionTimestamp" not in metadata:
                    _log.info("delete", extra=_fields(live))
                    await self._cluster.delete(live)
                    self._settled.forget(metadata["uid"])
                ending.add(metadata["uid"])
        if ending:
            self._deleted[owner] = ending
        return not ending <= known


def _kept_record(desired: Object, live: Object) -> Object:
    """What a ControllerRevision recorded is immutable, whatever today's code would record."""
    if kind_of(desired) is not CONTROLLER_REVISION:
        return desired
    return {**desired, "data": live.get("data"), "revision": live.get("revision")}


def _is_news(desired: Object, live: Object) -> bool:
    """Whether the record that is there holds another revision than the one that this pass has rendered."""
    if kind_of(desired) is not CONTROLLER_REVISION:
        return False
    return any(
        desired["data"][part] != (live.get("data") or {}).get(part) for part in ("cold", "podTemplate", "config")
    )


def _fields(obj: Object) -> dict[str, str]:
    return {"namespace": obj["metadata"]["namespace"], "object": f"{obj['kind']}/{obj['metadata']['name']}"}
