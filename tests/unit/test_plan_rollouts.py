"""The ladder, rung by rung: what is decided for a first deployment, a new version, a rollback, a canary."""

import pytest
from headway_api import names
from headway_operator.observed import Role
from headway_operator.plan import plan, route_intent
from headway_operator.plan.intent import max_requests

from tests.unit.plan_world import BROKEN, OTHER_SIGNATURE, World, world

A, B, C = ({"uri": f"s3://m/{name}"} for name in "abc")


def serving(**spec: object) -> World:
    w = world(**spec)
    w.settle()
    return w


def replicas(w: World) -> dict[Role, int]:
    return {target.role: target.replicas for target in plan(w.observed(), w.now).targets if not target.leaving}


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


def test_a_canary_at_the_first_deployment_waits_until_the_stable_is_ready() -> None:
    w = world(canary={"artifact": B, "weight": 10})
    assert len(w.pass_().targets) == 1
    w.nodes(steps=2)
    assert [target.role for target in w.pass_().targets] == [Role.STABLE, Role.CANARY]


def test_the_canary_of_a_broken_first_deployment_says_why_it_waits() -> None:
    w = serving(artifact={"uri": BROKEN}, canary={"artifact": B, "weight": 10})
    assert len(w.deployments()) == 1
    assert w.condition("UpToDate")["message"].endswith("waits for it")


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


def test_a_version_becomes_stable_on_what_the_routers_say_now_not_on_what_status_remembers() -> None:
    w = serving(replicas=2)
    old = w.role(Role.STABLE)
    w.edit(artifact=B)
    for _ in range(4):
        w.pass_()
        w.nodes()
    new = w.role(Role.INCOMING)
    w.acknowledge()
    w.pods.remove(next(pod for pod in w.pods if pod.revision == new))
    w.pass_()
    assert w.weights() == {new: 100}
    assert w.role(Role.STABLE) == old, "not before it has all of its pods"
    w.restart_operator()
    w.nodes(steps=3)
    w.pass_()
    assert w.role(Role.STABLE) == old
    w.remember()
    w.pass_()
    assert w.role(Role.STABLE) == new


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


def test_a_restore_without_status_is_no_first_deployment() -> None:
    w = serving(replicas=2)
    w.edit(artifact=B)
    w.settle()
    stable, previous = w.role(Role.STABLE), w.role(Role.PREVIOUS)
    w.status, w.published, w.confirmed, w.routers, w.pods = {}, None, None, [None, None], []
    w.edit(artifact=C)
    w.pass_()
    assert (w.role(Role.STABLE), w.role(Role.PREVIOUS)) == (stable, previous)
    assert w.role(Role.INCOMING) is not None
    assert w.published == {stable: 100}


def test_records_beyond_the_history_are_forgotten_oldest_first() -> None:
    w = serving(rollback={"history": 2, "keep": "None"})
    first = w.role(Role.STABLE)
    for name in ("b", "c", "d", "b"):
        w.edit(artifact={"uri": f"s3://m/{name}"})
        w.settle()
    records = {name for kind, name in w.objects if kind == "ControllerRevision"}
    assert len(records) == 3
    assert f"sentiment-{first}" not in records


def test_a_pass_may_be_lost_while_the_operator_knows_nothing_and_no_pod_goes() -> None:
    w = serving(replicas=3, canary={"artifact": B, "weight": 50})
    before = w.deployments()
    w.restart_operator()
    w.pass_()
    assert w.deployments() == before
    assert w.said("UpToDate")[0] == "True"


def test_a_record_deleted_by_hand_is_written_again_with_its_pin_and_no_pod_goes() -> None:
    w = serving(replicas=3)
    stable = w.role(Role.STABLE)
    record = w.objects.pop(("ControllerRevision", f"sentiment-{stable}"))
    w.pass_()
    again = w.objects["ControllerRevision", f"sentiment-{stable}"]
    assert again["metadata"]["annotations"] == record["metadata"]["annotations"]
    assert w.deployments() == {stable: 3}


