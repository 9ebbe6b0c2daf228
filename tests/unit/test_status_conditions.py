"""What the user reads: each condition for its reason, and no guess where nothing is known."""

from dataclasses import replace
from typing import Any

import pytest
from headway_api.conditions import ConditionType
from headway_api.podconfig import BucketReport, Clamp, KnobsReport, Phase, Report, Termination
from headway_api.statustypes import Status
from headway_operator.observed import Object, Observed, Role, RouteState
from headway_operator.plan import plan
from headway_operator.status import status

from tests.unit.plan_world import BROKEN, EPOCH, OTHER_SIGNATURE, World, serving, world

B = {"uri": "s3://m/b"}


def told(w: World, **changes: Any) -> Object:
    observed = w.observed(**changes)
    return status(observed, plan(observed, w.now), w.now)


def condition(of: Object, kind: str) -> tuple[str, str, str]:
    found = next(each for each in of["conditions"] if each["type"] == kind)
    return found["status"], found["reason"], found["message"]


def with_reports(w: World, **changes: Any) -> Observed:
    """All pods say this; they need not be ready for it."""
    observed = w.observed()
    pods = tuple(
        replace(pod, report=Report(model="m", revision=pod.revision, **{"phase": Phase.READY, **changes}))
        for pod in observed.pods
    )
    return replace(observed, pods=pods)


def test_every_status_is_what_the_schema_says() -> None:
    w = serving(canary={"artifact": B, "weight": 10})
    w.edit(artifact={"uri": BROKEN})
    for _ in range(3):
        w.nodes()
        w.pass_()
        Status.model_validate(w.status)
    w.now += 901
    w.pass_()
    Status.model_validate(w.status)


def test_a_settled_model_is_all_true_and_neither_reconciling_nor_stalled() -> None:
    w = serving(replicas=2)
    w.edit(artifact=B)
    w.settle()
    kinds = set(ConditionType) - {ConditionType.RECONCILING, ConditionType.STALLED}
    assert {each["type"]: each["status"] for each in w.status["conditions"]} == dict.fromkeys(map(str, kinds), "True")
    assert w.status["url"] == "http://sentiment.prod.svc"
    assert w.status["observedGeneration"] == 2
    assert all(each["observedGeneration"] == 2 for each in w.status["conditions"])


def test_weights_in_status_are_those_that_the_routers_confirmed() -> None:
    w = serving(canary={"artifact": B, "weight": 10})
    w.edit(canary={"artifact": B, "weight": 20})
    w.pass_()
    assert w.weights()[w.role(Role.CANARY)] == 10
    verified = w.status["trafficVerifiedTime"]
    w.now += 60
    w.acknowledge()
    w.pass_()
    assert w.weights()[w.role(Role.CANARY)] == 20
    assert w.status["trafficVerifiedTime"] > verified


def test_a_transition_time_moves_only_when_the_status_does() -> None:
    w = world(uri=BROKEN)
    w.pass_()
    w.now += 10
    w.nodes()
    w.pass_()
    ready, verified = w.condition("Ready"), w.condition("ArtifactVerified")
    assert (ready["reason"], ready["lastTransitionTime"]) == ("NotFound", "2027-01-15T08:00:00Z")
    assert (verified["status"], verified["lastTransitionTime"]) == ("False", "2027-01-15T08:00:10Z")
    assert EPOCH == 1_800_000_000


def test_nothing_is_claimed_before_a_pod_has_said_it() -> None:
    w = world()
    w.pass_()
    assert w.said("Accepted") == ("Unknown", "Preparing")
    assert w.said("ArtifactVerified") == ("Unknown", "Preparing")
    assert w.said("Ready") == ("False", "Starting")
    assert w.said("KnobsApplied") == ("False", "Waiting")
    assert w.condition("Reconciling")


