"""Gathering one `Observed`: what the store knows of a ModelDeployment, and what its pods and routers say."""

from collections.abc import Callable
from dataclasses import dataclass

from headway_api import names
from headway_api.podconfig import knobs_hash
from headway_api.types import Spec
from pydantic import ValidationError

from headway_operator.desired import record_of
from headway_operator.kinds import CONFIG_MAP, CONTROLLER_REVISION, DEPLOYMENT, MODEL_DEPLOYMENT, POD, Kind
from headway_operator.mounts import Mounts
from headway_operator.observed import Object, Observed, Record, Resource, RouteState, Workload
from headway_operator.obstacles import Obstacles
from headway_operator.ownership import is_controlled_by
from headway_operator.pods import is_live, parse_pod
from headway_operator.reports import Reports
from headway_operator.status import readable
from headway_operator.store import Owner, Store


@dataclass(frozen=True, slots=True)
class Look:
    """What was observed, and in how many seconds something that no watch tells may have changed (None: never)."""

    observed: Observed
    again: float | None


class Observer:
    """Everything that a pass looks at. `route_state(namespace, name)` is what the routers acknowledged."""

    def __init__(
        self,
        *,
        store: Store,
        reports: Reports,
        mounts: Mounts,
        obstacles: Obstacles,
        route_state: Callable[[str, str], RouteState],
        default_image: str,
    ) -> None:
        self._store = store
        self._reports = reports
        self._mounts = mounts
        self._obstacles = obstacles
        self._route_state = route_state
        self._default_image = default_image

    async def observe(self, owner: Owner, md: Object) -> Look:
        """The world of one ModelDeployment. Raises ClusterError when a question to the API server fails."""
        pods = self.live_pods(owner)
        next_report = await self._reports.refresh(owner, pods, self.wanted_knobs(owner))
        missing, next_mount = await self._mounts.missing(owner, pods)
        conflicts, next_conflict = await self._obstacles.conflicts(owner)
        refusal = self._obstacles.refusal(owner, md)
        records, unreadable = _records(self.children(owner, md, CONTROLLER_REVISION))
        workloads = [_workload(deployment) for deployment in self.children(owner, md, DEPLOYMENT)]
        observed = Observed(
            resource=_resource(md, refusal.message if refusal and refusal.by_spec else unreadable),
            records={record.name: record for record in records},
            workloads={workload.revision: workload for workload in workloads},
            pods=tuple(parse_pod(pod, self._reports.of(owner, pod)) for pod in pods),
            route=self._route_state(owner.namespace, owner.name),
            conflicts=conflicts,
            namespace_full=self._is_beyond_the_limit(md),
            namespace_terminating=self._obstacles.namespace_ends(owner, md),
            refused=refusal.message if refusal and not refusal.by_spec else None,
            default_image=self._default_image,
            secrets_missing=missing,
        )
        next_try = refusal.again if refusal else None
        pauses = [pause for pause in (next_report, next_mount, next_conflict, next_try) if pause is not None]
        return Look(observed=observed, again=min(pauses, default=None))

    def children(self, owner: Owner, md: Object, kind: Kind) -> list[Object]:
        """The objects of a kind whose controller is this very ModelDeployment."""
        return [obj for obj in self._store.owned(owner, kind) if is_controlled_by(obj, md)]

    def wanted_knobs(self, owner: Owner) -> str | None:
        """The hash of the knobs that the API server has for the pods; None before there are any."""
        knobs = self._store.get(CONFIG_MAP, owner.namespace, names.knobs_object(owner.name))
        text = (knobs or {}).get("data", {}).get(names.KNOBS_KEY)
        return None if text is None else knobs_hash(text)

    def live_pods(self, owner: Owner) -> list[Object]:
        """The pods of a ModelDeployment that may still run."""
        return [pod for pod in self._store.owned(owner, POD) if is_live(pod)]

    def _is_beyond_the_limit(self, md: Object) -> bool:
        """Whether the namespace holds as many older ModelDeployments as one router may serve."""
        peers = self._store.all(MODEL_DEPLOYMENT, md["metadata"]["namespace"])
        if len(peers) <= names.MAX_MODELS_PER_NAMESPACE:
            return False
        return sorted(map(_age, peers)).index(_age(md)) >= names.MAX_MODELS_PER_NAMESPACE


def _age(md: Object) -> tuple[str, str]:
    return md["metadata"]["creationTimestamp"], md["metadata"]["name"]


def _records(revisions: list[Object]) -> tuple[list[Record], str | None]:
    """The records, and what is wrong with one that cannot be read.

    A revision is rendered from its record or not at all: a guess would restart its pods.
    """
    records, unreadable = [], []
    for revision in revisions:
        try:
            records.append(record_of(revision))
        except ValueError as error:
            unreadable.append(f"ControllerRevision/{revision['metadata']['name']} cannot be read: {error}")
    advice = "; nothing is changed until it is deleted, which lets this release record the revision anew"
    return records, "; ".join(unreadable) + advice if unreadable else None


def _resource(md: Object, refusal: str | None) -> Resource:
    metadata = md["metadata"]
    spec, error = _spec(md)
    return Resource(
        name=metadata["name"],
        namespace=metadata["namespace"],
        uid=metadata["uid"],
        generation=metadata["generation"],
        annotations=metadata.get("annotations") or {},
        spec=None if refusal else spec,
        spec_error=error or refusal,
        status=readable(md.get("status") or {}),
    )


def _spec(md: Object) -> tuple[Spec | None, str | None]:
    """The spec, or what is wrong with it: every fault with the path of its field."""
    try:
        return Spec.model_validate(md["spec"]), None
    except ValidationError as invalid:
        faults = (f"{'.'.join(map(str, ('spec', *fault['loc'])))}: {fault['msg']}" for fault in invalid.errors())
        return None, "; ".join(faults)


def _workload(deployment: Object) -> Workload:
    status = deployment.get("status") or {}
    return Workload(
        revision=names.revision_of(deployment["metadata"]["name"]),
        replicas=deployment["spec"].get("replicas", 1),
        ready=status.get("readyReplicas", 0),
    )
