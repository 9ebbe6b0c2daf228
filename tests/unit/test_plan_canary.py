"""An explicit canary: its pods, its weight, its promotion, and when it gets nothing."""

import pytest
from headway_operator.observed import Role

from tests.unit.plan_world import BROKEN, OTHER_SIGNATURE, serving, world

A, B, C = ({"uri": f"s3://m/{name}"} for name in "abc")


def test_a_canary_at_the_first_deployment_waits_until_the_stable_is_ready() -> None:
    w = world(canary={"artifact": B, "weight": 10})
    assert len(w.pass_().targets) == 1
    w.nodes(steps=2)
    assert [target.role for target in w.pass_().targets] == [Role.STABLE, Role.CANARY]


def test_the_canary_of_a_broken_first_deployment_says_why_it_waits() -> None:
    w = serving(artifact={"uri": BROKEN}, canary={"artifact": B, "weight": 10})
    assert len(w.deployments()) == 1
    assert w.condition("UpToDate")["message"].endswith("waits for it")


def test_promoting_the_canary_restarts_no_pod_and_keeps_its_weight_until_it_is_complete() -> None:
    w = serving(replicas=4, canary={"artifact": B, "weight": 25})
    canary = w.role(Role.CANARY)
    pods = {pod.name for pod in w.pods if pod.revision == canary}
    w.edit(artifact=B, canary=None)
    w.pass_()
    assert w.role(Role.INCOMING) == canary
    assert w.published == {canary: 25, w.role(Role.STABLE): 75}
    w.settle()
    assert w.weights() == {canary: 100}
    assert pods <= {pod.name for pod in w.pods}


def test_an_explicit_canary_keeps_its_weight_while_the_stable_changes() -> None:
    w = serving(replicas=2, canary={"artifact": B, "weight": 10})
    canary = w.role(Role.CANARY)
    w.edit(artifact=C, canary={"artifact": B, "weight": 10})
    for _ in range(12):
        w.nodes()
        w.pass_()
        assert (w.published or {})[canary] == 10
        w.acknowledge()
    assert w.role(Role.INCOMING) is None
    assert w.weights() == {canary: 10, w.role(Role.STABLE): 90}


def test_swapping_stable_and_canary_moves_only_what_differs() -> None:
    w = serving(replicas=4, canary={"artifact": B, "weight": 50})
    stable, canary = w.role(Role.STABLE), w.role(Role.CANARY)
    pods = {pod.name for pod in w.pods}
    w.edit(artifact=B, canary={"artifact": A, "weight": 50})
    for _ in range(8):
        w.nodes()
        w.pass_()
        assert w.published == {stable: 50, canary: 50}
        w.acknowledge()
    w.settle()
    assert (w.role(Role.STABLE), w.role(Role.CANARY)) == (canary, stable)
    assert w.deployments() == {canary: 4, stable: 2}
    assert len(pods & {pod.name for pod in w.pods}) == 4


@pytest.mark.parametrize(("weight", "pods"), [(0, 1), (1, 1), (25, 1), (26, 2), (50, 2), (51, 3), (100, 4)])
def test_a_canary_has_the_pods_that_its_weight_needs(weight: int, pods: int) -> None:
    w = serving(replicas=4, canary={"artifact": B, "weight": weight})
    assert w.deployments()[w.role(Role.CANARY)] == pods
    assert w.deployments()[w.role(Role.STABLE)] == 4
    assert w.weights().get(w.role(Role.CANARY), 0) == weight


def test_a_canary_at_100_takes_all_traffic_and_no_role_changes() -> None:
    w = serving(replicas=2, canary={"artifact": B, "weight": 100})
    assert w.weights() == {w.role(Role.CANARY): 100}
    assert w.role(Role.STABLE) is not None
    assert w.said("UpToDate") == ("True", "AsSpecified")