def test_a_pods_refusal_is_passed_on_word_for_word() -> None:
    w = world()
    w.pass_()
    w.nodes()
    refusal = Termination(
        reason="BucketOutOfRange",
        message="sequence 1024 is above 512",
        condition="Accepted",
        field="spec.batching.shapeBuckets.sequence",
    )
    w.pods[0].termination = refusal
    w.pass_()
    words = "spec.batching.shapeBuckets.sequence: sequence 1024 is above 512"
    assert condition(w.status, "Accepted") == ("False", "BucketOutOfRange", words)
    assert w.said("Ready") == ("False", "BucketOutOfRange")
    assert w.said("UpToDate") == ("False", "BucketOutOfRange")
    assert w.said("Stalled") == ("True", "BucketOutOfRange")
    assert not w.condition("Reconciling")
    failure = w.status["lastFailure"]
    assert failure["field"] == "spec.batching.shapeBuckets.sequence"
    assert failure["container"] == "prepare"
    w.pods[0].termination = None
    w.nodes(steps=2)
    w.settle()
    assert w.status["lastFailure"] == failure, "it is kept when all is well again"


def test_a_candidate_that_fails_leaves_ready_alone() -> None:
    w = serving()
    w.edit(artifact={"uri": BROKEN})
    w.settle()
    assert w.said("Ready")[0] == "True"
    assert w.said("ArtifactVerified") == ("False", "NotFound")
    assert w.said("UpToDate") == ("False", "NotFound")
    assert "s3://m/broken" in w.condition("UpToDate")["message"]


def test_a_canary_that_fails_leaves_ready_alone_and_is_stalled_after_the_deadline() -> None:
    w = serving()
    w.edit(canary={"artifact": {"uri": BROKEN}, "weight": 10})
    w.settle()
    assert w.said("Ready")[0] == "True"
    assert w.said("UpToDate") == ("False", "NotFound")
    assert not w.condition("Stalled")
    w.now += 901
    w.settle()
    assert w.said("Stalled") == ("True", "ProgressDeadlineExceeded")
    assert not w.condition("Reconciling")
    assert w.role(Role.CANARY) in w.deployments(), "a canary is never given up"


def test_what_a_given_up_revision_said_of_its_artifact_is_kept() -> None:
    w = serving()
    w.edit(artifact={"uri": BROKEN})
    w.settle()
    w.now += 901
    w.settle()
    assert w.said("ArtifactVerified") == ("False", "NotFound")
    assert w.said("UpToDate") == ("False", "ProgressDeadlineExceeded")


def test_a_name_that_is_taken_is_said_and_the_rest_goes_on() -> None:
    w = serving()
    now = told(w, conflicts=("NetworkPolicy/sentiment",))
    assert condition(now, "Accepted")[:2] == ("False", "NameConflict")
    assert "NetworkPolicy/sentiment" in condition(now, "Accepted")[2]
    assert condition(now, "Ready")[0] == "True"
    assert condition(now, "Stalled")[1] == "NameConflict"


def test_a_service_of_somebody_else_at_the_url_is_not_ready() -> None:
    now = told(serving(), conflicts=("Service/sentiment",))
    assert condition(now, "Ready")[:2] == ("False", "NameConflict")


def test_a_full_namespace_is_said_by_new_ones_only() -> None:
    assert condition(told(world(), namespace_full=True), "Accepted")[:2] == ("False", "NamespaceFull")
    assert condition(told(serving(), namespace_full=True), "Accepted")[0] == "True"


@pytest.mark.parametrize("status_before", ["none", "some"])
def test_a_spec_that_cannot_be_read_keeps_everything_else(status_before: str) -> None:
    w = serving() if status_before == "some" else world()
    resource = replace(w.observed().resource, spec=None, spec_error="spec.replicas: not a number", generation=7)
    now = told(w, resource=resource)
    for kind in ("Accepted", "UpToDate"):
        assert condition(now, kind) == ("False", "InvalidSpec", "spec.replicas: not a number")
    assert condition(now, "Stalled")[:2] == ("True", "InvalidSpec")
    assert now["observedGeneration"] == 7
    assert now.get("revisions") == w.status.get("revisions")
    if status_before == "some":
        kept = next(each for each in now["conditions"] if each["type"] == "Ready")
        assert kept == w.condition("Ready")


