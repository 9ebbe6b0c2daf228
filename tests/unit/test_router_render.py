"""Make before break as properties: random wishes, routers that lag, restart and read their files one by one."""

import json
from collections.abc import Mapping
from dataclasses import replace

import yaml
from headway_api import names
from headway_operator.router.intent import Backend, Intent
from headway_operator.router.render import Ack, flow, published, render, step
from headway_operator.router.render.published import members, over_grpc, plain
from headway_operator.router.render.step import DRAIN_SECONDS
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.router_world import (
    GRPC,
    MODELS,
    REVISIONS,
    SITE,
    Router,
    World,
    all_plain,
    read,
    settle,
    settled,
    settled_world,
    two,
    virtual_host,
)


@st.composite
def intents(draw: st.DrawFn, model: str) -> Intent:
    revisions = draw(st.lists(st.sampled_from(REVISIONS), unique=True))
    backends = tuple(Backend(revision, draw(st.sampled_from((64, 128))), revision in GRPC) for revision in revisions)
    stable = draw(st.sampled_from([None, *revisions]))
    canary = draw(st.sampled_from([None, *(r for r in revisions if r != stable)]))
    carrying = draw(st.lists(st.sampled_from(revisions), unique=True, max_size=2)) if revisions else []
    share = draw(st.integers(0, 100))
    weights = dict(zip(carrying, (share, 100 - share) if len(carrying) == 2 else (100,), strict=False))
    return Intent(model, stable, canary, weights, backends)


@st.composite
def wishes(draw: st.DrawFn) -> Mapping[str, Intent]:
    return {model: draw(intents(model)) for model in draw(st.lists(st.sampled_from(MODELS), unique=True))}


ACTS = ("want", "pass", "settle", "settle", "clusters", "routes", "restart", "operator", "health", "pods")


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_no_router_ever_has_a_route_without_its_cluster_and_all_end_where_they_should(data: st.DataObject) -> None:
    world = World()
    world.routers = [Router(world.newest(), world.newest()) for _ in range(2)]
    for act in data.draw(st.lists(st.sampled_from(ACTS), min_size=25, max_size=40)):
        router = data.draw(st.sampled_from(world.routers))
        match act:
            case "want":
                world.wanted = data.draw(wishes())
                world.pass_()
            case "pass":
                world.now += data.draw(st.sampled_from((0.5, DRAIN_SECONDS + 1)))
                world.pass_()
            case "settle":  # as it usually goes: all acknowledge, and look again
                for each in world.routers:
                    each.clusters = each.routes = world.newest()
                world.pass_()
            case "operator":  # it restarts: what it had only in memory is gone
                stored = world.history[-1]
                world.current = published.from_json(json.loads(json.dumps(published.to_json(stored))))
                assert world.current == stored
            case "health":
                router.healthy = frozenset(data.draw(st.sets(st.sampled_from(sorted(all_plain())))))
            case "pods":
                world.reachable = frozenset(data.draw(st.sets(st.sampled_from(sorted(all_plain())))))
            case "restart":  # not serving, then all files at once
                router.serving = not router.serving
                if router.serving:
                    router.clusters = router.routes = world.newest()
            case "clusters" | "routes":  # one file, perhaps not the newest version
                position = data.draw(st.integers(getattr(router, act)[0], len(world.history) - 1))
                setattr(router, act, (position, world.history[position]))
        for each in world.routers:
            if each.serving:
                each.check()

    world.reachable = all_plain()
    for router in world.routers:
        router.serving, router.healthy = True, all_plain()
        router.clusters = router.routes = world.newest()
    for _ in range(8):
        outcome = world.pass_()
        for router in world.routers:
            router.clusters = router.routes = world.newest()
            router.check()
        world.now += DRAIN_SECONDS
    assert world.pass_() == replace(outcome, published=world.current)
    assert (outcome.waits, outcome.drain_ends, outcome.unhealthy) == ((), None, frozenset())
    final = world.current
    assert final.intents == world.wanted
    assert {model: route.weights for model, route in final.routes.items()} == {
        model: intent.carrying for model, intent in world.wanted.items()
    }
    backends = {plain(model, b.revision) for model, intent in world.wanted.items() for b in intent.backends}
    twins = {over_grpc(cluster) for cluster in backends if cluster.endswith(GRPC)}
    assert {cluster for cluster in final.clusters if not members(cluster)} == backends | twins
    for model, intent in world.wanted.items():
        assert set(final.routes[model].grpc_pins) == {b.revision for b in intent.backends if b.grpc}


