"""The ladder, rung by rung: first deployment, new version, revert, abort, what is kept for a rollback."""

import pytest
from headway_api import names
from headway_operator.observed import Role
from headway_operator.plan import plan

from tests.unit.plan_world import BROKEN, serving, world

A, B, C = ({"uri": f"s3://m/{name}"} for name in "abc")


def test_the_first_pod_finds_the_digest_and_the_others_wait_for_its_pin() -> None:
    w = world(replicas=3)
    w.pass_()
    assert list(w.deployments().values()) == [1]
    assert w.published == {}
    w.nodes()
    decided = w.pass_()
    assert list(decided.pins.values()) == ["sha256:" + 64 * "a"]
    assert list(w.deployments().values()) == [3]


def test_a_digest_from_the_user_is_a_pin_at_once() -> None:
    w = world(replicas=3, artifact={**A, "digest": "sha256:" + 64 * "a"})
    w.pass_()
    assert list(w.deployments().values()) == [3]
    w.settle()
    assert w.said("UpToDate") == ("True", "AsSpecified")


def test_nothing_is_routed_until_the_first_revision_has_a_ready_pod() -> None:
    w = world(replicas=2)
    w.pass_()
    w.acknowledge()
    assert w.published == {}
    assert w.pass_().step.rung == "first-deployment"
    assert w.said("Routed") == ("False", "NoReadyRevision")
    w.nodes(steps=2)
    w.pass_()
    assert w.published == {w.role(Role.STABLE): 100}


def test_a_first_deployment_that_never_served_is_replaced_at_once() -> None:
    w = world(uri=BROKEN)
    w.settle()
    wrong = w.role(Role.STABLE)
    w.edit(artifact=A)
    w.pass_()
    assert w.role(Role.STABLE) != wrong
    assert w.role(Role.INCOMING) is None
    w.settle()
    assert wrong not in w.deployments()
    assert w.role(Role.PREVIOUS) is None


def test_a_first_deployment_is_never_aborted_only_said_to_be_stalled() -> None:
    w = world(uri=BROKEN)
    w.settle()
    assert not w.condition("Stalled")
    w.now += 3600
    w.settle()
    assert w.said("Stalled") == ("True", "ProgressDeadlineExceeded")
    assert w.status.get("rollout") is None
    assert list(w.deployments().values()) == [1]


def test_a_new_version_gets_weight_only_with_all_its_pods_and_the_old_one_keeps_its_pods_until_that_is_confirmed() -> (
    None
):
    w = serving(replicas=2)
    old = w.role(Role.STABLE)
    w.edit(artifact=B)
    w.pass_()
    assert w.status["rollout"]["weight"] == 0
    w.nodes()
    w.pass_()
    w.nodes()
    assert w.pass_().step.rung == "incoming-without-capacity"
    assert w.published == {old: 100}
    w.nodes(steps=2)
    assert w.pass_().step.rung == "incoming-unconfirmed"
    new = w.role(Role.INCOMING)
    assert w.published == {new: 100}
    w.acknowledge(0)
    w.pass_()
    assert w.deployments()[old] == 2
    w.acknowledge(1)
    w.pass_()
    assert (w.role(Role.STABLE), w.role(Role.PREVIOUS)) == (new, old)
    assert w.deployments()[old] == 1
    w.settle()
    assert w.said("RollbackReady") == ("True", "Warm")


def test_a_revert_takes_traffic_with_every_pod_that_becomes_ready() -> None:
    w = serving(replicas=4)
    old = w.role(Role.STABLE)
    w.edit(artifact=B)
    w.settle()
    new = w.role(Role.STABLE)
    w.edit(artifact=A)
    decided = w.pass_()
    assert decided.step.reason == "RollingBack"
    assert w.deployments()[old] == 4
    assert w.published == {old: 25, new: 75}
    w.settle()
    assert w.weights() == {old: 100}
    assert w.role(Role.PREVIOUS) == new


def test_a_revert_takes_everything_at_once_when_the_stable_has_nothing_ready() -> None:
    w = serving(replicas=4)
    old = w.role(Role.STABLE)
    w.edit(artifact=B)
    w.settle()
    new = w.role(Role.STABLE)
    w.pods = [pod for pod in w.pods if pod.revision != new]
    w.edit(artifact=A)
    w.pass_()
    assert w.published == {old: 100}


def test_a_rollback_that_is_replaced_keeps_its_revision_for_another_one() -> None:
    w = serving(replicas=2)
    old = w.role(Role.STABLE)
    w.edit(artifact=B)
    w.settle()
    w.edit(artifact=A)
    w.pass_()
    w.acknowledge()
    w.edit(artifact={"uri": BROKEN})
    w.pass_()
    assert w.role(Role.PREVIOUS) == old
    w.settle()
    assert w.weights() == {w.role(Role.STABLE): 100}
    assert old in w.deployments()


def test_a_rollout_that_is_replaced_midway_leaves_nothing_behind() -> None:
    w = serving(replicas=2)
    w.edit(artifact=B)
    w.nodes()
    w.pass_()
    second = w.role(Role.INCOMING)
    w.edit(artifact=C)
    w.settle()
    assert second not in w.deployments()
    assert w.said("UpToDate")[0] == "True"


def test_with_nothing_ready_the_confirmed_weights_stay() -> None:
    w = serving(replicas=2, canary={"artifact": B, "weight": 50})
    before = w.published
    w.pods.clear()
    w.pass_()
    assert w.published == before
    w.edit(canary=None)
    w.pass_()
    assert w.published == {w.role(Role.STABLE): 100}


