"""What the user reads about signatures, the sandbox and golden answers; and that a refused candidate never serves."""

from dataclasses import replace
from typing import Any

import pytest
from headway_api.podconfig import ParityReport, Phase, Report, SandboxReport, Termination
from headway_api.types import Precision
from headway_operator.observed import Object, Observed, Role
from headway_operator.plan import plan
from headway_operator.status import events, status

from tests.unit.plan_world import World, serving, world

B = {"uri": "s3://m/b"}
FULL = SandboxReport(landlock=7, seccomp=True)
NO_LANDLOCK = SandboxReport(seccomp=True, missing=["Landlock (kernel 5.4 has none)"])
NOTHING = SandboxReport(missing=["Landlock", "seccomp"])
AGREES = ParityReport(samples=3)
DIFFERS = ParityReport(samples=3, agrees=False, largest_difference=0.25, message="output logits of sample 1 is off")

# reason -> the condition that it belongs to: the contract between pods and operator
REFUSALS = {
    "UnsafeArtifact": "ArtifactVerified",
    "IncompatibleVersion": "ArtifactVerified",
    "SignatureMissing": "ArtifactVerified",
    "SignatureInvalid": "ArtifactVerified",
    "UnknownProgram": "ArtifactVerified",
    "ShapeMismatch": "ArtifactVerified",
    "WillNotFit": "Accepted",
    "SandboxUnavailable": "Accepted",
    "ParityFailed": "Ready",
}


def reporting(w: World, *said: dict[str, Any], **changes: Any) -> Observed:
    """The pods in turn report this; the last one's words are those of all others. An empty one reports nothing."""
    observed = w.observed(**changes)
    words = [*said, *[said[-1]] * len(observed.pods)]
    pods = tuple(
        replace(pod, report=pod.report.model_copy(update=each) if each and pod.report else None)
        for pod, each in zip(observed.pods, words, strict=False)
    )
    return replace(observed, pods=pods)


def told(w: World, *said: dict[str, Any], **changes: Any) -> Object:
    observed = reporting(w, *said, **changes)
    return status(observed, plan(observed, w.now), w.now)


def condition(of: Object, kind: str) -> tuple[str, str, str]:
    found = next(each for each in of["conditions"] if each["type"] == kind)
    return found["status"], found["reason"], found["message"]


# Refusals


@pytest.mark.parametrize(("reason", "kind"), REFUSALS.items())
def test_a_canary_that_is_refused_never_serves_and_the_stable_goes_on(reason: str, kind: str) -> None:
    w = serving(replicas=2)
    stable = w.role(Role.STABLE)
    w.edit(canary={"artifact": B, "weight": 50})
    w.pass_()
    w.nodes()
    refusal = Termination(reason=reason, message="why", condition=kind, field="spec.artifact")
    for _ in range(5):
        for pod in w.pods:
            if pod.revision != stable:
                pod.stage, pod.termination, pod.digest = 0, refusal, None
        w.pass_()
        w.acknowledge()
        w.now += 400
        assert w.weights() == {stable: 100}
        assert w.in_force(stable) == 100
    canary = w.role(Role.CANARY)
    assert canary is not None
    assert w.published is not None
    assert canary not in w.published
    assert w.said("UpToDate") == ("False", reason)
    assert w.said("Ready") == ("True", "Serving"), "a candidate that fails does not make the service fail"
    if kind != "Ready":
        assert w.said(kind) == ("False", reason)
        assert w.condition(kind)["message"] == "spec.artifact: why"
    assert w.status["lastFailure"]["reason"] == reason
    w.edit(canary=None)
    w.settle()
    assert all(w.said(each)[0] == "True" for each in ("Accepted", "ArtifactVerified", "Ready", "UpToDate"))


@pytest.mark.parametrize(("reason", "kind"), REFUSALS.items())
def test_a_first_version_that_is_refused_is_not_ready_for_that_reason(reason: str, kind: str) -> None:
    w = world()
    w.pass_()
    w.nodes()
    w.pods[0].stage, w.pods[0].digest = 0, None
    w.pods[0].termination = Termination(reason=reason, message="why", condition=kind)
    w.pass_()
    assert w.said("Ready") == ("False", reason)
    assert w.said(kind) == ("False", reason)
    assert w.weights() == {}


