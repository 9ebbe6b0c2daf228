"""What a pass does with what it finds: records, a lost status, a restart, what to leave alone; and the intent."""

import pytest
from headway_api import names
from headway_operator.observed import Role
from headway_operator.plan import plan, route_intent
from headway_operator.plan.intent import max_requests

from tests.unit.plan_world import BROKEN, DIGESTS, World, serving, world

A, B, C = ({"uri": f"s3://m/{name}"} for name in "abc")


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


@pytest.mark.parametrize("by_hand", [0, 7])
def test_a_version_whose_digest_is_unknown_is_one_pod_whatever_hands_make_of_it(by_hand: int) -> None:
    w = world()
    w.pass_()
    w.scale(0, by_hand)
    w.pass_()
    assert list(w.deployments().values()) == [1]


def lose(w: World, revision: str | None, *kinds: str) -> None:
    """Objects of a revision are deleted by hand."""
    for kind in kinds:
        del w.objects[kind, f"sentiment-{revision}"]


@pytest.mark.parametrize("restarted", [False, True])
def test_with_every_memory_lost_what_carries_the_traffic_is_stable(restarted: bool) -> None:
    w = serving(replicas=3, canary={"artifact": C, "weight": 10})
    stable, canary = w.role(Role.STABLE), w.role(Role.CANARY)
    lose(w, stable, "ControllerRevision")
    w.status = {}
    w.edit(artifact=B)
    if restarted:
        w.restart_operator()
    w.pass_()
    assert (w.role(Role.STABLE), w.role(Role.CANARY)) == (stable, canary)
    assert w.role(Role.INCOMING) not in (None, stable, canary)
    assert w.deployments()[stable] == 3
    w.settle()
    assert w.weights() == {w.role(Role.STABLE): 90, canary: 10}
    assert w.role(Role.PREVIOUS) == stable
    assert w.said("UpToDate")[0] == "True"


def test_a_canary_of_all_traffic_is_not_taken_for_the_stable_version() -> None:
    w = serving(replicas=2, canary={"artifact": C, "weight": 100})
    stable, canary = w.role(Role.STABLE), w.role(Role.CANARY)
    lose(w, stable, "ControllerRevision")
    w.status = {}
    w.edit(artifact=B)
    w.pass_()
    assert (w.role(Role.STABLE), w.role(Role.CANARY)) == (stable, canary)


def test_with_every_memory_lost_what_carries_all_is_stable_although_it_shall_be_the_canary() -> None:
    w = serving(replicas=2)
    stable = w.role(Role.STABLE)
    lose(w, stable, "ControllerRevision")
    w.status = {}
    w.edit(artifact={**B, "digest": DIGESTS[C["uri"]]}, canary={"artifact": A, "weight": 10})  # cannot be ready
    w.pass_()
    assert w.role(Role.STABLE) == stable
    assert w.published == {stable: 100}


def test_with_every_memory_lost_a_new_version_that_cannot_carry_all_is_not_taken_for_the_stable_one() -> None:
    w = serving(replicas=2)
    stable = w.role(Role.STABLE)
    w.edit(artifact=B, canary={"artifact": A, "weight": 10})
    w.pass_()
    w.nodes(steps=3)
    assert w.ready(str(w.role(Role.INCOMING))) == 1
    lose(w, stable, "ControllerRevision")
    w.status = {}
    w.pass_()
    assert w.role(Role.STABLE) == stable
    assert w.published == {stable: 100}


def test_with_every_memory_lost_a_previous_version_is_not_taken_for_the_stable_one() -> None:
    for uris in ("ab", "ba", "bd"):  # whatever the hashes of their names are
        w = serving(f"s3://m/{uris[0]}", replicas=1)
        w.edit(artifact={"uri": f"s3://m/{uris[1]}"})
        w.settle()
        stable, previous = w.role(Role.STABLE), w.role(Role.PREVIOUS)
        lose(w, stable, "ControllerRevision")
        w.status = {}
        w.restart_operator()
        w.edit(artifact=C)
        w.pass_()
        assert (w.role(Role.STABLE), w.role(Role.PREVIOUS)) == (stable, previous)
        assert w.published == {stable: 100}


def test_nothing_of_a_version_is_deleted_before_every_router_has_let_go_of_it() -> None:
    w = serving(replicas=2)
    stable = w.role(Role.STABLE)
    lose(w, stable, "ControllerRevision", "Deployment")
    w.edit(artifact=B, rollback={"keep": "None"})
    for _ in range(3):
        w.pass_()
        assert ("Service", f"sentiment-{stable}") in w.objects
        w.nodes(steps=3)
        w.acknowledge(0)  # the other router lags behind
    w.settle()
    assert not [key for key in w.objects if key[1] == f"sentiment-{stable}"]


def test_a_previous_version_is_kept_without_its_record_while_it_could_take_over() -> None:
    w = serving(replicas=2)
    previous = w.role(Role.STABLE)
    w.edit(artifact=B)
    w.settle()
    lose(w, previous, "ControllerRevision")
    w.settle()
    assert w.role(Role.PREVIOUS) == previous
    lose(w, previous, "ConfigMap")  # which its pods mount, and nobody can write again
    w.pods = [pod for pod in w.pods if pod.revision != previous]
    w.settle()
    assert w.role(Role.PREVIOUS) is None
    assert previous not in w.deployments()


def test_a_version_that_never_answered_is_not_kept_for_a_rollback() -> None:
    w = serving()
    lose(w, w.role(Role.STABLE), "ControllerRevision", "Deployment")
    w.pods.clear()
    w.edit(artifact={"uri": BROKEN})
    w.settle()
    assert w.weights() == {w.role(Role.STABLE): 100}, "there is no other"
    w.edit(artifact=B)
    w.settle()
    assert w.said("UpToDate")[0] == "True"
    assert w.role(Role.PREVIOUS) is None


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


def test_an_unconfirmed_weight_verifies_nothing() -> None:
    w = serving(canary={"artifact": B, "weight": 10})
    w.edit(canary={"artifact": B, "weight": 20})
    w.pass_()
    assert w.pass_().step.rung == "weights-unconfirmed"
    assert w.said("Routed") == ("False", "WeightPending")