def test_the_pods_of_a_stable_revision_without_a_record_go_on_until_another_takes_over() -> None:
    w = serving(replicas=2)
    stable = w.role(Role.STABLE)
    del w.objects["ControllerRevision", f"sentiment-{stable}"]
    w.edit(artifact=B, rollback={"keep": "None"})
    w.pass_()
    assert w.deployments()[stable] == 2
    w.settle()
    assert w.weights() == {w.role(Role.STABLE): 100}
    assert stable not in w.deployments()


def test_a_spec_that_cannot_be_read_changes_nothing() -> None:
    w = serving()
    resource = w.observed().resource
    broken = type(resource)("sentiment", "prod", "uid-1", 9, {}, None, "spec.replicas: not a number", w.status)
    decided = plan(w.observed(resource=broken), w.now)
    assert decided.hands_off
    assert (decided.targets, decided.new_records, decided.forget) == ((), (), ())
    assert route_intent(w.observed(resource=broken), decided) is None


def test_a_namespace_that_ends_is_left_alone() -> None:
    w = serving()
    decided = plan(w.observed(namespace_terminating=True), w.now)
    assert decided.hands_off
    assert decided.step.reason == "NamespaceTerminating"


def test_in_a_full_namespace_new_ones_are_not_routed_and_old_ones_stay() -> None:
    w = world()
    decided = plan(w.observed(namespace_full=True), w.now)
    intent = route_intent(w.observed(namespace_full=True), decided)
    assert decided.step.reason == "NamespaceFull"
    assert intent is not None
    assert (dict(intent.weights), intent.backends) == ({}, ())
    w.settle()
    decided = plan(w.observed(namespace_full=True), w.now)
    assert decided.step.settled
    assert route_intent(w.observed(namespace_full=True), decided) == route_intent(w.observed(), decided)


def test_the_intent_names_roles_and_gives_every_live_revision_a_backend() -> None:
    w = serving(canary={"artifact": B, "weight": 10})
    w.edit(artifact=C)
    decided = w.pass_()
    intent = route_intent(w.observed(), decided)
    assert intent is not None
    assert (intent.model, intent.stable, intent.canary) == ("sentiment", w.role(Role.STABLE), w.role(Role.CANARY))
    assert {backend.revision for backend in intent.backends} == {target.revision for target in decided.targets}
    w.edit(canary=None)
    decided = w.pass_()
    intent = route_intent(w.observed(), decided)
    assert intent is not None
    assert intent.canary == w.role(Role.INCOMING)


def test_the_limit_of_requests_follows_the_queue_and_changes_rarely_with_replicas_and_knobs() -> None:
    def limit(**spec: object) -> int:
        given = world(**spec).observed().resource.spec
        assert given is not None
        return max_requests(given)

    assert [limit(replicas=n) for n in (1, 2, 3, 4, 5)] == [2048, 4096, 4096, 8192, 8192]
    assert limit(batching={"maxBatch": 8}) == limit(batching={"maxBatch": 64}) == 2048
    assert limit(batching={"queue": {"capacity": 4096}}) == 16384


def test_a_newer_runtime_is_said_and_takes_nothing() -> None:
    w = serving()
    w.image = "runtime:2"
    w.settle()
    assert w.said("UpToDate") == ("True", "RuntimeOutdated")
    assert len(w.deployments()) == 1
    w.annotations = {names.ANNOTATION_REFRESH: "1"}
    w.settle()
    assert w.said("UpToDate") == ("True", "AsSpecified")
    own = serving(template={"runtimeImage": "mine:1"})
    own.image = "runtime:2"
    own.settle()
    assert own.said("UpToDate") == ("True", "AsSpecified")


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


def test_an_unconfirmed_weight_verifies_nothing() -> None:
    w = serving(canary={"artifact": B, "weight": 10})
    w.edit(canary={"artifact": B, "weight": 20})
    w.pass_()
    assert w.pass_().step.rung == "weights-unconfirmed"
    assert w.said("Routed") == ("False", "WeightPending")
