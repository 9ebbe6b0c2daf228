"""What a router's files say, as values: which clusters exist, and which of them each model's route names.

Two kinds of clusters. A *plain* cluster holds the pods of one revision. A *role* cluster is an Envoy aggregate of two
plain ones: the first takes everything while it has a healthy pod, the second takes over when it has none. A role
cluster's name says what it is made of, so that its meaning never changes under a route that names it.

Each has a twin for gRPC, if the pods have a port of it: the same pods, weights and fall-overs, another port and HTTP/2.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel, ConfigDict, PositiveInt
from pydantic.alias_generators import to_camel

from headway_operator.router import intent as intents
from headway_operator.router.intent import Intent

_GRPC = "/grpc"


def plain(model: str, revision: str) -> str:
    """Name of the cluster that holds the pods of one revision."""
    return f"{model}/{revision}"


def role(model: str, revision: str, fallback: str | None) -> str:
    """Name of the cluster that a weight for `revision` points at."""
    return plain(model, revision) if fallback is None else f"{plain(model, revision)}+{fallback}"


def over_grpc(cluster: str) -> str:
    """Name of a cluster's twin."""
    return f"{cluster}{_GRPC}"


def is_grpc(cluster: str) -> bool:
    """Whether it is a twin."""
    return cluster.endswith(_GRPC)


def over_http(cluster: str) -> str:
    """The cluster that this one, or its twin, is."""
    return cluster.removesuffix(_GRPC)


def members(cluster: str) -> tuple[str, ...]:
    """The plain clusters that a role cluster is made of, in order of priority; () for a plain cluster."""
    if is_grpc(cluster):
        return tuple(over_grpc(member) for member in members(over_http(cluster)))
    first, _, fallback = cluster.partition("+")
    return (first, plain(first.partition("/")[0], fallback)) if fallback else ()


@dataclass(frozen=True, slots=True)
class Route:
    """How requests for one model are answered. No weights: 503 NoReadyRevision."""

    stable: str | None = None  # revision behind `x-headway-revision: stable`
    canary: str | None = None
    pins: tuple[str, ...] = ()  # revisions that a header or a path may name
    weights: Mapping[str, int] = field(default_factory=dict)  # revision -> per cent, above 0, sum 100
    carriers: Mapping[str, str] = field(default_factory=dict)  # revision -> the cluster that its weight points at
    grpc_pins: tuple[str, ...] = ()  # pins whose pods have a port of gRPC
    grpc: Mapping[str, str] = field(default_factory=dict)  # as `carriers`, for calls of gRPC

    def named(self, model: str) -> frozenset[str]:
        """Every cluster that must exist for this route to work, members of role clusters included."""
        pinned = {plain(model, r) for r in (*self.pins, self.stable, self.canary) if r is not None}
        pinned |= {over_grpc(plain(model, r)) for r in self.grpc_pins}
        carriers = {*self.carriers.values(), *self.grpc.values()}
        return frozenset(pinned | carriers | {member for carrier in carriers for member in members(carrier)})


@dataclass(frozen=True, slots=True)
class Published:
    """The content of a namespace's router files, and what must be remembered to change it safely.

    Serials grow with every change, so that a version never comes back: a router that still has an old file of the same
    content cannot be taken for one that has seen the change and its reversal.
    """

    intents: Mapping[str, Intent] = field(default_factory=dict)  # model -> what it asked for last
    clusters: Mapping[str, int] = field(default_factory=dict)  # cluster -> max_requests of its circuit breaker
    routes: Mapping[str, Route] = field(default_factory=dict)  # model -> route
    clusters_serial: int = 0
    routes_serial: int = 0
    confirmed: frozenset[str] = frozenset()  # clusters that every serving router acknowledged since they were published
    retired: Mapping[str, float] = field(default_factory=dict)  # cluster -> since when no router has a route to it

    def same_files(self, other: "Published") -> bool:
        """True when nothing differs that the ConfigMap must keep; `confirmed` and `retired` are learned again."""
        return (self.intents, self.clusters, self.routes) == (other.intents, other.clusters, other.routes)


def to_json(published: Published) -> dict[str, Any]:
    """As kept in the router's ConfigMap."""
    return {
        "intents": [intents.to_json(intent) for _, intent in sorted(published.intents.items())],
        "clusters": dict(sorted(published.clusters.items())),
        "routes": {model: _route_to_json(route) for model, route in sorted(published.routes.items())},
        "clustersSerial": published.clusters_serial,
        "routesSerial": published.routes_serial,
        "unconfirmed": sorted(published.clusters.keys() - published.confirmed),  # few, where the others are many
        "retired": dict(sorted(published.retired.items())),
    }


def from_json(value: Any) -> Published:
    """The inverse of `to_json`. Raises ValueError when it is not ours: a ConfigMap is soon edited by hand."""
    kept = _Kept.model_validate(value, strict=True)
    return Published(
        intents={intent["model"]: intents.from_json(intent) for intent in kept.intents},
        clusters=kept.clusters,
        routes={model: _route_from_json(model, route) for model, route in kept.routes.items()},
        clusters_serial=kept.clusters_serial,
        routes_serial=kept.routes_serial,
        confirmed=frozenset() if kept.unconfirmed is None else frozenset(kept.clusters) - frozenset(kept.unconfirmed),
        retired=kept.retired,
    )


class _Kept(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel)

    intents: list[dict[str, Any]]
    clusters: dict[str, PositiveInt]
    routes: dict[str, "_KeptRoute"]
    clusters_serial: int
    routes_serial: int
    unconfirmed: list[str] | None = None  # an older state's: all of them, until they are acknowledged again
    retired: dict[str, float]


class _KeptRoute(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel)

    stable: str | None
    canary: str | None
    pins: list[str]
    weights: dict[str, PositiveInt]
    carriers: dict[str, str]
    grpc_pins: list[str] = []  # older states have neither
    grpc: dict[str, str] = {}


def _route_to_json(route: Route) -> dict[str, Any]:
    return {
        "stable": route.stable,
        "canary": route.canary,
        "pins": list(route.pins),
        "weights": dict(sorted(route.weights.items())),
        "carriers": dict(sorted(route.carriers.items())),
        "grpcPins": list(route.grpc_pins),
        "grpc": dict(sorted(route.grpc.items())),
    }


def _route_from_json(model: str, kept: _KeptRoute) -> Route:
    if kept.weights.keys() != kept.carriers.keys() or sum(kept.weights.values()) not in (0, 100):
        raise ValueError(f"route of {model}: weights must sum to 100, each with its carrier, not {kept.weights}")
    if kept.grpc and kept.grpc.keys() != kept.weights.keys():
        raise ValueError(f"route of {model}: gRPC goes to {sorted(kept.grpc)}, not where the weights are")
    return Route(
        kept.stable, kept.canary, tuple(kept.pins), kept.weights, kept.carriers, tuple(kept.grpc_pins), kept.grpc
    )
