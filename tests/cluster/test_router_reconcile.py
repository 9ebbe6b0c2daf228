"""The router pass against a real API server and a real Envoy; the kubelet is played."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from headway_api import names
from headway_operator.cluster import Cluster
from headway_operator.connection import api_client
from headway_operator.debug import Debug
from headway_operator.errors import RejectedError
from headway_operator.metrics import Metrics
from headway_operator.router.podtemplate import Image
from headway_operator.router.reconcile import ABANDONED_SECONDS, RouterReconciler
from headway_operator.router.render import Site
from headway_operator.store import Owner
from kubernetes import client, config
from realrouter.dns import Dns
from realrouter.envoy import Envoy
from realrouter.played import PlayedRouter
from realrouter.pods import Pods
from realrouter.stage import intent

from tests.ports import free_port

STABLE, CANARY = "aaaa1111", "bbbb2222"
MD = ("md", "sentiment")


class Counting(Debug):
    """Counts the writes."""

    writes = 0

    def wrote(self) -> None:
        self.writes += 1


@pytest.fixture
def debug() -> Counting:
    return Counting()


@pytest.fixture
async def played(api_server: Path, namespace: str, tmp_path: Path, debug: Counting) -> AsyncIterator[PlayedRouter]:
    with config.new_client_from_config(str(api_server)) as admin:
        enforce = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}
        client.CoreV1Api(admin).patch_namespace(namespace, enforce)
    port, readout_port, admin_port, backend_port = (free_port() for _ in range(4))
    site = Site(
        namespace,
        directory=str(tmp_path / "mounted"),
        port=port,
        readout_port=readout_port,
        admin_port=admin_port,
        backend_port=backend_port,
    )
    dns = Dns()
    envoy = Envoy(site, await dns.start(), tmp_path / "envoy.log")
    cluster = Cluster(await api_client(api_server), metrics=Metrics(), debug=debug)
    made = PlayedRouter(cluster, api_server, site, envoy, Pods(site, dns))
    yield made
    await envoy.stop()
    await made.pods.end_all()
    await dns.stop()
    await cluster.close()


@pytest.fixture
async def operator(played: PlayedRouter) -> AsyncIterator[RouterReconciler]:
    made = played.operator()
    played.has_models("sentiment")
    yield made
    await made.close()


def split(stable: int) -> object:
    return intent("sentiment", {STABLE: stable, CANARY: 100 - stable}, stable=STABLE, canary=CANARY)


async def rest(played: PlayedRouter, operator: RouterReconciler, *, most: int = 600) -> None:
    """Let passes and the kubelet take turns until a pass says that only an event can change anything."""
    for _ in range(most):
        await played.look()
        again = await operator.reconcile(played.site.namespace)
        if again is None and played.envoy.process is not None:
            return
        played.now += max(again or 0, 0.2)
        await asyncio.sleep(0.1)
    state = operator.route_state(played.site.namespace, "sentiment")
    raise AssertionError(f"no rest: again {again}, {state}, {await played.envoy.get('/readout')}")


async def test_a_model_is_routed_and_its_pass_is_told_and_then_there_is_rest(
    played: PlayedRouter, operator: RouterReconciler, debug: Counting
) -> None:
    namespace = played.site.namespace
    await asyncio.gather(played.start("sentiment", STABLE), played.start("sentiment", CANARY))
    assert not operator.route_state(namespace, "sentiment").known
    operator.publish(namespace, split(90))
    assert operator.route_state(namespace, "sentiment").pending
    assert played.woken == [Owner("router", namespace)]
    await rest(played, operator)
    state = operator.route_state(namespace, "sentiment")
    assert state.weights == {STABLE: 90, CANARY: 10}
    assert state.clusters == {STABLE, CANARY}
    assert (state.routers, state.pending, state.known, state.rejected) == (2, False, True, None)
    assert Owner("md", namespace, "sentiment") in played.woken

    played.woken.clear()
    writes, asked = debug.writes, await requests_read(played)
    for _ in range(5):
        await played.look()
        operator.publish(namespace, split(90))
        assert await operator.reconcile(namespace) is None
    assert (debug.writes, played.woken) == (writes, [])
    assert await requests_read(played) == asked + 1, "only this test asked"


async def test_new_weights_are_pending_until_the_routers_have_them(
    played: PlayedRouter, operator: RouterReconciler
) -> None:
    namespace = played.site.namespace
    await asyncio.gather(played.start("sentiment", STABLE), played.start("sentiment", CANARY))
    operator.publish(namespace, split(90))
    await rest(played, operator)
    first = operator.route_state(namespace, "sentiment").acknowledged_at
    played.deaf = True
    operator.publish(namespace, split(50))
    for _ in range(5):
        await played.look()
        await operator.reconcile(namespace)
    state = operator.route_state(namespace, "sentiment")
    assert (state.weights, state.pending, state.acknowledged_at) == ({STABLE: 90, CANARY: 10}, True, first)
    nudges = await annotations(played)
    played.now += 3
    await operator.reconcile(namespace)
    assert (await annotations(played)).isdisjoint(nudges), "without an acknowledgement they are nudged again"
    played.deaf = False
    await rest(played, operator)
    state = operator.route_state(namespace, "sentiment")
    assert (state.weights, state.pending) == ({STABLE: 50, CANARY: 50}, False)
    assert state.acknowledged_at != first


async def test_an_operator_that_restarts_goes_on_from_what_is_written(
    played: PlayedRouter, operator: RouterReconciler, debug: Counting
) -> None:
    namespace = played.site.namespace
    await played.start("sentiment", STABLE)
    operator.publish(namespace, intent("sentiment", {STABLE: 100}, stable=STABLE))
    operator.publish(namespace, intent("other", {}))
    played.has_models("sentiment", "other")
    await rest(played, operator)
    before, writes = await played.objects(), debug.writes

    again = played.operator()
    played.has_models("sentiment", "other")  # neither of their passes has run
    await rest(played, again)
    assert debug.writes == writes
    assert await played.objects() == before
    assert again.route_state(namespace, "sentiment").weights == {STABLE: 100}

    played.has_models("sentiment")
    await rest(played, again)
    assert again.route_state(namespace, "sentiment").weights == {STABLE: 100}
    assert "other" not in json.loads((await config_map(played))["data"]["state.json"])["routes"]
    await again.close()


async def test_a_newer_operator_changes_no_pod_of_a_router(played: PlayedRouter, operator: RouterReconciler) -> None:
    await rest(played, operator)
    before = (await played.objects())["Deployment/headway-router"]
    newer = RouterReconciler(
        cluster=played.cluster,
        store=played.store,
        image=Image("headway-router:newer"),
        wake=played.woken.append,
        clock=lambda: played.now,
        site=replace(played.site, admin_port=1),
    )
    await newer.reconcile(played.site.namespace)
    await newer.close()
    assert (await played.objects())["Deployment/headway-router"]["spec"] == before["spec"]


async def test_what_is_changed_or_deleted_by_hand_is_repaired(played: PlayedRouter, operator: RouterReconciler) -> None:
    namespace = played.site.namespace
    await rest(played, operator)
    before = await played.objects()
    with config.new_client_from_config(str(played.kubeconfig)) as somebody:
        core = client.CoreV1Api(somebody)
        core.delete_namespaced_config_map("headway-router-clusters", namespace)
        core.patch_namespaced_config_map("headway-router", namespace, {"data": {"routes.yaml": "nonsense"}})
        client.AppsV1Api(somebody).patch_namespaced_deployment("headway-router", namespace, {"spec": {"replicas": 0}})
    await played.look()
    await operator.reconcile(namespace)
    after = await played.objects()
    assert after.keys() == before.keys()
    for name in ("ConfigMap/headway-router", "ConfigMap/headway-router-clusters"):
        assert after[name]["data"] == before[name]["data"]
    assert after["Deployment/headway-router"]["spec"]["replicas"] == 2


async def test_objects_of_somebody_else_are_left_alone_and_the_models_are_told(
    played: PlayedRouter, operator: RouterReconciler
) -> None:
    namespace = played.site.namespace
    foreign = {"metadata": {"name": names.ROUTER_NAME}, "data": {"theirs": "yes"}}
    with config.new_client_from_config(str(played.kubeconfig)) as somebody:
        client.CoreV1Api(somebody).create_namespaced_config_map(namespace, foreign)
    operator.publish(namespace, intent("sentiment", {}))
    assert await operator.reconcile(namespace)
    assert "ConfigMap/headway-router exists" in str(operator.route_state(namespace, "sentiment").rejected)
    assert (await config_map(played))["data"] == {"theirs": "yes"}


async def test_what_the_api_server_refuses_is_told(played: PlayedRouter, operator: RouterReconciler) -> None:
    namespace = played.site.namespace
    quota = {"metadata": {"name": "none"}, "spec": {"hard": {"count/deployments.apps": "0"}}}
    with config.new_client_from_config(str(played.kubeconfig)) as somebody:
        client.CoreV1Api(somebody).create_namespaced_resource_quota(namespace, quota)
    played.has_models("sentiment")
    operator.publish(namespace, intent("sentiment", {}))
    with pytest.raises(RejectedError):
        await operator.reconcile(namespace)
    assert "quota: none" in str(operator.route_state(namespace, "sentiment").rejected)


async def test_a_refused_file_is_told_and_the_models_stay_as_they_were(
    played: PlayedRouter, operator: RouterReconciler
) -> None:
    namespace = played.site.namespace
    await played.start("sentiment", STABLE)
    operator.publish(namespace, intent("sentiment", {STABLE: 100}, stable=STABLE))
    await rest(played, operator)
    # A limit that Envoy cannot read: 2**40 does not fit into its 32 bits.
    broken = intent("sentiment", {STABLE: 100, CANARY: 0}, stable=STABLE, canary=CANARY)
    broken = replace(broken, backends=tuple(replace(backend, max_requests=2**40) for backend in broken.backends))
    operator.publish(namespace, broken)
    for _ in range(300):
        await played.look()
        await operator.reconcile(namespace)
        if operator.route_state(namespace, "sentiment").rejected:
            break
        await asyncio.sleep(0.1)
    state = operator.route_state(namespace, "sentiment")
    assert "refused a file" in str(state.rejected)
    assert state.weights == {STABLE: 100}
    operator.publish(namespace, intent("sentiment", {STABLE: 100}, stable=STABLE))
    await rest(played, operator)
    assert operator.route_state(namespace, "sentiment").rejected is None


async def test_a_deleted_model_loses_its_route_and_an_empty_namespace_its_router(
    played: PlayedRouter, operator: RouterReconciler
) -> None:
    namespace = played.site.namespace
    await played.start("sentiment", STABLE)
    operator.publish(namespace, intent("sentiment", {STABLE: 100}, stable=STABLE))
    await rest(played, operator)
    played.has_models()
    operator.withdraw(namespace, "sentiment")
    assert await operator.reconcile(namespace)
    routes = json.loads((await config_map(played))["data"]["state.json"])["routes"]
    assert routes == {}
    played.now += ABANDONED_SECONDS - 1
    await played.look()
    assert (await operator.reconcile(namespace) or 99) <= 1
    assert len(await played.objects()) == 6
    labels = {names.LABEL_MANAGED_BY: names.MANAGED_BY, names.LABEL_COMPONENT: names.COMPONENT_ROUTER}
    with config.new_client_from_config(str(played.kubeconfig)) as somebody:
        theirs = {"metadata": {"name": "theirs", "labels": labels}}  # a copy of ours, under another name
        client.CoreV1Api(somebody).create_namespaced_config_map(namespace, theirs)
    played.now += 1
    await played.look()
    assert await operator.reconcile(namespace) is None
    assert set(await played.objects()) == {"ConfigMap/theirs"}
    await played.look()
    assert await operator.reconcile(namespace) is None


async def config_map(played: PlayedRouter) -> dict[str, dict[str, str]]:
    with config.new_client_from_config(str(played.kubeconfig)) as admin:
        found = client.CoreV1Api(admin).read_namespaced_config_map(names.ROUTER_NAME, played.site.namespace)
    return {"data": found.data}


async def annotations(played: PlayedRouter) -> set[str]:
    """The sync annotations of the router's pods."""
    await played.look()
    with config.new_client_from_config(str(played.kubeconfig)) as admin:
        pods = client.CoreV1Api(admin).list_namespaced_pod(played.site.namespace).items
    return {pod.metadata.annotations[names.ANNOTATION_SYNC] for pod in pods}


async def requests_read(played: PlayedRouter) -> int:
    """How many requests the read-only listener has had."""
    _, text = await played.envoy.get("/stats/prometheus")
    line = next(
        line
        for line in text.splitlines()
        if line.startswith("envoy_http_downstream_rq_total") and 'conn_manager_prefix="readout"' in line
    )
    return int(float(line.rsplit(" ", 1)[1]))