# Signatures


def test_how_an_artifact_was_verified_is_said_from_what_its_pods_found() -> None:
    w = serving(replicas=2)
    digest = "sha256:" + 64 * "a"
    assert f"({digest}; no verified signature)" in w.condition("ArtifactVerified")["message"]
    for pod in w.pods:
        pod.signer = "ed25519:0a1b"
    assert f"({digest}; signed by ed25519:0a1b)" in condition(told(w, {"requests": 1}), "ArtifactVerified")[2]


def test_while_keys_are_rotated_all_signers_are_named() -> None:
    w = serving(replicas=3)
    w.pods[0].signer, w.pods[1].signer = "new", "old"
    assert "signed by new, old, not so in every pod" in condition(told(w, {"requests": 1}), "ArtifactVerified")[2]


def test_what_the_model_says_of_its_signature_counts_for_nothing() -> None:
    message = condition(told(serving(), {"signer": "forged"}), "ArtifactVerified")[2]
    assert "forged" not in message


def test_spec_alone_makes_no_artifact_signed() -> None:
    trust = {"require": "Signature", "publicKeys": {"secretName": "keys"}}
    w = serving(artifact={"uri": "s3://m/a", "trust": trust})
    assert "no verified signature" in w.condition("ArtifactVerified")["message"]


# The sandbox


def level(of: Object) -> str | None:
    found: str | None = of["revisions"][0].get("sandbox")
    return found


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ((FULL,), "Full"),
        ((FULL, NO_LANDLOCK), "Partial"),
        ((NOTHING, FULL), "None"),
        ((SandboxReport(landlock=0, seccomp=True, missing=[]),), "Partial"),  # it contradicts itself
        ((SandboxReport(landlock=0, seccomp=False, missing=[]),), "None"),
    ],
)
def test_the_least_confined_pod_counts(said: tuple[SandboxReport, ...], expected: str) -> None:
    now = told(serving(replicas=2), *({"sandbox": each} for each in said))
    assert level(now) == expected
    assert condition(now, "Sandboxed")[0] == ("True" if expected == "Full" else "False")


def test_what_is_missing_is_named_with_its_pods_and_said_once_as_an_event() -> None:
    w = serving(replicas=2)
    now = told(w, {"sandbox": FULL}, {"sandbox": NO_LANDLOCK})
    kind, reason, message = condition(now, "Sandboxed")
    assert (kind, reason) == ("False", "SandboxIncomplete")
    names = sorted(pod.name for pod in w.pods)
    assert f"Landlock (kernel 5.4 has none) on pod {names[1]} of revision {w.role(Role.STABLE)}" in message
    assert names[0] not in message
    assert "spec.template.sandbox: Require" in message
    assert [(e.type, e.reason) for e in events(w.status, now)] == [("Warning", "SandboxIncomplete")]
    assert condition(now, "Ready")[0] == "True"
    w.status = now
    assert events(now, told(w, {"sandbox": FULL}, {"sandbox": NO_LANDLOCK})) == []


def test_many_pods_and_long_words_make_a_short_message() -> None:
    long = SandboxReport(missing=["x" * 5000] * 50)
    message = condition(told(serving(replicas=9), {"sandbox": long}), "Sandboxed")[2]
    assert "and 6 more" in message
    assert len(message) < 1500


def test_a_pod_that_does_not_say_what_confines_it_is_not_called_confined() -> None:
    now = told(serving(replicas=2), {"sandbox": FULL}, {"sandbox": None})
    assert condition(now, "Sandboxed")[:2] == ("Unknown", "NotReported")


@pytest.mark.parametrize("sandbox", [FULL, NO_LANDLOCK])
def test_what_was_said_of_the_sandbox_stays_while_a_pod_is_not_read(sandbox: SandboxReport) -> None:
    w = serving(replicas=2)
    w.status = told(w, {"sandbox": sandbox})
    w.now += 60
    for said in (({},), ({"sandbox": FULL}, {})):
        assert told(w, *said)["conditions"] == w.status["conditions"]
    assert told(w, {}) == w.status