def test_weights_are_rendered_exactly_and_point_at_role_clusters() -> None:
    route = virtual_host(settled(two(93, 7)), "cats")["routes"][-1]["route"]
    assert route["weighted_clusters"]["clusters"] == [
        {"name": "cats/aaaa1111+bbbb2222", "weight": 93},
        {"name": "cats/bbbb2222+aaaa1111", "weight": 7},
    ]


def test_a_candidate_without_weight_does_not_take_over_from_the_stable() -> None:
    route = virtual_host(settled(two(100, 0)), "cats")["routes"][-1]["route"]
    assert route["cluster"] == "cats/aaaa1111"


def test_a_roll_back_between_known_clusters_waits_for_no_acknowledgement() -> None:
    before = settled(two(50, 50))
    warming = Ack("router", clusters="old", routes="old", warming=3)
    wanted = {"cats": two(100, 0), "dogs": replace(two(100, 0), model="dogs")}
    outcome = step(
        before, wanted, acks=[warming], reachable=all_plain(), clusters_version="new", routes_version="new", now=0
    )
    assert outcome.published.routes["cats"].weights == {REVISIONS[0]: 100}
    assert outcome.published.routes["dogs"].weights == {}


def test_a_route_waits_for_the_clusters_of_the_last_router() -> None:
    world = settled_world(replace(two(100, 0), backends=two(100, 0).backends[:1], canary=None))
    world.wanted = {"cats": two(90, 10)}
    world.pass_()
    for router, weights in zip(world.routers, ({"aaaa1111": 100}, {"aaaa1111": 90, "bbbb2222": 10}), strict=True):
        router.clusters = world.newest()
        outcome = world.pass_()
        assert outcome.published.routes["cats"].weights == weights
        assert set(outcome.published.routes["cats"].pins) == set(weights)


def test_a_cluster_is_looked_for_when_a_pod_is_ready_for_the_first_time_and_stays_when_none_is() -> None:
    world = World(wanted={"cats": two(100, 0)}, reachable=frozenset({"cats/aaaa1111"}))
    world.routers = [Router(world.newest(), world.newest())]
    settle(world)
    assert world.current.clusters.keys() == {"cats/aaaa1111"}
    assert world.current.routes["cats"].weights == {"aaaa1111": 100}
    assert world.pass_().unhealthy == frozenset(), "there is nothing yet that a router could say of the other one"
    for world.reachable in (all_plain(), frozenset()):
        settle(world)
        assert world.current.clusters.keys() >= {"cats/aaaa1111", "cats/bbbb2222", "cats/bbbb2222+aaaa1111"}


def test_a_cluster_leaves_after_the_last_router_dropped_its_route_and_the_drain_time() -> None:
    world = settled_world(two(90, 10))
    clusters, world.wanted = world.current.clusters, {}
    world.pass_()
    for router in world.routers:
        world.now += 1_000
        assert world.pass_().published.clusters == clusters
        router.routes = world.newest()
    assert world.pass_().drain_ends == world.now + DRAIN_SECONDS
    world.now += DRAIN_SECONDS - 0.1
    assert world.pass_().published.clusters == clusters
    world.now += 0.1
    assert world.pass_().published.clusters == {}


def test_a_clock_that_is_set_back_keeps_no_cluster_for_ever() -> None:
    world = settled_world(two(90, 10))
    world.wanted = {}
    world.pass_()
    for router in world.routers:
        router.routes = world.newest()
    world.pass_()
    world.now -= 3600
    world.pass_()
    world.now += DRAIN_SECONDS
    assert world.pass_().published.clusters == {}


