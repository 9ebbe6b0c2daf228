"""Make before break: what may be published next, given what every serving router acknowledged.

Adding a cluster together with the route that names it, or removing both at once, drops requests: Envoy takes its files
one by one, and a cluster must first find its pods. So a change takes up to three publications:

1. the clusters that the intents want, once a pod of theirs was ready; they are *confirmed* once every serving router
   has them and has warmed them;
2. a route names confirmed clusters only, and gives a revision its first weight only when every router sees a healthy
   pod of it;
3. a cluster leaves once every serving router has routes without it, and `DRAIN_SECONDS` more have passed.

A change of weights between clusters that are in use needs no step before it: a roll-back never waits for another model.
"""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace

from headway_operator.router.intent import Intent
from headway_operator.router.render.published import (
    Published,
    Route,
    is_grpc,
    members,
    over_grpc,
    over_http,
    plain,
    role,
)

# Between the last route without a cluster and the cluster's end. Requests that are in flight live on after it.
DRAIN_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Ack:
    """What one serving router said last. One that did not answer has empty versions."""

    router: str
    clusters: str = ""  # version of the clusters file it obeys
    routes: str = ""
    listeners: str = ""
    warming: int = 0  # clusters that it knows but does not use yet
    healthy: Mapping[str, int] = field(default_factory=dict)  # plain cluster -> pods that pass their health check
    rejections: int = 0  # files refused since it started


@dataclass(frozen=True, slots=True)
class Step:
    """What to publish next, and why it is not yet all that was asked for."""

    published: Published
    clusters_acknowledged: bool  # every serving router has the clusters that were published before this step
    routes_acknowledged: bool
    healthy: frozenset[
        str
    ]  # plain clusters that are confirmed, and healthy in every serving router, as their twins are
    waits: tuple[str, ...]  # what the wanted routes wait for, one sentence each
    unhealthy: frozenset[str]  # wanted plain clusters that some router sees no healthy pod of
    drain_ends: float | None  # when the next cluster may leave


def step(
    published: Published,
    wanted: Mapping[str, Intent],
    *,
    acks: Sequence[Ack],
    reachable: AbstractSet[str],
    clusters_version: str,
    routes_version: str,
    now: float,
) -> Step:
    """The next publication.

    `acks` holds one entry per serving router, and the versions are those of `published` as rendered. With no serving
    router nothing is acknowledged. `reachable` are the plain clusters that have a ready pod: to look for the name of a
    revision before it has addresses would leave "no such name" in DNS caches for up to 30 s. `now` is in seconds since
    the epoch.
    """
    has_clusters = bool(acks) and all(ack.clusters == clusters_version and ack.warming == 0 for ack in acks)
    has_routes = bool(acks) and all(ack.routes == routes_version for ack in acks)
    confirmed = published.confirmed | frozenset(published.clusters) if has_clusters else published.confirmed
    seen = frozenset(c for c in confirmed if acks and all(ack.healthy.get(c, 0) > 0 for ack in acks))
    healthy = frozenset(c for c in seen if is_grpc(c) or over_grpc(c) not in published.clusters or over_grpc(c) in seen)

    waits: list[str] = []
    routes: dict[str, Route] = {}
    for model, intent in sorted(wanted.items()):
        current = published.routes.get(model, Route())
        routes[model], wait = _next_route(intent, current, confirmed=confirmed, healthy=healthy)
        waits += wait

    findable = reachable | published.clusters.keys()
    needed = {
        cluster: limit
        for intent in wanted.values()
        for cluster, limit in clusters_of(intent).items()
        if findable.issuperset(map(over_http, members(cluster) or (cluster,)))
    }
    retired = _retired(published, needed=needed.keys(), has_routes=has_routes, now=now)
    expired = {cluster for cluster, since in retired.items() if now - since >= DRAIN_SECONDS}
    clusters = {c: limit for c, limit in published.clusters.items() if c not in expired} | needed
    # A member of a role cluster is named and needed wherever the role cluster is, so that it never leaves before it.

    following = Published(
        intents=dict(wanted),
        clusters=clusters,
        routes=routes,
        clusters_serial=published.clusters_serial + (clusters != published.clusters),
        routes_serial=published.routes_serial + (routes != published.routes),
        confirmed=confirmed & frozenset(clusters),
        retired={cluster: since for cluster, since in retired.items() if cluster in clusters},
    )
    plains = frozenset(cluster for cluster in needed if not members(cluster))
    return Step(
        published=following,
        clusters_acknowledged=has_clusters,
        routes_acknowledged=has_routes,
        healthy=frozenset(c for c in healthy if not members(c) and not is_grpc(c)),
        waits=tuple(waits),
        unhealthy=plains - healthy,
        drain_ends=min((since + DRAIN_SECONDS for since in following.retired.values()), default=None),
    )


