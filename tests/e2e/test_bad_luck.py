"""What the cluster does to a model: nothing that a healthy version could have answered may fail."""

from collections.abc import Iterator

import pytest

from tests.e2e.cluster_access import wait_until
from tests.e2e.operator_metrics import operator_pod
from tests.e2e.platform import BUCKET, SYSTEM_NAMESPACE, Platform
from tests.e2e.small import CLIENTS, MODEL, Small, small_world

NAMESPACE = "headway-bad-luck"


@pytest.fixture(scope="module")
def world(platform: Platform, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Small]:
    with small_world(platform, NAMESPACE, tmp_path_factory.mktemp("small"), replicas=2) as small:
        yield small


@pytest.fixture(autouse=True)
def whole(world: Small) -> None:
    """Every test begins with two pods that both routers know."""
    world.wait_pods(2)


@pytest.fixture
def canary(world: Small) -> Iterator[str]:
    """A candidate at 50 %."""
    world.apply(canary={"artifact": {"uri": f"s3://{BUCKET}/small/2.pt2"}, "weight": 50})
    world.wait("UpToDate", "Routed")
    name = world.revision("Canary")
    assert name
    yield name
    world.apply()
    world.wait("UpToDate", "Routed")


def delete_pods(world: Small, revision: str, *options: str, count: int | None = None) -> None:
    pods = [pod["metadata"]["name"] for pod in world.pods(revision)][:count]
    world.platform.access.kubectl("delete", "pod", "-n", NAMESPACE, "--wait=false", *options, *pods)


def test_a_pod_that_is_deleted_loses_no_request(world: Small) -> None:
    stable = world.revision("Stable")
    assert stable
    with world.traffic() as traffic:
        delete_pods(world, stable, count=1)
        world.wait_pods(2)
    assert not traffic.failures, traffic.failures[:3]


def test_a_pod_that_is_killed_loses_at_most_the_requests_it_had(world: Small) -> None:
    stable = world.revision("Stable")
    assert stable
    with world.traffic() as traffic:
        delete_pods(world, stable, "--grace-period=0", "--force", count=1)
        world.wait_pods(2)
    assert len(traffic.failures) <= CLIENTS, traffic.failures[:5]


def test_a_canary_whose_pods_all_go_leaves_its_share_to_the_stable(world: Small, canary: str) -> None:
    with world.traffic() as traffic:
        delete_pods(world, canary)
        wait_until(
            "answers of the stable", lambda: traffic.by_revision()[world.revision("Stable") or ""] > 50, seconds=30
        )
        world.wait("UpToDate", "Routed", "Ready")
    assert not traffic.failures, traffic.failures[:3]


def test_a_rolling_restart_of_the_routers_loses_no_request(world: Small) -> None:
    kubectl = world.platform.access.kubectl
    with world.traffic() as traffic:
        kubectl("delete", "pod", "-n", NAMESPACE, "--wait=false", world_router(world))
        kubectl("rollout", "status", "-n", NAMESPACE, "deployment/headway-router", "--timeout=120s")
        world.wait("Routed")
    assert not traffic.failures, traffic.failures[:3]


def world_router(world: Small) -> str:
    pods = world.platform.access.items(NAMESPACE, "pods", "-l", "headway.dev/component=router")
    return str(pods[0]["metadata"]["name"])


def test_an_operator_that_is_killed_costs_nothing_and_its_successor_converges(world: Small) -> None:
    access = world.platform.access
    with world.traffic() as traffic:
        world.apply(canary={"artifact": {"uri": f"s3://{BUCKET}/small/2.pt2"}, "weight": 20})
        killed = operator_pod(access, SYSTEM_NAMESPACE)
        access.kubectl("delete", "pod", "-n", SYSTEM_NAMESPACE, "--grace-period=0", "--force", killed)
        world.wait("UpToDate", "Routed")
        world.apply()
        world.wait("UpToDate", "Routed")
    assert not traffic.failures, traffic.failures[:3]


def test_what_is_edited_or_deleted_by_hand_is_repaired(world: Small) -> None:
    access, stable = world.platform.access, world.revision("Stable")
    before = {pod["metadata"]["uid"] for pod in world.pods(stable or "")}
    access.kubectl("delete", "service", "-n", NAMESPACE, f"{MODEL}-{stable}", MODEL)
    access.kubectl("patch", "configmap", "-n", NAMESPACE, f"{MODEL}-knobs", "-p", '{"data": {"knobs.json": "{}"}}')

    def repaired() -> bool:
        services = {s["metadata"]["name"] for s in access.items(NAMESPACE, "services")}
        knobs = access.get(NAMESPACE, "configmap", f"{MODEL}-knobs")["data"]["knobs.json"]
        return {f"{MODEL}-{stable}", MODEL} <= services and "maxWait" in knobs

    wait_until("the repair", repaired, seconds=180)
    world.wait("Ready", "UpToDate", "KnobsApplied")
    assert {pod["metadata"]["uid"] for pod in world.pods(stable or "")} == before


def test_a_model_outlives_the_chart_and_can_still_be_deleted(world: Small) -> None:
    access = world.platform.access
    try:
        with world.traffic() as traffic:
            access.run("helm", "uninstall", "headway", "-n", SYSTEM_NAMESPACE, "--wait", "--timeout=120s")
            gone = len(traffic.answers)
            wait_until("answers without an operator", lambda: len(traffic.answers) > gone + 100, seconds=180)
        assert not traffic.failures, traffic.failures[:3]
        access.kubectl("delete", "modeldeployment", "-n", NAMESPACE, MODEL, "--timeout=60s")
        selector = f"headway.dev/model={MODEL}"
        wait_until(
            "its objects to go", lambda: not access.items(NAMESPACE, "all", "-l", selector), seconds=300, every=1
        )
    finally:
        world.platform.install(print)
    world.apply()
    world.wait("Ready", "Routed", "UpToDate")