def test_a_cluster_that_comes_back_is_acknowledged_again_before_it_is_named() -> None:
    world = settled_world(two(90, 10))
    world.wanted = {}
    settle(world)
    world.wanted = {"cats": two(90, 10)}
    outcome = world.pass_()
    assert outcome.published.clusters
    assert outcome.published.routes["cats"].named("cats") == frozenset()


def test_the_last_revision_that_works_keeps_its_traffic_and_its_cluster_until_the_next_one_is_healthy() -> None:
    world = settled_world(replace(two(100, 0), backends=two(100, 0).backends[:1], canary=None))
    for router in world.routers:
        router.healthy = frozenset()
    world.wanted = {"cats": Intent("cats", REVISIONS[2], None, {REVISIONS[2]: 100}, (Backend(REVISIONS[2], 9),))}
    settle(world)
    outcome = world.pass_()
    assert outcome.published.routes["cats"].weights == {REVISIONS[0]: 100}
    assert "cats/aaaa1111" in outcome.published.clusters
    assert outcome.waits == ("cats: revision cccc3333 has no healthy pod in sight of every router",)


def test_a_router_that_slept_through_a_change_and_its_reversal_has_acknowledged_nothing() -> None:
    world = World(wanted={"cats": two(100, 0)})
    asleep, awake = Router(world.newest(), world.newest()), Router(world.newest(), world.newest())
    world.routers = [asleep, awake]
    settle(world)
    world.routers = [awake]  # the one that sleeps is not seen for a while
    world.wanted = {}
    settle(world)
    world.wanted = {"cats": two(100, 0)}
    settle(world)
    assert world.current.clusters == asleep.clusters[1].clusters
    world.routers = [asleep]
    outcome = world.pass_()
    assert (outcome.clusters_acknowledged, outcome.routes_acknowledged) == (False, False)


def test_without_a_serving_router_nothing_is_acknowledged() -> None:
    before = settled(two(50, 50))
    files = render(before, SITE)
    versions = {"clusters_version": files.clusters.version, "routes_version": files.routes.version}
    outcome = step(before, {}, acks=[], reachable=all_plain(), **versions, now=1e9)
    assert (outcome.clusters_acknowledged, outcome.routes_acknowledged) == (False, False)
    assert outcome.published.clusters == before.clusters


def test_versions_name_the_content_and_never_come_back() -> None:
    first = settled(two(100, 0))
    changed = replace(first, routes_serial=first.routes_serial + 2)
    one, other = render(first, SITE), render(changed, SITE)
    assert one.clusters == other.clusters
    assert one.routes.version != other.routes.version
    assert [read(file)["version_info"] for file in (one.routes, one.clusters)] == [
        one.routes.version,
        one.clusters.version,
    ]


def test_two_hundred_models_fit_into_two_configmaps() -> None:
    revisions = tuple(Backend(revision, 100 + number, True) for number, revision in enumerate(REVISIONS))
    longest = [f"{'m' * (names.MAX_NAME_LENGTH - 3)}{n:03}" for n in range(names.MAX_MODELS_PER_NAMESPACE)]
    state = settled(*(replace(two(90, 10), model=model, backends=revisions) for model in longest))
    files = render(state, SITE)
    kept = len(json.dumps(published.to_json(state), separators=(",", ":")))
    assert len(files.clusters.text) < 1_000_000
    assert len(files.routes.text) + len(files.listeners.text) + kept < 1_000_000


def test_files_mean_the_same_with_and_without_references() -> None:
    state = settled(two(90, 10), replace(two(50, 50), model="dogs"))
    value = read(render(state, SITE).routes)["resources"]
    assert "*r0" in flow.dump(value)
    assert yaml.safe_load(flow.dump(value)) == value
    repeated = [{"a long key of a mapping": "a long text in it"}, {"a long text in it": "a long key of a mapping"}]
    assert yaml.safe_load(flow.dump(repeated)) == repeated
    assert flow.dump(repeated).count("a long") == 2
    assert yaml.safe_load(flow.dump({"a: b": ["x" * 30, "*r0", "\u00e9\n"], "c": 1.5, "d": None, "e": True})) == {
        "a: b": ["x" * 30, "*r0", "\u00e9\n"],
        "c": 1.5,
        "d": None,
        "e": True,
    }