def clusters_of(intent: Intent) -> dict[str, int]:
    """Every cluster that an intent may need, with its limit: published ahead, so that no later change has to wait."""
    limits = {backend.revision: backend.max_requests for backend in intent.backends}
    wanted = {plain(intent.model, revision): limit for revision, limit in limits.items()}
    for revision, limit in limits.items():
        fallback = intent.canary if revision == intent.stable else intent.stable
        if fallback is not None and fallback != revision:
            wanted[role(intent.model, revision, fallback)] = max(limit, limits[fallback])
    grpc = _with_grpc(intent)
    twins = {over_grpc(c): limit for c, limit in wanted.items() if grpc.issuperset(members(c) or (c,))}
    return wanted | twins


def _next_route(
    intent: Intent, current: Route, *, confirmed: frozenset[str], healthy: frozenset[str]
) -> tuple[Route, list[str]]:
    """The route that may be published now: all of the intent, or the current weights with what pins are possible."""
    model, weights = intent.model, intent.carrying
    pins = tuple(sorted(b.revision for b in intent.backends if plain(model, b.revision) in confirmed))
    carriers = {revision: _carrier(intent, revision) for revision in weights}
    following = Route(
        stable=intent.stable if intent.stable in pins or intent.stable is None else current.stable,
        canary=intent.canary if intent.canary in pins or intent.canary is None else current.canary,
        pins=pins,
        weights=weights,
        carriers=carriers,
        grpc_pins=tuple(r for r in pins if over_grpc(plain(model, r)) in confirmed),
        grpc={revision: _grpc_carrier(intent, carrier) for revision, carrier in carriers.items()},
    )
    missing = sorted(following.named(model) - confirmed - current.named(model))
    waits = [f"{model}: cluster {cluster} is not acknowledged by every router" for cluster in missing]
    waits += [
        f"{model}: revision {revision} has no healthy pod in sight of every router"
        for revision in weights
        if revision not in current.weights and plain(model, revision) not in healthy
    ]
    if waits:
        following = replace(following, weights=current.weights, carriers=current.carriers, grpc=current.grpc)
    return following, waits


def _carrier(intent: Intent, revision: str) -> str:
    """The stable takes over from any other; a candidate takes over from the stable once it carries traffic itself."""
    if revision != intent.stable:
        return role(intent.model, revision, intent.stable)
    verified = intent.canary if intent.canary in intent.carrying and intent.canary != revision else None
    return role(intent.model, revision, verified)


def _grpc_carrier(intent: Intent, carrier: str) -> str:
    """The same for gRPC. Pods without a port of it get their share all the same, and answer that they have none."""
    grpc = _with_grpc(intent)
    parts = members(carrier) or (carrier,)
    if grpc.issuperset(parts):
        return over_grpc(carrier)
    return over_grpc(parts[0]) if parts[0] in grpc else carrier


def _with_grpc(intent: Intent) -> frozenset[str]:
    return frozenset(plain(intent.model, backend.revision) for backend in intent.backends if backend.grpc)


def _retired(published: Published, *, needed: AbstractSet[str], has_routes: bool, now: float) -> dict[str, float]:
    """Since when each superfluous cluster has had no route to it in any serving router."""
    named = {c for model, route in published.routes.items() for c in route.named(model)}
    retired: dict[str, float] = {}
    for cluster in published.clusters:
        if cluster in needed or cluster in named:
            continue
        if cluster in published.retired:
            retired[cluster] = min(published.retired[cluster], now)  # the clock may have been set back
        elif has_routes:
            retired[cluster] = now
    return retired
