"""The client against a real API server: what it creates, applies, refuses to touch and deletes."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from headway_api import names
from headway_operator import errors
from headway_operator.cluster import Cluster
from headway_operator.connection import api_client
from headway_operator.events import BURST, REFILL, SILENCE, Recorder
from headway_operator.kinds import CONFIG_MAP, EVENT, NETWORK_POLICY
from headway_operator.metrics import Metrics
from headway_operator.status import Event
from kubernetes import client, config

Object = dict[str, Any]


@pytest.fixture
async def cluster(api_server: Path) -> AsyncIterator[Cluster]:
    connected = Cluster(await api_client(api_server), metrics=Metrics())
    yield connected
    await connected.close()


def config_map(namespace: str, name: str, data: dict[str, str], owner: Object | None = None) -> Object:
    """A ConfigMap as the operator would want it; without an owner: as the router's."""
    metadata: Object = {"name": name, "namespace": namespace, "labels": {names.LABEL_MANAGED_BY: names.MANAGED_BY}}
    if owner is not None:
        reference = {"apiVersion": "v1", "kind": owner["kind"], "name": owner["metadata"]["name"], "controller": True}
        metadata["ownerReferences"] = [{**reference, "uid": owner["metadata"]["uid"]}]
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


async def test_apply_creates_what_is_absent_and_changes_what_is_there(cluster: Cluster, namespace: str) -> None:
    created = await cluster.apply(config_map(namespace, "a", {"x": "1"}), None)
    changed = await cluster.apply(config_map(namespace, "a", {"x": "2"}), created)
    assert changed["data"] == {"x": "2"}
    assert changed["metadata"]["uid"] == created["metadata"]["uid"]


async def test_a_field_that_is_no_longer_wanted_goes_even_if_it_was_there_at_creation(
    cluster: Cluster, namespace: str
) -> None:
    created = await cluster.apply(config_map(namespace, "a", {"x": "1", "y": "1"}), None)
    changed = await cluster.apply(config_map(namespace, "a", {"x": "1"}), created)
    assert changed["data"] == {"x": "1"}
    again = await cluster.apply(config_map(namespace, "a", {"z": "1"}), changed)
    assert again["data"] == {"z": "1"}


async def test_a_field_of_somebody_else_stays(cluster: Cluster, namespace: str, api_server: Path) -> None:
    created = await cluster.apply(config_map(namespace, "a", {"x": "1"}), None)
    with config.new_client_from_config(str(api_server)) as somebody:
        note = {"metadata": {"annotations": {"example.com/note": "mine"}}}
        client.CoreV1Api(somebody).patch_namespaced_config_map("a", namespace, note, field_manager="somebody")
    changed = await cluster.apply(config_map(namespace, "a", {"x": "2"}), created)
    assert changed["metadata"]["annotations"] == {"example.com/note": "mine"}


async def test_an_object_of_a_user_is_left_alone_and_named(cluster: Cluster, namespace: str) -> None:
    theirs = config_map(namespace, "a", {"x": "theirs"})
    del theirs["metadata"]["labels"]
    await cluster.create(theirs)
    with pytest.raises(errors.ForeignObjectError, match="ConfigMap/a"):
        await cluster.apply(config_map(namespace, "a", {"x": "ours"}), None)
    untouched = await cluster.get(CONFIG_MAP, namespace, "a")
    assert untouched is not None
    assert untouched["data"] == {"x": "theirs"}


async def test_an_object_that_was_replaced_since_it_was_seen_is_not_applied_to(
    cluster: Cluster, namespace: str
) -> None:
    first = await cluster.apply(config_map(namespace, "a", {"x": "1"}), None)
    first = await cluster.apply(config_map(namespace, "a", {"x": "2"}), first)
    await cluster.delete(first)
    second = await cluster.create(config_map(namespace, "a", {"x": "3"}))
    with pytest.raises(errors.ConflictError):
        await cluster.apply(config_map(namespace, "a", {"x": "4"}), first)
    await cluster.delete(first)  # not the one that is there now
    assert await cluster.get(CONFIG_MAP, namespace, "a") == second


async def test_an_object_of_an_owner_that_is_gone_is_waited_for(cluster: Cluster, namespace: str) -> None:
    owner = await cluster.create(config_map(namespace, "owner", {}))
    child = config_map(namespace, "child", {"x": "1"}, owner)
    await cluster.apply(child, None)
    later = {**owner, "metadata": {**owner["metadata"], "uid": "00000000-0000-4000-8000-000000000000"}}
    with pytest.raises(errors.ConflictError, match="owner that is gone"):
        await cluster.apply(config_map(namespace, "child", {"x": "2"}, later), None)


