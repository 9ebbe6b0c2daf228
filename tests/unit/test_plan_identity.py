"""Which revision a spec means: the same one when its cold fields are the same, another one when its content is."""

from typing import Any

import pytest
from headway_api import names
from headway_api.podconfig import Termination
from headway_api.revision import canary_cold_fields, cold_fields, revision_name
from headway_api.types import Spec
from headway_operator.observed import Role

from tests.unit.plan_world import World, serving, world

A, B = {"uri": "s3://m/a"}, {"uri": "s3://m/b"}
DIGEST_A, DIGEST_B = "sha256:" + 64 * "a", "sha256:" + 64 * "b"


def pin_of(w: World, revision: str | None) -> str | None:
    annotations = w.objects["ControllerRevision", f"sentiment-{revision}"]["metadata"].get("annotations", {})
    return annotations.get(names.ANNOTATION_DIGEST)


def spec(**fields: Any) -> Spec:
    return Spec.model_validate({"artifact": A, "device": {"kind": "cpu"}, **fields})


def test_a_digest_equal_to_the_pin_is_the_same_revision_and_so_is_taking_it_away_again() -> None:
    w = serving()
    stable = w.role(Role.STABLE)
    pods = {pod.name for pod in w.pods}
    for artifact in ({**A, "digest": DIGEST_A}, A):
        w.edit(artifact=artifact)
        w.settle()
        assert w.role(Role.STABLE) == stable
    assert {pod.name for pod in w.pods} == pods
    assert pin_of(w, stable) == DIGEST_A


def test_another_digest_is_another_revision_with_a_salted_name() -> None:
    w = serving()
    stable = w.role(Role.STABLE)
    w.edit(artifact={**A, "digest": DIGEST_B})
    w.settle()
    incoming = w.role(Role.INCOMING)
    assert incoming == revision_name(cold_fields(spec()), salt=DIGEST_B)
    assert pin_of(w, incoming) == DIGEST_B
    assert w.role(Role.STABLE) == stable
    assert w.said("ArtifactVerified") == ("False", "DigestMismatch")


def test_a_digest_gets_a_revision_of_its_own_while_it_is_not_known_what_the_other_one_fetches() -> None:
    w = world()
    w.pass_()
    stable = w.role(Role.STABLE)
    w.edit(artifact={**A, "digest": DIGEST_B})
    w.pass_()
    assert w.role(Role.STABLE) == revision_name(cold_fields(spec()), salt=DIGEST_B)
    assert pin_of(w, stable) is None


def test_a_digest_that_was_asserted_and_is_taken_away_is_the_same_revision() -> None:
    w = serving(artifact={**A, "digest": DIGEST_A})
    stable = w.role(Role.STABLE)
    w.edit(artifact=A)
    w.settle()
    assert w.weights() == {stable: 100}
    assert len(w.deployments()) == 1


def test_the_name_of_a_version_that_served_is_not_given_to_other_bytes() -> None:
    w = serving()
    stable = w.role(Role.STABLE)
    del w.objects["ControllerRevision", f"sentiment-{stable}"]
    del w.objects["Deployment", f"sentiment-{stable}"]
    w.pods.clear()
    w.edit(artifact={**A, "digest": DIGEST_B})
    w.settle()
    w.edit(artifact=A)
    w.settle()
    assert pin_of(w, w.role(Role.STABLE)) == DIGEST_A
    assert w.said("UpToDate")[0] == "True"


def test_a_mistyped_digest_can_be_taken_back() -> None:
    w = serving(artifact={**A, "digest": DIGEST_B})
    wrong = w.role(Role.STABLE)
    assert w.said("Ready") == ("False", "DigestMismatch")
    w.edit(artifact=A)
    w.settle()
    assert w.role(Role.STABLE) != wrong
    assert pin_of(w, w.role(Role.STABLE)) == DIGEST_A
    assert w.said("UpToDate")[0] == "True"
    number = len([key for key in w.objects if key[0] == "ControllerRevision"])
    w.edit(artifact=B)
    w.settle()
    w.edit(artifact=A)
    w.settle()
    assert len([key for key in w.objects if key[0] == "ControllerRevision"]) == number + 1, "it is found again"


def test_a_pin_that_pods_refuted_is_not_found_again_once_they_are_gone() -> None:
    w = serving()
    w.annotations = {names.ANNOTATION_REFRESH: "1"}
    w.nodes()
    w.pass_()
    attempt = w.role(Role.INCOMING)
    w.nodes()  # it may have fetched anything by now
    w.edit(artifact={**A, "digest": DIGEST_B})
    w.settle()
    refuted = w.role(Role.INCOMING)
    assert refuted not in (None, attempt)
    w.edit(artifact=A)
    w.settle()
    assert w.role(Role.STABLE) == attempt
    assert ("ControllerRevision", f"sentiment-{refuted}") not in w.objects