def test_a_namespace_that_ends_changes_no_status() -> None:
    w = serving()
    assert told(w, namespace_terminating=True) == w.status


@pytest.mark.parametrize(
    ("route", "routed", "ready"),
    [
        (RouteState(routers=0, weights=None), ("False", "RouterNotReady"), ("False", "RouterNotReady")),
        (RouteState(routers=2, weights={}), ("False", "WeightPending"), ("False", "WeightPending")),
        (RouteState(routers=2, rejected="bad cluster"), ("False", "RouterRejected"), ("False", "WeightPending")),
    ],
)
def test_the_routers_are_told_apart_from_the_pods(
    route: RouteState, routed: tuple[str, str], ready: tuple[str, str]
) -> None:
    w = world()
    w.pass_()
    w.nodes(steps=2)
    w.pass_()
    now = told(w, route=route)
    assert condition(now, "Routed")[:2] == routed
    assert condition(now, "Ready")[:2] == ready


def test_an_operator_that_has_just_started_keeps_what_it_said() -> None:
    w = serving(canary={"artifact": B, "weight": 10})
    before = w.status
    w.now += 3600
    w.restart_operator()
    w.pass_()
    assert w.status == before
    w.remember()
    w.pass_()
    assert w.status == before


def test_knobs_are_confirmed_pod_by_pod() -> None:
    w = serving(replicas=2)
    w.edit(batching={"maxWait": "9ms"})
    w.pass_()
    assert w.said("KnobsApplied") == ("False", "Waiting")
    assert w.status["knobs"]["applied"] == 0
    assert w.condition("Reconciling")
    w.nodes()
    w.pods[0].knobs = "old"
    w.pass_()
    assert "1 of 2" in w.condition("KnobsApplied")["message"]
    w.nodes()
    w.pass_()
    assert w.said("KnobsApplied") == ("True", "Applied")
    assert (w.status["knobs"]["pods"], w.status["knobs"]["applied"]) == (2, 2)
    assert w.status["knobs"]["effective"] == {"maxWait": "2ms"}


def test_a_clamped_knob_is_said_with_its_field_and_to_what() -> None:
    w = serving()
    clamp = Clamp(field="spec.batching.maxBatch", asked="64", effective="32", message="32 is the largest bucket")
    knobs = KnobsReport(hash=w.status["knobs"]["hash"], clamped=[clamp])
    observed = with_reports(w, knobs=knobs)
    now = status(observed, plan(observed, w.now), w.now)
    assert condition(now, "KnobsApplied") == ("False", "Clamped", "spec.batching.maxBatch: 32 is the largest bucket")
    assert not [each for each in now["conditions"] if each["type"] == "Reconciling"]


def test_knobs_that_pods_cannot_read_are_said() -> None:
    w = serving()
    observed = with_reports(w, knobs=KnobsReport(hash="old", error="maxWait: not a duration"))
    now = status(observed, plan(observed, w.now), w.now)
    assert condition(now, "KnobsApplied")[1] == "KnobsRejected"


def test_the_warm_up_is_counted() -> None:
    w = world()
    w.pass_()
    w.nodes()
    observed = with_reports(w, phase=Phase.WARMING, buckets=BucketReport(total=15, warm=3))
    now = status(observed, plan(observed, w.now), w.now)
    assert condition(now, "Ready")[1] == "Warming"
    assert "3 of 15" in condition(now, "Ready")[2]
    assert condition(now, "Accepted")[0] == "True", "a program that warms up has been accepted"
    (revision,) = now["revisions"]
    assert (revision["buckets"], revision["bucketsWarm"]) == (15, 3)