def test_more_weight_waits_for_more_pods_and_less_weight_comes_before_fewer() -> None:
    w = serving(replicas=4, canary={"artifact": B, "weight": 25})
    canary = w.role(Role.CANARY)
    w.edit(canary={"artifact": B, "weight": 75})
    assert w.pass_().step.rung == "canary-not-ready"
    assert w.published[canary] == 25
    w.settle()
    assert w.weights()[canary] == 75
    w.edit(canary={"artifact": B, "weight": 25})
    w.pass_()
    assert w.published[canary] == 25
    assert w.deployments()[canary] == 3
    w.acknowledge()
    w.pass_()
    assert w.deployments()[canary] == 1


def test_a_canary_without_a_ready_pod_gets_nothing() -> None:
    w = serving(replicas=2, canary={"artifact": B, "weight": 50})
    canary = w.role(Role.CANARY)
    w.pods = [pod for pod in w.pods if pod.revision != canary]
    w.pass_()
    assert w.published == {w.role(Role.STABLE): 100}
    assert w.said("UpToDate") == ("False", "CanaryNotReady")
    assert w.said("Ready")[0] == "True"


def test_a_removed_canary_goes_after_its_weight_and_is_not_kept() -> None:
    w = serving(replicas=2, canary={"artifact": B, "weight": 50})
    canary = w.role(Role.CANARY)
    w.edit(canary=None)
    w.pass_()
    assert w.published == {w.role(Role.STABLE): 100}
    assert w.deployments()[canary] == 1
    w.acknowledge()
    w.pass_()
    assert w.deployments()[canary] == 0
    w.pass_()
    assert canary in w.deployments(), "its pods are still answering what they admitted"
    w.nodes()
    w.pass_()
    assert canary not in w.deployments()
    assert w.said("RollbackReady") == ("False", "NoPrevious")


def test_a_canary_that_is_the_stable_revision_is_no_canary() -> None:
    w = serving(canary={"artifact": A, "weight": 50})
    assert w.role(Role.CANARY) is None
    assert w.weights() == {w.role(Role.STABLE): 100}


def test_a_canary_with_another_signature_gets_nothing_unless_that_is_allowed() -> None:
    w = serving(canary={"artifact": {"uri": OTHER_SIGNATURE}, "weight": 50})
    assert w.weights() == {w.role(Role.STABLE): 100}
    assert w.said("Accepted") == ("False", "SignatureChanged")
    assert w.said("UpToDate") == ("False", "SignatureChanged")
    w.restart_operator()
    w.known = True
    w.pass_()
    assert w.published == {w.role(Role.STABLE): 100}, "a refusal outlives the operator's memory"
    w.annotations = {"headway.dev/allow-signature-change": "true"}
    w.settle()
    assert w.weights() == {w.role(Role.STABLE): 50, w.role(Role.CANARY): 50}
    assert w.said("Accepted")[0] == "True"


def test_a_runtime_that_reports_no_signature_is_let_through() -> None:
    w = world(canary={"artifact": {"uri": OTHER_SIGNATURE}, "weight": 50})
    w.signature = None
    w.settle()
    assert w.weights() == {w.role(Role.STABLE): 50, w.role(Role.CANARY): 50}


def test_a_canary_whose_signature_is_not_known_yet_gets_nothing() -> None:
    w = serving(canary={"artifact": B, "weight": 50})
    w.edit(canary={"artifact": C, "weight": 50})
    w.pass_()
    w.nodes(steps=2)
    for pod in w.pods:
        pod.readable = False
    w.pass_()
    assert w.published == {w.role(Role.STABLE): 100}


def test_a_canary_of_the_previous_version_is_kept_as_previous_afterwards() -> None:
    w = serving()
    old = w.role(Role.STABLE)
    w.edit(artifact=B)
    w.settle()
    w.edit(canary={"artifact": A, "weight": 10})
    w.settle()
    assert w.role(Role.CANARY) == old
    w.edit(canary=None)
    w.settle()
    assert w.role(Role.PREVIOUS) == old