async def test_a_record_stays_writable_but_for_its_data(cluster: Cluster, namespace: str) -> None:
    data = {"z": "a&b <c> \u2028 \x85 é 😀", "a": {"y": 60.0, "x": [1, None, True]}, "text": '{"a":"b\\n"}'}
    record = {**config_map(namespace, "r", {}), "apiVersion": "apps/v1", "kind": "ControllerRevision", "revision": 1}
    created = await cluster.apply({**record, "data": data}, None)
    assert created["data"] == data
    noted = {**record, "metadata": {**record["metadata"], "annotations": {"note": "1"}}, "data": created["data"]}
    changed = await cluster.apply(noted, created)
    assert (changed["data"], changed["metadata"]["annotations"]) == (data, {"note": "1"})
    with pytest.raises(errors.RejectedError, match="immutable"):
        await cluster.apply({**noted, "data": {"a": 1}}, changed)


async def test_a_list_comes_in_pages_with_its_version_and_kinds(
    cluster: Cluster, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headway_operator.cluster.PAGE", 2)
    for index in range(5):
        await cluster.create(config_map(namespace, f"m{index}", {}))
    selector = f"{names.LABEL_MANAGED_BY}={names.MANAGED_BY}"
    found, version = await cluster.list(CONFIG_MAP, namespace, labels=selector)
    assert [item["metadata"]["name"] for item in found] == [f"m{index}" for index in range(5)]
    assert {item["kind"] for item in found} == {"ConfigMap"}
    assert version >= max(int(item["metadata"]["resourceVersion"]) for item in found)


async def test_a_refusal_of_the_server_says_what_and_why(cluster: Cluster, namespace: str) -> None:
    wrong = {**config_map(namespace, "n", {}), "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy"}
    wrong = {**wrong, "spec": {"podSelector": {"matchLabels": {"-": "-"}}}}
    del wrong["data"]
    with pytest.raises(errors.RejectedError, match=r"create /apis/networking.* 422 .*podSelector"):
        await cluster.apply(wrong, None)
    assert await cluster.get(NETWORK_POLICY, namespace, "n") is None


async def test_a_namespace_that_ends_takes_nothing_new(cluster: Cluster) -> None:
    with pytest.raises(errors.GoneError):
        await cluster.apply(config_map("never-was", "a", {}), None)


async def test_events_are_said_once_and_never_in_a_flood(cluster: Cluster, namespace: str) -> None:
    about = await cluster.create(config_map(namespace, "a", {}))
    now = 1_800_000_000.0
    metrics = Metrics()
    recorder = Recorder(cluster=cluster, metrics=metrics, clock=lambda: now, instance="test")

    async def written() -> list[Object]:
        events, _ = await cluster.list(EVENT, namespace)
        return events

    long = Event("Warning", "TooLong", "x" * 1024)
    for _ in range(3):
        await recorder.record(about, long)
    (event,) = await written()
    assert (event["type"], event["reason"], event["note"]) == ("Warning", "TooLong", "x" * 1024)
    assert event["regarding"]["uid"] == about["metadata"]["uid"]
    for number in range(30):
        await recorder.record(about, Event("Normal", "Told", str(number)))
    assert len(await written()) == BURST
    now += REFILL
    await recorder.record(about, Event("Normal", "Told", "later"))
    await recorder.record(about, Event("Normal", "Told", "too much"))
    assert len(await written()) == BURST + 1
    now += SILENCE
    await recorder.record(about, long)
    assert len(await written()) == BURST + 2
    now -= 3600  # somebody set the clock right
    await recorder.record(about, Event("Warning", "TooLong", "é" * 1024))
    assert [event["note"] for event in await written() if "é" in event["note"]] == ["é" * 512]


async def test_an_event_that_cannot_be_written_is_dropped(cluster: Cluster, namespace: str) -> None:
    about = await cluster.create(config_map(namespace, "a", {}))
    metrics = Metrics()
    recorder = Recorder(cluster=cluster, metrics=metrics, clock=lambda: 1_800_000_000.0, instance="test")
    await recorder.record(about, Event("Nonsense", "Refused", "of a type that does not exist"))
    assert 'headway_events_total{outcome="failed"} 1.0' in metrics.text().decode()
