"""What pods say, as typed failures: the most telling explanation first, their own words unchanged."""

from dataclasses import replace
from typing import Any

import pytest
from headway_api.podconfig import Phase, Report, Termination
from headway_operator.observed import Observed, Pod, Record
from headway_operator.plan.failures import explain, explain_pod

from tests.unit.plan_world import world

POD = Pod(name="p", uid="u", revision="r", ip=None, ready=False, terminating=False)


def record(trust: dict[str, Any] | None = None, **resources: Any) -> Record:
    containers = [{"name": "serve", "resources": resources}]
    spec = {"containers": containers, "initContainers": [{"name": "prepare"}]}
    artifact = {"uri": "s3://m/a", "credentials": {"secretName": "keys"}, **({"trust": trust} if trust else {})}
    cold = {"artifact": artifact}
    return Record("r", "r", cold, "registry/runtime:1", {"spec": spec}, "{}", 1)


def observed(*pods: Pod, **changes: Any) -> Observed:
    return replace(world().observed(), pods=pods, **changes)


REFUSAL = Termination(
    reason="BucketOutOfRange", message="128 is above 64", condition="Accepted", field="spec.batching.shapeBuckets.batch"
)


@pytest.mark.parametrize(
    ("pod", "condition", "reason", "words"),
    [
        (replace(POD, unschedulable="0/3 nodes"), "Ready", "PodsUnschedulable", "0/3 nodes"),
        (replace(POD, waiting=("ImagePullBackOff", "not found")), "Ready", "ImagePullFailed", "registry/runtime:1"),
        (replace(POD, waiting=("ErrImagePull", "")), "Ready", "ImagePullFailed", "ErrImagePull"),
        (
            replace(POD, waiting=("CreateContainerConfigError", 'secret "env-keys" not found')),
            "Ready",
            "SecretNotFound",
            'spec.template.env: Pod p cannot be started: secret "env-keys" not found',
        ),
        (replace(POD, waiting=("CreateContainerConfigError", "no config")), "Ready", "Starting", "no config"),
        (replace(POD, oom_killed=True), "Ready", "OutOfMemory", "spec.template.resources.limits.memory (1Gi)"),
        (replace(POD, oom_killed=True, container="prepare"), "Ready", "OutOfMemory", "the memory of its node"),
        (replace(POD, termination=REFUSAL), "Accepted", "BucketOutOfRange", "batch: 128 is above 64"),
        (
            replace(POD, termination=Termination(reason="DigestMismatch", message="x", condition="ArtifactVerified")),
            "ArtifactVerified",
            "DigestMismatch",
            "x",
        ),
        (replace(POD, termination=Termination(reason="Odd", message="y", condition="?")), "Ready", "Odd", "y"),
        (replace(POD, waiting=("CrashLoopBackOff", "back-off"), restarts=4), "Ready", "CrashLoop", "4 times"),
    ],
)
def test_each_trouble_has_a_condition_a_reason_and_words(pod: Pod, condition: str, reason: str, words: str) -> None:
    failure = explain_pod(pod, record(limits={"memory": "1Gi"}))
    assert failure is not None
    assert (failure.condition, failure.reason) == (condition, reason)
    assert words in failure.message


@pytest.mark.parametrize(
    "pod",
    [
        POD,
        replace(POD, ready=True, oom_killed=True, termination=REFUSAL),
        replace(POD, termination=Termination(reason="Prepared", digest="sha256:0")),
        replace(POD, waiting=("PodInitializing", "")),
    ],
)
def test_a_pod_that_only_starts_or_is_ready_has_no_failure(pod: Pod) -> None:
    assert explain_pod(pod, record()) is None


def test_a_field_is_named_once() -> None:
    told = replace(POD, termination=Termination(reason="X", message="spec.a: wrong", field="spec.a"))
    failure = explain_pod(told, None)
    assert failure is not None
    assert failure.message == "spec.a: wrong"
    assert failure.field == "spec.a"


def test_memory_is_named_before_the_words_of_an_earlier_end() -> None:
    failure = explain_pod(replace(POD, oom_killed=True, termination=REFUSAL), None)
    assert failure is not None
    assert failure.reason == "OutOfMemory"


def test_typed_words_are_told_instead_of_a_crash_loop() -> None:
    failure = explain_pod(replace(POD, waiting=("CrashLoopBackOff", ""), termination=REFUSAL), None)
    assert failure is not None
    assert failure.reason == "BucketOutOfRange"


def test_the_report_speaks_when_the_process_stays() -> None:
    report = Report(model="m", revision="r", phase=Phase.FAILED, failure=REFUSAL)
    failure = explain_pod(replace(POD, report=report), None)
    assert failure is not None
    assert failure.reason == "BucketOutOfRange"


def test_an_image_of_a_revision_without_a_record_is_told_without_its_name() -> None:
    failure = explain_pod(replace(POD, waiting=("ErrImagePull", "gone")), None)
    assert failure is not None
    assert "gone" in failure.message


def test_a_missing_secret_is_named_by_its_field_but_only_by_pods_that_wait() -> None:
    waits, stays = POD, replace(POD, name="q", ready=True)
    for pods, expected in (((waits,), "SecretNotFound"), ((waits, stays), "SecretNotFound"), ((stays,), None)):
        failure = explain(observed(*pods, secrets_missing=("keys",)), {"r": record()}, "r")
        assert (failure.reason if failure else None) == expected
    failure = explain(observed(waits, secrets_missing=("keys",)), {"r": record()}, "r")
    assert failure is not None
    assert failure.message.startswith("spec.artifact.credentials.secretName: the Secret 'keys'")
    assert explain(observed(waits, secrets_missing=("other",)), {"r": record()}, "r") is None


@pytest.mark.parametrize("kind", ["publicKeys", "builderKeys"])
def test_a_missing_secret_of_keys_is_named_by_its_own_field(kind: str) -> None:
    recorded = {"r": record(trust={kind: {"secretName": "signers"}})}
    failure = explain(observed(POD, secrets_missing=("signers",)), recorded, "r")
    assert failure is not None
    assert (failure.condition, failure.reason) == ("Ready", "SecretNotFound")
    assert failure.field == f"spec.artifact.trust.{kind}.secretName"
    assert failure.message.startswith(f"{failure.field}: the Secret 'signers' does not exist in namespace 'prod'")


def test_all_missing_secrets_are_named_at_once() -> None:
    recorded = {"r": record(trust={"publicKeys": {"secretName": "signers"}})}
    failure = explain(observed(POD, secrets_missing=("keys", "signers")), recorded, "r")
    assert failure is not None
    assert "'keys'" in failure.message
    assert "'signers'" in failure.message


def test_the_first_pod_by_name_speaks_and_those_that_end_are_silent() -> None:
    first = replace(POD, name="a", unschedulable="full")
    second = replace(POD, name="b", termination=REFUSAL)
    gone = replace(POD, name="0", terminating=True, termination=REFUSAL)
    failure = explain(observed(second, first, gone), {}, "r")
    assert failure is not None
    assert failure.pod == "a"
    assert explain(observed(gone), {}, "r") is None
