"""The values that flow through a pass: what was observed, and what was decided. Frozen, no I/O, no clock.

`Observed` is everything `plan` may look at. `Plan` is everything that `desired` and `status` may look at besides it.
Times are seconds since the epoch and come from the objects themselves or from the `now` of the pass.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from headway_api import names
from headway_api.podconfig import Report, Termination
from headway_api.revision import Cold
from headway_api.types import Spec

Object = dict[str, Any]  # a Kubernetes object as JSON


class Role(StrEnum):
    """What a revision is to the users of its ModelDeployment."""

    STABLE = "Stable"
    INCOMING = "Incoming"  # becomes the stable one when it is ready and verified
    CANARY = "Canary"
    PREVIOUS = "Previous"


@dataclass(frozen=True, slots=True)
class Resource:
    """The ModelDeployment itself. `spec` is None when it cannot be read, and `spec_error` then says why."""

    name: str
    namespace: str
    uid: str
    generation: int
    annotations: Mapping[str, str]
    spec: Spec | None
    spec_error: str | None
    status: Object  # as last written by us; {} at first


@dataclass(frozen=True, slots=True)
class Record:
    """A revision as its ControllerRevision recorded it when it was first seen. Immutable but for `pin` and `role`."""

    name: str
    base: str  # revision_name(cold) without salt
    cold: Cold
    image: str  # runtime image that was resolved then
    pod_template: Object  # complete: Deployments are rendered from this, never from the code of the day
    config: str  # text of the cold ConfigMap's config.json
    number: int  # ControllerRevision.revision: grows with each new record of the ModelDeployment
    pin: str | None = None  # digest that every pod must find
    role: Role | None = None  # for a restore without status: Stable or Previous

    @property
    def serves_grpc(self) -> bool:
        """Whether its pods have a port of gRPC. What was recorded before there was one goes on without."""
        containers = self.pod_template.get("spec", {}).get("containers", [])
        ports = [port for container in containers for port in container.get("ports", [])]
        return any(port.get("containerPort") == names.GRPC_PORT for port in ports)


@dataclass(frozen=True, slots=True)
class Pod:
    """A runtime pod. `report` is None until it could be read once for this (uid, restarts)."""

    name: str
    uid: str
    revision: str
    ip: str | None
    ready: bool
    terminating: bool
    unschedulable: str | None = None  # the scheduler's message
    waiting: tuple[str, str] | None = (
        None  # (reason, message) of a container that waits: ImagePullBackOff, CreateContainerConfigError, …
    )
    oom_killed: bool = False  # the last end of a container was by memory
    restarts: int = 0
    termination: Termination | None = None  # newest typed message of either container
    terminated: str | None = None  # the container that left it: the model in `serve` may write what it likes
    digest: str | None = None  # what its prepare container found: `Termination.digest` of a Prepared message
    signer: str | None = None  # id of the key whose signature it verified, of the same message
    container: str | None = None  # the container that waiting, oom_killed or termination speaks of
    failed_at: float | None = None  # when that container ended last
    report: Report | None = None


@dataclass(frozen=True, slots=True)
class Workload:
    """The Deployment of a revision, as the API server has it."""

    revision: str
    replicas: int
    ready: int  # pods that are Ready


@dataclass(frozen=True, slots=True)
class RouteState:
    """What the routers of the namespace acknowledged for this ModelDeployment."""

    weights: Mapping[str, int] | None = (
        None  # revision -> per cent; {} = acknowledged 503; None: nothing acknowledged yet
    )
    clusters: frozenset[str] = frozenset()  # revisions whose cluster every serving router has and sees healthy
    routers: int = 0  # routers that serve
    acknowledged_at: float | None = None  # when `weights` was first seen acknowledged
    rejected: str | None = None  # Envoy's own words when it refused a file
    pending: bool = False  # not every serving router has confirmed the newest intent (read after it was published):
    # some may run it already, so `weights` (still the last confirmed ones) verify nothing
    known: bool = True  # False until the routers were asked once since the operator started


@dataclass(frozen=True, slots=True)
class Observed:
    """Everything a pass may decide from."""

    resource: Resource
    records: Mapping[str, Record]
    workloads: Mapping[str, Workload]
    pods: tuple[Pod, ...]
    route: RouteState
    conflicts: tuple[str, ...] = ()  # "Service/sentiment": objects of our names that are not ours
    refused: str | None = None  # the API server's words: a quota, a policy, or a right that the operator lacks
    namespace_full: bool = False
    namespace_terminating: bool = False
    default_image: str = ""  # runtime image of this operator's release
    secrets_missing: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Target:
    """What one revision should be now."""

    revision: str
    role: Role
    replicas: int
    weight: int  # wanted; status reports what the routers acknowledged
    leaving: bool = False  # has lost its role: weight 0 first, then no pods, then no objects


@dataclass(frozen=True, slots=True)
class Abort:
    """A rollout that was given up; it stays so until the spec changes."""

    revision: str
    generation: int
    reason: str
    message: str
    time: float


@dataclass(frozen=True, slots=True)
class Step:
    """The rung of the ladder that decided: a name for logs, and what the user reads in UpToDate."""

    rung: str
    reason: str
    message: str
    settled: bool = False  # what serves is what spec asks for


@dataclass(frozen=True, slots=True)
class Plan:
    """What should be, decided from one `Observed`."""

    step: Step
    targets: tuple[Target, ...] = ()
    new_records: tuple[Record, ...] = ()  # to be written before anything that needs them
    pins: Mapping[str, str] = field(default_factory=dict)  # revision -> digest to record now
    forget: tuple[str, ...] = ()  # revisions whose record may be deleted
    in_traffic: frozenset[str] | None = None  # revisions that a router may send to; None: any, nothing is verified
    rollout_since: Mapping[str, float] = field(default_factory=dict)  # revision -> when its rollout began
    role_since: Mapping[str, float] = field(default_factory=dict)  # revision -> when it took its present role
    abort: Abort | None = None
    look_again: float | None = None  # seconds from now
    hands_off: bool = False  # apply nothing, prune nothing, leave the routers as they are; only status may change

    def target(self, role: Role) -> Target | None:
        """The revision in this role, if there is one; one that is leaving has lost it."""
        return next((t for t in self.targets if t.role is role and not t.leaving), None)