def test_rollback_says_how_much_of_the_load_it_could_carry() -> None:
    w = serving(replicas=4)
    w.edit(artifact=B)
    w.settle()
    assert "1 of 4 replicas warm" in w.condition("RollbackReady")["message"]
    assert "2027-01-16T" in w.condition("RollbackReady")["message"]
    previous = w.role(Role.PREVIOUS)
    w.pods = [pod for pod in w.pods if pod.revision != previous]
    w.pass_()
    assert w.said("RollbackReady") == ("False", "PreviousNotReady")
    w.nodes()
    pod = next(pod for pod in w.pods if pod.revision == previous)
    pod.stage, pod.termination = 0, Termination(reason="NotFound", message="gone")
    w.pass_()
    assert "gone" in w.condition("RollbackReady")["message"]


def test_a_canary_with_another_signature_is_stalled_not_reconciling() -> None:
    w = serving(canary={"artifact": {"uri": OTHER_SIGNATURE}, "weight": 10})
    assert w.said("Stalled") == ("True", "SignatureChanged")
    assert not w.condition("Reconciling")


def test_a_revision_that_leaves_is_shown_as_such_and_keeps_reconciling_on() -> None:
    w = serving(canary={"artifact": B, "weight": 10})
    canary = w.role(Role.CANARY)
    w.edit(canary=None)
    w.pass_()
    (leaving,) = [each for each in w.status["revisions"] if each.get("leaving")]
    assert (leaving["name"], leaving["role"], leaving["weight"]) == (canary, "Canary", 10)
    assert f"{canary} is being removed" in w.condition("Reconciling")["message"]


def test_the_newest_failure_by_time_is_told_and_its_time_is_the_pods_own() -> None:
    w = world(replicas=2, artifact={"uri": BROKEN, "digest": "sha256:" + 64 * "a"})
    w.pass_()
    w.nodes()
    w.pass_()
    observed = w.observed()
    pods = tuple(replace(pod, failed_at=EPOCH + 10 * index) for index, pod in enumerate(observed.pods))
    observed = replace(observed, pods=pods)
    now = status(observed, plan(observed, w.now), w.now)
    assert now["lastFailure"]["pod"] == pods[1].name
    assert now["lastFailure"]["time"] == "2027-01-15T08:00:10Z"


def test_messages_are_bounded() -> None:
    w = serving()
    now = told(w, route=RouteState(routers=1, rejected="x" * 10_000))
    assert len(condition(now, "Routed")[2]) == 2048


def test_revisions_tell_the_digest_the_source_and_the_image() -> None:
    (revision,) = serving().status["revisions"]
    assert revision["artifactDigest"] == "sha256:" + 64 * "a"
    assert (revision["artifactUri"], revision["image"]) == ("s3://m/a", "runtime:1")
    assert "progressingSince" not in revision


def test_pods_of_a_revision_without_a_record_are_shown_as_they_are() -> None:
    w = serving()
    stable = w.role(Role.STABLE)
    del w.objects["ControllerRevision", f"sentiment-{stable}"]
    w.edit(artifact=B)
    w.pass_()
    shown = next(each for each in w.status["revisions"] if each["name"] == stable)
    assert "artifactUri" not in shown
    assert shown["ready"] == 1


@pytest.mark.parametrize("names", ["abc", "cba"])
def test_a_column_that_takes_the_first_of_a_role_shows_one_that_stays(names: str) -> None:
    w = world(f"s3://m/{names[0]}")
    w.pass_()
    for name in names[1:]:  # nothing was ever ready, and no router has said a word: the old ones wait to leave
        w.edit(artifact={"uri": f"s3://m/{name}"})
        w.pass_()
    stable = [entry for entry in w.status["revisions"] if entry["role"] == "Stable"]
    assert [entry.get("leaving", False) for entry in stable] == [False, True, True]
    assert stable[0]["artifactUri"] == f"s3://m/{names[-1]}"
