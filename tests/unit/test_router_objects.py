"""The router's objects, and reading what a router says."""

import json
from dataclasses import replace
from typing import Any

import kubernetes_validate
import pytest
from headway_operator.router import readout
from headway_operator.router.intent import Backend, Intent
from headway_operator.router.objects import Object, Pinned, objects, pinned, stored
from headway_operator.router.podtemplate import Image
from headway_operator.router.render import Published, Route, Site, render
from headway_operator.router.render.published import to_json

SITE = Site("prod")


def made(site: Site = SITE, pin: Pinned | None = None) -> dict[str, Object]:
    """The objects of a router that serves nothing yet."""
    state = Published()
    found = objects(site, state, render(state, site), pin or pinned(None, site, Image("router:1")))
    return {f"{obj['kind']}/{obj['metadata']['name']}": obj for obj in found}


def test_every_object_is_valid_and_has_no_owner() -> None:
    for obj in made().values():
        kubernetes_validate.validate(obj, "1.37", strict=True)
        assert "ownerReferences" not in obj["metadata"]
        assert obj["metadata"]["labels"]["headway.dev/component"] == "router"


def test_a_router_keeps_the_pod_template_and_the_bootstrap_of_its_first_day() -> None:
    first = made()
    later = replace(SITE, admin_port=1, readout_port=2)
    again = made(later, pinned(first["ConfigMap/headway-router"], later, Image("router:2")))
    assert again["Deployment/headway-router"] == first["Deployment/headway-router"]
    assert again["ConfigMap/headway-router"]["data"]["bootstrap.json"] == _bootstrap(first)
    assert made(later)["Deployment/headway-router"] != first["Deployment/headway-router"]


def test_a_router_pulls_its_image_with_the_secrets_that_the_operator_was_given() -> None:
    given = made(pin=pinned(None, SITE, Image("router:1", ("registry-read",))))["Deployment/headway-router"]
    assert given["spec"]["template"]["spec"]["imagePullSecrets"] == [{"name": "registry-read"}]
    kubernetes_validate.validate(given, "1.37", strict=True)
    assert "imagePullSecrets" not in made()["Deployment/headway-router"]["spec"]["template"]["spec"]


def test_what_is_published_is_read_back_and_nonsense_is_nothing() -> None:
    config_map = made()["ConfigMap/headway-router"]
    assert stored(config_map) == Published()
    assert stored(None) is None
    for text in ("", "{", "{}", '{"intents": 1}', "null"):
        assert stored({"data": {"state.json": text}}) is None


FULL = Published(
    intents={"cats": Intent("cats", "a", None, {"a": 100}, (Backend("a", 64),))},
    clusters={"cats/a": 64},
    routes={"cats": Route("a", None, ("a",), {"a": 100}, {"a": "cats/a"})},
    clusters_serial=3,
    routes_serial=4,
    confirmed=frozenset({"cats/a"}),
    retired={"cats/b": 7.5},
)


@pytest.mark.parametrize(
    "garbage",
    [
        {"clusters": {"cats/a": "64"}},
        {"clusters": ["cats/a"]},
        {"clustersSerial": "3"},
        {"retired": {"cats/b": "now"}},
        {"unconfirmed": [1]},
        {"routes": {"cats": {**to_json(FULL)["routes"]["cats"], "weights": {"a": 900}}}},
        {"routes": {"cats": {**to_json(FULL)["routes"]["cats"], "carriers": {}}}},
        {"intents": [{**to_json(FULL)["intents"][0], "backends": {"a": "many"}}]},
        {"intents": [7]},
    ],
)
def test_a_state_that_was_edited_by_hand_into_another_type_is_nothing(garbage: dict[str, Any]) -> None:
    state = to_json(FULL)
    assert stored({"data": {"state.json": json.dumps(state)}}) == FULL
    assert stored({"data": {"state.json": json.dumps({**state, **garbage})}}) is None


@pytest.mark.parametrize("text", ["", "{", "7", "[]", '{"spec": 1}'])
def test_a_record_of_the_router_that_a_hand_spoiled_is_made_anew(text: str) -> None:
    config_map = made()["ConfigMap/headway-router"]
    spoiled = {**config_map, "data": {**config_map["data"], "pod.json": text, "bootstrap.json": text}}
    assert pinned(spoiled, SITE, Image("router:1")) == pinned(None, SITE, Image("router:1"))


def test_the_mounted_keys_are_those_that_envoy_reads() -> None:
    found = made()
    (volume,) = found["Deployment/headway-router"]["spec"]["template"]["spec"]["volumes"]
    for source in volume["projected"]["sources"]:
        data = found[f"ConfigMap/{source['configMap']['name']}"]["data"]
        mounted = {item["key"] for item in source["configMap"]["items"]}
        assert mounted == data.keys() - {"state.json", "pod.json"}


def test_a_readout_is_read_into_an_acknowledgement() -> None:
    values = {
        "cluster_manager.cds.version_text": "3-a",
        "http.ingress.rds.headway.version_text": "5-b",
        "listener_manager.lds.version_text": "0-c",
        "cluster_manager.warming_clusters": 2,
        "cluster.cats/aaaa1111.membership_healthy": 4,
        "cluster.admin.membership_healthy": 1,
        "cluster_manager.cds.update_rejected": 1,
        "http.ingress.rds.headway.update_failure": 2,
    }
    ack = readout.parse(json.dumps({"stats": [{"name": n, "value": v} for n, v in values.items()]}), "pod-1")
    assert (ack.router, ack.clusters, ack.routes, ack.listeners) == ("pod-1", "3-a", "5-b", "0-c")
    assert (ack.warming, ack.rejections, ack.healthy["cats/aaaa1111"]) == (2, 3, 4)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"stats": 3}',
        '{"stats": [{"name": "cluster_manager.cds.x"}]}',
        "[" * 100_000,
        '{"stats": [{"name": "cluster_manager.warming_clusters", "value": Infinity}]}',
    ],
)
def test_an_answer_that_is_no_readout_is_an_error_that_names_the_router(text: str) -> None:
    with pytest.raises(ValueError, match="router pod-1: the answer to /readout"):
        readout.parse(text, "pod-1")


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"weights": {"a": 99}}, "sum to 100"),
        ({"weights": {"a": 101, "b": -1}}, "0 or more"),
        ({"weights": {"c": 100}}, r"no backend for \['c'\]"),
        ({"stable": "c"}, r"no backend for \['c'\]"),
        ({"backends": (Backend("a", 1), Backend("a", 2))}, "twice"),
    ],
)
def test_an_intent_that_cannot_be_is_refused(fields: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Intent(**{"model": "cats", "backends": (Backend("a", 1), Backend("b", 1)), **fields})  # type: ignore[arg-type]


def _bootstrap(found: dict[str, Object]) -> str:
    return str(found["ConfigMap/headway-router"]["data"]["bootstrap.json"])
