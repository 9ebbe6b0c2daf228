"""What routers are told of gRPC: the same weights, a twin of each cluster, and revisions that speak none."""

import json
from dataclasses import replace

from headway_operator.router.render import Ack, published, render
from headway_operator.router.render.published import is_grpc

from tests.unit.router_world import (
    REVISIONS,
    SITE,
    Router,
    read,
    settle,
    settled,
    settled_world,
    two,
    virtual_host,
    with_grpc,
)


def test_grpc_has_the_same_weights_and_falls_over_between_the_ports_of_grpc() -> None:
    host = virtual_host(settled(with_grpc(two(93, 7), *REVISIONS)), "cats")
    by_weight = [rule for rule in host["routes"] if "weighted_clusters" in rule.get("route", {})]
    assert [rule["match"] for rule in by_weight] == [{"prefix": "/", "grpc": {}}, {"prefix": "/"}]
    grpc, http = (rule["route"]["weighted_clusters"]["clusters"] for rule in by_weight)
    assert grpc == [{**each, "name": f"{each['name']}/grpc"} for each in http]


def test_a_twin_is_checked_on_the_port_of_http_and_asked_on_that_of_grpc() -> None:
    state = settled(with_grpc(two(93, 7), *REVISIONS))
    clusters = {each["name"]: each for each in read(render(state, SITE).clusters)["resources"]}
    http, grpc = clusters["cats/aaaa1111"], clusters["cats/aaaa1111/grpc"]
    (endpoint,) = (each["endpoint"] for each in grpc["load_assignment"]["endpoints"][0]["lb_endpoints"])
    assert endpoint["address"]["socket_address"]["port_value"] == 8082
    assert endpoint["health_check_config"] == {"port_value": 8080}
    assert grpc["health_checks"] == http["health_checks"]
    (options,) = grpc["typed_extension_protocol_options"].values()
    assert "http2_protocol_options" in options["explicit_http_config"]
    aggregate = clusters["cats/aaaa1111+bbbb2222/grpc"]["cluster_type"]["typed_config"]
    assert aggregate["clusters"] == ["cats/aaaa1111/grpc", "cats/bbbb2222/grpc"]


def test_revisions_from_before_grpc_keep_their_share_and_are_nobodys_fall_back() -> None:
    state = settled(with_grpc(two(93, 7), REVISIONS[1]))
    route = state.routes["cats"]
    assert route.grpc == {"aaaa1111": "cats/aaaa1111+bbbb2222", "bbbb2222": "cats/bbbb2222/grpc"}
    assert route.grpc_pins == ("bbbb2222",)
    assert not any(name.startswith("cats/aaaa1111") and is_grpc(name) for name in state.clusters)


def test_without_any_grpc_calls_of_it_are_refused_and_the_rest_is_as_before() -> None:
    host = virtual_host(settled(two(93, 7)), "cats")
    grpc = [rule for rule in host["routes"] if "grpc" in rule["match"]]
    assert all("direct_response" in rule for rule in grpc)
    assert {h["header"]["value"] for h in grpc[-1]["response_headers_to_add"]} >= {"12"}


def test_a_revision_gets_no_weight_before_its_twin_is_healthy_too() -> None:
    world = settled_world(with_grpc(replace(two(100, 0), backends=two(100, 0).backends[:1], canary=None), *REVISIONS))
    world.wanted = {"cats": with_grpc(two(90, 10), *REVISIONS)}
    blind = Router(world.newest(), world.newest())
    world.routers = [blind]
    real = blind.ack

    def without_twin() -> Ack:
        found = real()
        return replace(found, healthy={c: n for c, n in found.healthy.items() if c != "cats/bbbb2222/grpc"})

    blind.ack = without_twin  # type: ignore[method-assign]
    settle(world)
    assert world.current.routes["cats"].weights == {"aaaa1111": 100}
    assert world.pass_().healthy == {"cats/aaaa1111"}
    assert "cats/bbbb2222/grpc" in world.pass_().unhealthy
    del blind.ack  # type: ignore[method-assign]
    settle(world)
    assert world.current.routes["cats"].weights == {"aaaa1111": 90, "bbbb2222": 10}
    assert world.current.routes["cats"].grpc["bbbb2222"] == "cats/bbbb2222+aaaa1111/grpc"


def test_a_state_from_before_grpc_is_read() -> None:
    before = settled(two(93, 7))
    kept = published.to_json(before)
    for route in kept["routes"].values():
        del route["grpc"], route["grpcPins"]
    for intent in kept["intents"]:
        del intent["grpc"]
    del kept["unconfirmed"]
    read_back = published.from_json(json.loads(json.dumps(kept)))
    assert read_back.confirmed == frozenset(), "to be acknowledged again"
    assert read_back.routes["cats"].weights == before.routes["cats"].weights
    assert read_back.intents == before.intents
