"""What the store believes when the same news comes twice, late, or not at all."""

import random
from typing import Any

from headway_api import names
from headway_operator.kinds import CONFIG_MAP, MODEL_DEPLOYMENT, POD, SERVICE
from headway_operator.store import Owner, Store

Object = dict[str, Any]
MODEL = Owner("md", "prod", "sentiment")


def config_map(name: str, version: int, *, uid: str = "u", model: str | None = "sentiment", **data: str) -> Object:
    labels = {names.LABEL_MANAGED_BY: names.MANAGED_BY, **({names.LABEL_MODEL: model} if model else {})}
    metadata = {"name": name, "namespace": "prod", "uid": uid, "resourceVersion": str(version), "labels": labels}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def value(store: Store, name: str = "a") -> str | None:
    obj = store.get(CONFIG_MAP, "prod", name)
    return None if obj is None else obj["data"].get("x")


def test_the_newest_version_wins_whatever_comes_last() -> None:
    store = Store()
    assert store.put(config_map("a", 9, x="9")) == {MODEL}
    assert store.put(config_map("a", 10, x="10")) == {MODEL}
    assert store.put(config_map("a", 9, x="9")) == set()
    assert store.put(config_map("a", 10, x="10")) == set()
    assert value(store) == "10"


def test_a_deleted_object_is_gone_and_older_news_do_not_bring_it_back() -> None:
    store = Store()
    store.put(config_map("a", 9, x="9"))
    assert store.remove(config_map("a", 12, x="9")) == {MODEL}
    assert store.put(config_map("a", 11, x="11")) == set()
    assert value(store) is None
    assert store.put(config_map("a", 13, uid="v", x="13")) == {MODEL}
    assert value(store) == "13"


def test_a_late_deletion_does_not_remove_the_successor() -> None:
    store = Store()
    store.put(config_map("a", 20, uid="v", x="new"))
    assert store.remove(config_map("a", 12, x="old")) == set()
    assert value(store) == "new"


def test_a_resync_removes_what_is_gone_and_keeps_what_is_newer_than_the_list() -> None:
    store = Store()
    for name, version in (("gone", 5), ("kept", 6), ("newer", 31), ("created-since", 35)):
        store.put(config_map(name, version, x=str(version)))
    listed = [config_map("kept", 6, x="6"), config_map("newer", 8, x="8"), config_map("missed", 9, x="9")]
    assert store.replace(CONFIG_MAP, listed, 30) == {MODEL}
    found = {name: value(store, name) for name in ("gone", "kept", "newer", "created-since", "missed")}
    assert found == {"gone": None, "kept": "6", "newer": "31", "created-since": "35", "missed": "9"}


def test_a_resync_without_news_wakes_nobody() -> None:
    store = Store()
    store.put(config_map("a", 5))
    assert store.replace(CONFIG_MAP, [config_map("a", 5)], 30) == set()


def test_a_resync_does_not_bring_back_what_was_deleted_after_its_list() -> None:
    store = Store()
    store.put(config_map("a", 5, x="5"))
    store.remove(config_map("a", 40, x="5"))
    store.replace(CONFIG_MAP, [config_map("a", 5, x="5")], 30)
    assert value(store) is None


def test_a_resync_of_one_kind_and_namespace_touches_no_other() -> None:
    store = Store()
    store.put(config_map("a", 5, x="5"))
    service = {**config_map("s", 5), "kind": "Service"}
    store.put(service)
    store.replace(SERVICE, [], 30, "elsewhere")
    store.replace(POD, [], 30)
    assert value(store) == "5"
    assert store.get(SERVICE, "prod", "s") is not None


def test_objects_are_found_by_their_owner_and_by_their_place() -> None:
    store = Store()
    md = {**config_map("sentiment", 1, model=None), "apiVersion": names.API_VERSION, "kind": names.KIND}
    for obj in (md, config_map("b", 2), config_map("a", 3), config_map("other", 4, model="other")):
        store.put(obj)
    assert [obj["metadata"]["name"] for obj in store.owned(MODEL, CONFIG_MAP)] == ["a", "b"]
    assert [obj["metadata"]["name"] for obj in store.all(MODEL_DEPLOYMENT, "prod")] == ["sentiment"]
    assert store.put({**md, "metadata": {**md["metadata"], "resourceVersion": "9"}}) == {MODEL}


def test_a_router_s_object_wakes_the_router_of_its_namespace() -> None:
    router = config_map("headway-router", 3, model=None)
    router["metadata"]["labels"][names.LABEL_COMPONENT] = names.COMPONENT_ROUTER
    assert Store().put(router) == {Owner("router", "prod")}


def test_an_object_that_changes_its_owner_is_news_to_both() -> None:
    store = Store()
    store.put(config_map("a", 1))
    assert store.put(config_map("a", 2, model="other")) == {MODEL, Owner("md", "prod", "other")}
    assert store.owned(MODEL, CONFIG_MAP) == []


def test_only_what_a_pass_looks_at_is_kept() -> None:
    store = Store()
    pod = {
        **config_map("p", 1),
        "kind": "Pod",
        "spec": {"containers": []},
        "status": {"phase": "Running", "hostIP": "x"},
    }
    pod["metadata"]["managedFields"] = [{"manager": "kubelet", "operation": "Update", "subresource": "status"}]
    pod["metadata"]["annotations"] = {"kubectl.kubernetes.io/last-applied-configuration": "{}"}
    store.put(pod)
    kept = store.get(POD, "prod", "p")
    assert kept is not None
    assert (kept.get("spec"), kept["status"]) == (None, {"phase": "Running"})
    assert not {"managedFields", "annotations"} & kept["metadata"].keys()


def test_any_order_of_the_same_news_leads_to_the_same_belief() -> None:
    """Events of one object's life, duplicated and shuffled: the store ends with its last state, always."""
    life = [config_map("a", 1, x="1"), config_map("a", 2, x="2"), config_map("a", 5, uid="v", x="5")]
    for seed in range(200):
        order = random.Random(seed)
        news = [("put", obj) for obj in life] * 2 + [("remove", config_map("a", 3, x="2"))] * 2
        order.shuffle(news)
        store = Store()
        for verb, obj in news:
            store.put(obj) if verb == "put" else store.remove(obj)
        assert value(store) == "5", (seed, news)
        assert len(store.owned(MODEL, CONFIG_MAP)) == 1