def test_a_digest_is_not_said_of_pods_that_found_other_bytes_although_their_record_is_lost() -> None:
    w = serving(replicas=2)
    stable = w.role(Role.STABLE)
    w.status = {}
    del w.objects["ControllerRevision", f"sentiment-{stable}"]
    w.edit(artifact={**A, "digest": DIGEST_B})
    w.pass_()
    assert w.role(Role.STABLE) == stable
    assert w.role(Role.INCOMING) == revision_name(cold_fields(spec()), salt=DIGEST_B)
    w.edit(artifact={**A, "digest": DIGEST_A})
    w.settle()
    assert w.weights() == {stable: 100}
    assert pin_of(w, stable) == DIGEST_A
    assert w.said("UpToDate")[0] == "True"


def test_a_record_that_is_written_again_has_the_digest_that_its_pods_found() -> None:
    w = serving(replicas=2)
    stable = w.role(Role.STABLE)
    w.status = {}
    del w.objects["ControllerRevision", f"sentiment-{stable}"]
    w.pass_()
    assert pin_of(w, stable) == DIGEST_A


def test_a_model_that_speaks_of_its_digest_gets_no_new_revision() -> None:
    w = world()
    w.pass_()
    w.nodes()
    (pod,) = w.pods
    pod.terminated = "serve"
    pod.termination = Termination(reason="DigestMismatch", message="so it says", condition="ArtifactVerified")
    for _ in range(5):
        w.pass_()
    assert [key[1] for key in w.objects if key[0] == "ControllerRevision"] == [f"sentiment-{pod.revision}"]


def test_a_canary_of_the_version_that_serves_is_that_one_not_a_newer_attempt_that_failed() -> None:
    w = serving()
    stable = w.role(Role.STABLE)
    w.edit(artifact={**A, "digest": DIGEST_B})
    w.settle()
    w.edit(artifact=B, canary={"artifact": A, "weight": 1})
    w.settle()
    assert w.role(Role.CANARY) == stable
    assert w.said("UpToDate")[0] == "True"


def test_other_bytes_behind_the_uri_of_a_serving_revision_are_no_new_revision() -> None:
    w = serving(replicas=2)
    stable = w.role(Role.STABLE)
    w.pods.clear()
    w.nodes()
    for pod in w.pods:
        pod.stage, pod.termination = (
            0,
            Termination(reason="DigestMismatch", condition="ArtifactVerified", message="other"),
        )
    w.pass_()
    assert w.role(Role.STABLE) == stable
    assert w.role(Role.INCOMING) is None
    assert w.said("ArtifactVerified") == ("False", "DigestMismatch")


def test_the_refresh_annotation_takes_them() -> None:
    w = serving()
    stable = w.role(Role.STABLE)
    w.annotations = {names.ANNOTATION_REFRESH: "2026-11-29"}
    w.settle()
    assert w.role(Role.STABLE) not in (None, stable)
    assert w.role(Role.PREVIOUS) == stable


def test_the_canary_never_inherits_the_digest() -> None:
    w = serving(artifact={**A, "digest": DIGEST_A}, canary={"artifact": B, "weight": 10})
    assert pin_of(w, w.role(Role.CANARY)) == DIGEST_B
    assert w.said("UpToDate")[0] == "True"


def test_a_canary_of_the_same_uri_with_another_digest_is_another_revision() -> None:
    w = serving()
    w.edit(canary={"artifact": {"digest": DIGEST_B}, "weight": 10})
    w.settle()
    assert w.role(Role.CANARY) == revision_name(cold_fields(spec()), salt=DIGEST_B)


def test_reverting_a_commit_finds_the_revision_that_is_still_warm() -> None:
    w = serving()
    first = w.role(Role.STABLE)
    for artifact in (B, A):
        w.edit(artifact=artifact)
        w.settle()
    assert w.role(Role.STABLE) == first
    assert len([key for key in w.objects if key[0] == "ControllerRevision"]) == 2


def test_numbers_grow_with_each_record() -> None:
    w = serving()
    w.edit(artifact=B, canary={"artifact": {"uri": "s3://m/c"}, "weight": 1})
    w.pass_()
    numbers = sorted(obj["revision"] for (kind, _), obj in w.objects.items() if kind == "ControllerRevision")
    assert numbers == [1, 2, 3]


@pytest.mark.parametrize(
    "field",
    [
        {"nodeSelector": {"disk": ""}},
        {"podAnnotations": {"note": ""}},
        {"podLabels": {"team": ""}},
        {"affinity": {"podAntiAffinity": {"x": []}}},
    ],
)
def test_an_empty_value_that_means_something_is_part_of_a_revision(field: dict[str, Any]) -> None:
    assert revision_name(cold_fields(spec(template=field))) != revision_name(cold_fields(spec()))


@pytest.mark.parametrize(
    "field",
    [{"nodeSelector": {}}, {"tolerations": []}, {"drainTimeout": "1m"}, {"resources": {}}, {"affinity": {}}],
)
def test_absent_empty_and_introduced_defaults_are_the_same_revision(field: dict[str, Any]) -> None:
    assert revision_name(cold_fields(spec(template=field))) == revision_name(cold_fields(spec()))


def test_promotion_is_the_same_revision() -> None:
    canary = canary_cold_fields(spec(canary={"artifact": B, "weight": 10}))
    assert canary == cold_fields(spec(artifact=B))
