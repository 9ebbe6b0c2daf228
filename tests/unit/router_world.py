"""Routers as bad as they may be, and the passes of an operator that publishes files for them."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

import yaml
from headway_operator.router.intent import Backend, Intent
from headway_operator.router.render import Ack, File, Published, Site, Step, published, render, step
from headway_operator.router.render.published import is_grpc, members, over_http, plain
from headway_operator.router.render.step import DRAIN_SECONDS

SITE = Site("prod")
MODELS = ("cats", "dogs")
REVISIONS = ("aaaa1111", "bbbb2222", "cccc3333")
GRPC = REVISIONS[1:]  # the first is from before there was gRPC


def all_plain() -> frozenset[str]:
    return frozenset(plain(model, revision) for model in MODELS for revision in REVISIONS)


def clusters_version(state: Published) -> str:
    """As the renderer would name the file, but quick."""
    return f"{state.clusters_serial}-{sorted(state.clusters.items())}"


def routes_version(state: Published) -> str:
    return f"{state.routes_serial}-{published.to_json(state)['routes']}"


@dataclass
class Router:
    """A router as bad as it may be: takes each file when it likes, and every version in between if it likes."""

    clusters: tuple[int, Published]  # position in the history of publications, and what it says
    routes: tuple[int, Published]
    serving: bool = True
    healthy: frozenset[str] = field(default_factory=all_plain)

    def ack(self) -> Ack:
        return Ack(
            "router",
            clusters=clusters_version(self.clusters[1]),
            routes=routes_version(self.routes[1]),
            healthy={cluster: int(over_http(cluster) in self.healthy) for cluster in self.clusters[1].clusters},
        )

    def check(self) -> None:
        """Whatever it has loaded: no route names a cluster that it does not have, and no aggregate either."""
        present = self.clusters[1].clusters.keys()
        for model, route in self.routes[1].routes.items():
            assert route.named(model) <= present, (route, sorted(present))
            assert sum(route.weights.values()) in (0, 100)
            assert set(route.carriers) == set(route.grpc) == set(route.weights)
            for revision, carrier in route.grpc.items():
                assert is_grpc(carrier) is (revision in GRPC)
        for cluster in present:
            assert set(members(cluster)) <= present


@dataclass
class World:
    history: list[Published] = field(default_factory=lambda: [Published()])
    wanted: Mapping[str, Intent] = field(default_factory=dict)
    now: float = 1_000.0
    routers: list[Router] = field(default_factory=list)
    reachable: frozenset[str] = field(default_factory=all_plain)
    current: Published = field(default_factory=Published)

    def pass_(self) -> Step:
        outcome = step(
            self.current,
            self.wanted,
            acks=[router.ack() for router in self.routers if router.serving],
            reachable=self.reachable,
            clusters_version=clusters_version(self.current),
            routes_version=routes_version(self.current),
            now=self.now,
        )
        if not self.current.same_files(outcome.published):
            self.history.append(outcome.published)
        self.current = outcome.published
        return outcome

    def newest(self) -> tuple[int, Published]:
        return len(self.history) - 1, self.history[-1]


def settled(*wanted: Intent) -> Published:
    """What is published once everything is acknowledged and healthy."""
    world = World(wanted={intent.model: intent for intent in wanted})
    healthy = frozenset(plain(each.model, backend.revision) for each in wanted for backend in each.backends)
    world.routers = [Router(world.newest(), world.newest(), healthy=healthy)]
    world.reachable = healthy
    settle(world)
    return world.current


def settle(world: World) -> None:
    """Let all routers acknowledge until nothing changes any more."""
    for _ in range(6):
        world.pass_()
        for router in world.routers:
            router.clusters = router.routes = world.newest()
        world.now += DRAIN_SECONDS


def two(stable: int, canary: int) -> Intent:
    weights = {revision: weight for revision, weight in zip(REVISIONS, (stable, canary), strict=False) if weight}
    backends = tuple(Backend(revision, 100) for revision in REVISIONS[:2])
    return Intent("cats", REVISIONS[0], REVISIONS[1], weights, backends)


def settled_world(*wanted: Intent) -> World:
    """Two routers that acknowledged everything."""
    world = World(wanted={intent.model: intent for intent in wanted})
    world.routers = [Router(world.newest(), world.newest()) for _ in range(2)]
    settle(world)
    return world


def with_grpc(intent: Intent, *revisions: str) -> Intent:
    """The same, of which these revisions have gRPC."""
    return replace(intent, backends=tuple(replace(b, grpc=b.revision in revisions) for b in intent.backends))


def read(file: File) -> dict[str, Any]:
    """A file as Envoy reads it."""
    return cast("dict[str, Any]", yaml.safe_load(file.text))


def virtual_host(state: Published, model: str) -> dict[str, Any]:
    hosts = read(render(state, SITE).routes)["resources"][0]["virtual_hosts"]
    return next(cast("dict[str, Any]", host) for host in hosts if host["name"] == model)