def test_nothing_is_said_of_the_sandbox_before_a_pod_did() -> None:
    w = world()
    w.pass_()
    assert w.said("Sandboxed") == ("Unknown", "Preparing")
    assert "sandbox" not in w.status["revisions"][0]


def test_a_pod_that_has_failed_is_not_counted_as_confined_or_not() -> None:
    w = world()
    w.pass_()
    w.nodes()
    observed = w.observed()
    report = Report(model="m", revision=observed.pods[0].revision, phase=Phase.FAILED, sandbox=NOTHING)
    observed = replace(observed, pods=(replace(observed.pods[0], report=report),))
    now = status(observed, plan(observed, w.now), w.now)
    assert condition(now, "Sandboxed")[:2] == ("Unknown", "Preparing")


# Golden answers


def test_answers_that_differ_and_are_served_all_the_same_are_said_in_ready_and_once_as_a_warning() -> None:
    w = serving(replicas=2)
    now = told(w, {"parity": AGREES}, {"parity": DIFFERS})
    assert now["revisions"][0]["parity"] == "Differs"
    kind, reason, message = condition(now, "Ready")
    assert (kind, reason) == ("True", "AnswersDiffer")
    assert "2 of 2 pods" in message
    assert f"answers of revision {w.role(Role.STABLE)} differ" in message
    assert "output logits of sample 1 is off" in message
    assert [(e.type, e.reason) for e in events(w.status, now)] == [("Warning", "AnswersDiffer")]
    w.status = now
    w.now += 60
    assert told(w, {"parity": AGREES}, {"parity": DIFFERS}) == now
    assert told(w, {}) == now, "no pod was read: what was said stays"
    assert condition(told(w, {"parity": AGREES}), "Ready")[:2] == ("True", "Serving")


def test_a_difference_without_words_is_told_by_its_size() -> None:
    silent = DIFFERS.model_copy(update={"message": ""})
    assert "by up to 0.25" in condition(told(serving(), {"parity": silent}), "Ready")[2]


def test_answers_that_agree_are_noted_and_an_artifact_without_any_says_nothing() -> None:
    w = serving()
    now = told(w, {"parity": AGREES})
    assert now["revisions"][0]["parity"] == "Agrees"
    assert condition(now, "Ready")[1] == "Serving"
    assert "parity" not in told(w, {"parity": None})["revisions"][0]


def test_golden_answers_of_which_no_pod_ran_one_do_not_agree() -> None:
    skipped = ParityReport(samples=0, message="golden sample 0 is not run: its batch is 600")
    assert "parity" not in told(serving(), {"parity": skipped})["revisions"][0]


def test_a_candidate_without_weight_whose_answers_differ_does_not_speak_for_the_service() -> None:
    w = serving(canary={"artifact": B, "weight": 0})
    canary = w.role(Role.CANARY)
    said = [{"parity": DIFFERS if pod.revision == canary else AGREES} for pod in w.observed().pods]
    now = told(w, *said)
    assert condition(now, "Ready")[1] == "Serving"
    assert {each["name"]: each["parity"] for each in now["revisions"]}[canary] == "Differs"


# Precision of weights


def test_a_lower_precision_is_told_as_the_pods_report_it_and_stays_while_none_is_read() -> None:
    w = serving(replicas=2)
    w.status = told(w, {"precision": Precision.INT8})
    assert w.status["revisions"][0]["precision"] == "Int8"
    assert told(w, {"precision": None})["revisions"][0]["precision"] == "Int8"
    for said in ({"precision": Precision.EXPORTED}, {"precision": Precision.BFLOAT16}):
        told_now = told(w, said)["revisions"][0].get("precision")
        assert told_now == (None if said["precision"] is Precision.EXPORTED else "BFloat16")


def test_a_precision_that_is_asked_for_and_not_reported_is_not_told() -> None:
    w = serving()
    w.edit(precision="Int8")
    w.settle()
    assert all("precision" not in each for each in w.status["revisions"])