def test_an_abort_takes_the_weight_first_and_the_pods_after_it_was_confirmed() -> None:
    w = serving(replicas=2, canary={"artifact": B, "weight": 50}, rollout={"progressDeadline": "1m"})
    stable, new = w.role(Role.STABLE), w.role(Role.CANARY)
    w.edit(artifact=B, canary=None, replicas=3)
    w.pass_()
    assert w.published[new] == 50
    w.now += 61
    decided = w.pass_()
    assert decided.abort is not None
    assert decided.step.reason == "ProgressDeadlineExceeded"
    assert w.published == {stable: 100}
    assert w.deployments()[new] == 3
    w.acknowledge()
    w.pass_()
    assert w.deployments()[new] == 0
    w.settle()
    assert new not in w.deployments()
    assert w.said("Stalled") == ("True", "ProgressDeadlineExceeded")
    assert "1m" in w.condition("UpToDate")["message"]
    w.now += 10_000
    w.settle()
    assert new not in w.deployments(), "it stays so"
    w.edit(batching={"maxWait": "3ms"})
    w.settle()
    assert w.weights() == {new: 100}, "a new generation tries again"


def test_a_rollout_is_not_given_up_for_the_time_that_the_operator_was_away() -> None:
    w = serving(replicas=3)
    w.edit(artifact=B)
    w.pass_()
    w.nodes()
    w.now += 10_000
    w.pass_()
    w.nodes()
    w.pods = [pod for pod in w.pods if pod.stage != 1]
    w.now += 10_000
    assert w.pass_().abort is None, "its first pod has become ready meanwhile"
    w.now += 899
    assert w.pass_().abort is None
    w.now += 1
    assert w.pass_().abort is not None


def test_an_abort_is_ended_by_the_refresh_annotation() -> None:
    w = serving()
    w.edit(artifact={"uri": BROKEN})
    w.settle()
    w.now += 901
    w.settle()
    w.annotations = {names.ANNOTATION_REFRESH: "again"}
    w.pass_()
    assert w.role(Role.INCOMING) is not None
    assert w.status["rollout"].get("abort") is None


def test_a_rollout_is_not_given_up_when_there_is_nothing_to_go_back_to() -> None:
    w = serving()
    w.edit(artifact={"uri": BROKEN})
    w.pass_()
    w.pods.clear()
    w.now += 901
    assert w.pass_().abort is None
    assert w.said("Stalled")[0] == "True"


def test_a_rollback_that_is_given_up_keeps_the_previous_version() -> None:
    w = serving(replicas=2)
    old = w.role(Role.STABLE)
    w.edit(artifact=B)
    w.settle()
    w.edit(artifact=A)
    w.pods = [pod for pod in w.pods if pod.revision != old]
    w.pass_()
    w.now += 901
    w.pass_()
    assert w.role(Role.PREVIOUS) == old
    assert w.published == {w.role(Role.STABLE): 100}


def test_a_clock_that_was_ahead_and_is_set_right_stops_no_deadline() -> None:
    w = serving(rollback={"keepFor": "1h"})
    old = w.role(Role.STABLE)
    w.now += 10 * 365 * 86_400
    w.edit(artifact=B)
    w.settle()
    w.now -= 10 * 365 * 86_400
    w.settle()
    assert old in w.deployments()
    w.now += 3601
    w.settle()
    assert old not in w.deployments()


def test_the_previous_version_goes_when_its_time_is_over() -> None:
    w = serving(rollback={"keepFor": "1h"})
    old = w.role(Role.STABLE)
    w.edit(artifact=B)
    w.settle()
    assert plan(w.observed(), w.now).look_again == pytest.approx(3600, abs=60)
    w.now += 3601
    w.settle()
    assert old not in w.deployments()
    assert w.said("RollbackReady") == ("False", "Expired")
    w.settle()
    assert w.said("RollbackReady") == ("False", "Expired")


def test_no_previous_version_is_kept_when_none_is_asked_for() -> None:
    w = serving(rollback={"keep": "None"})
    w.edit(artifact=B)
    w.settle()
    assert len(w.deployments()) == 1
    assert w.said("RollbackReady") == ("False", "NoPrevious")


def test_a_previous_version_goes_when_keeping_is_switched_off() -> None:
    w = serving()
    w.edit(artifact=B)
    w.settle()
    w.edit(rollback={"keep": "None"})
    w.settle()
    assert len(w.deployments()) == 1
    assert w.said("RollbackReady") == ("False", "NoPrevious")


def test_only_one_previous_version_is_kept() -> None:
    w = serving()
    w.edit(artifact=B)
    w.settle()
    second = w.role(Role.STABLE)
    w.edit(artifact=C)
    w.settle()
    assert w.role(Role.PREVIOUS) == second
    assert len(w.deployments()) == 2


def test_losing_a_pod_makes_no_rollout_but_asking_for_more_does() -> None:
    w = serving(replicas=2)
    w.kill(0)
    w.pass_()
    assert w.said("UpToDate") == ("True", "AsSpecified")
    assert w.condition("Reconciling")
    w.settle()
    w.edit(replicas=3)
    w.pass_()
    assert w.said("UpToDate") == ("False", "RollingOut")
    assert w.pass_().step.rung == "stable-without-capacity"


def test_a_rollout_that_one_router_has_taken_is_not_scaled_down_when_it_is_called_off() -> None:
    w = serving(replicas=2)
    stable = w.role(Role.STABLE)
    w.edit(artifact=B)
    for _ in range(3):
        w.pass_()
        w.nodes()
    w.pass_()
    new = w.role(Role.INCOMING)
    assert w.published == {new: 100}
    w.acknowledge(0)
    w.edit(artifact=A)
    for _ in range(3):
        w.pass_()
        w.nodes()
        assert w.published == {stable: 100}
        assert w.deployments()[new] == 2, "one router still sends it everything"
    w.acknowledge()
    w.settle()
    assert new not in w.deployments()
