"""What a pod's status says, as kubelets write it."""

import json
from typing import Any

import pytest
from headway_api import names
from headway_operator.pods import is_live, is_serving_process_up, parse_pod

START, LATER = "2026-11-29T10:00:00Z", "2026-11-29T10:05:00Z"


def pod(*, phase: str = "Running", labels: dict[str, str] | None = None, **status: Any) -> dict[str, Any]:
    metadata = {"name": "p", "uid": "u", "labels": labels or {names.LABEL_REVISION: "0a1b2c3d"}}
    return {"metadata": metadata, "status": {"phase": phase, **status}}


def container(name: str, *, restarts: int = 0, **states: Any) -> dict[str, Any]:
    return {"name": name, "restartCount": restarts, **states}


def ended(message: str = "", *, at: str = START, code: int = 1, reason: str = "Error") -> dict[str, Any]:
    return {"terminated": {"exitCode": code, "reason": reason, "finishedAt": at, "message": message}}


def prepared(digest: str = "sha256:d", **facts: str) -> dict[str, Any]:
    return ended(json.dumps({"reason": "Prepared", "digest": digest, **facts}), code=0, reason="Completed")


def test_a_pod_that_serves() -> None:
    found = parse_pod(
        pod(
            podIP="10.0.0.7",
            conditions=[{"type": "Ready", "status": "True"}],
            initContainerStatuses=[container("prepare", state=prepared())],
            containerStatuses=[container("serve", restarts=2, state={"running": {"startedAt": START}})],
        ),
        None,
    )
    assert (found.ip, found.ready, found.restarts, found.revision) == ("10.0.0.7", True, 2, "0a1b2c3d")
    assert (found.digest, found.waiting, found.oom_killed, found.unschedulable) == ("sha256:d", None, False, None)


def test_a_typed_refusal_of_prepare() -> None:
    refusal = {"reason": "DigestMismatch", "message": "is …, not …", "condition": "ArtifactVerified"}
    waiting = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}}
    status = [container("prepare", restarts=3, state=waiting, lastState=ended(json.dumps(refusal), at=LATER))]
    found = parse_pod(pod(phase="Pending", initContainerStatuses=status), None)
    assert found.termination is not None
    assert found.termination.reason == "DigestMismatch"
    assert (found.waiting, found.container) == (("CrashLoopBackOff", "back-off"), "prepare")
    assert found.failed_at == 1795946700.0


@pytest.mark.parametrize("message", ["[" * 4096, '{"reason": "X", "message": "\\ud800"}', '{"reason": 1e999}', "null"])
def test_words_that_would_end_a_pass_are_the_words_of_anything_else(message: str) -> None:
    found = parse_pod(pod(containerStatuses=[container("serve", state=ended(message))]), None)
    assert found.termination is None


def test_the_signer_is_whom_prepare_found() -> None:
    signed = container("prepare", state=prepared(signer="ed25519"))
    assert parse_pod(pod(initContainerStatuses=[signed]), None).signer == "ed25519"
    assert parse_pod(pod(initContainerStatuses=[container("prepare", state=prepared())]), None).signer is None


def test_what_the_model_says_of_the_digest_and_the_signer_is_not_believed() -> None:
    found = parse_pod(pod(containerStatuses=[container("serve", state=prepared(signer="forged"))]), None)
    assert (found.digest, found.signer) == (None, None)


def test_who_left_the_newest_typed_message_is_known() -> None:
    lie = ended(json.dumps({"reason": "DigestMismatch", "condition": "ArtifactVerified"}), at=LATER)
    found = parse_pod(
        pod(
            initContainerStatuses=[container("prepare", state=prepared())],
            containerStatuses=[container("serve", state=lie)],
        ),
        None,
    )
    assert found.termination is not None
    assert (found.termination.reason, found.terminated) == ("DigestMismatch", "serve")


def test_a_message_is_one_line_of_bounded_length() -> None:
    said = json.dumps({"reason": "Broken", "message": "a\nb\x1b[2J" + "x" * 3000})
    found = parse_pod(pod(containerStatuses=[container("serve", state=ended(said))]), None)
    assert found.termination is not None
    assert found.termination.message.startswith("a b [2Jxx")
    assert len(found.termination.message) == 2000


def test_the_newest_typed_message_counts_and_what_was_prepared_is_not_forgotten() -> None:
    failure = json.dumps({"reason": "OutOfMemory", "message": "of the device", "condition": "Ready"})
    found = parse_pod(
        pod(
            initContainerStatuses=[container("prepare", state=prepared())],
            containerStatuses=[
                container("serve", restarts=1, state={"running": {}}, lastState=ended(failure, at=LATER))
            ],
        ),
        None,
    )
    assert found.termination is not None
    assert (found.termination.reason, found.digest, found.container) == ("OutOfMemory", "sha256:d", "serve")


def test_words_that_are_not_ours_are_no_termination() -> None:
    for words in ("panic: runtime error", "[1, 2]", '"text"', "{}", "", '{"reason": "no word"}'):
        status = [container("serve", lastState=ended(words))]
        assert parse_pod(pod(containerStatuses=status), None).termination is None, words


def test_a_pod_killed_for_its_memory() -> None:
    killed = ended(at=LATER, code=137, reason="OOMKilled")
    status = [container("serve", restarts=1, state={"waiting": {"reason": "CrashLoopBackOff"}}, lastState=killed)]
    found = parse_pod(
        pod(initContainerStatuses=[container("prepare", state=prepared())], containerStatuses=status), None
    )
    assert (found.oom_killed, found.container) == (True, "serve")


def test_an_image_that_cannot_be_pulled_and_an_ordinary_start() -> None:
    pull = [container("serve", state={"waiting": {"reason": "ImagePullBackOff", "message": "not found"}})]
    assert parse_pod(pod(containerStatuses=pull), None).waiting == ("ImagePullBackOff", "not found")
    for reason in ("ContainerCreating", "PodInitializing"):
        start = [container("serve", state={"waiting": {"reason": reason}})]
        assert parse_pod(pod(containerStatuses=start), None).waiting is None


def test_a_pod_that_no_node_can_take() -> None:
    scheduled = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes"}
    assert parse_pod(pod(phase="Pending", conditions=[scheduled]), None).unschedulable == "0/1 nodes"
    gated = {**scheduled, "reason": "SchedulingGated"}
    assert parse_pod(pod(phase="Pending", conditions=[gated]), None).unschedulable is None


def test_a_pod_about_which_nothing_is_known_yet() -> None:
    found = parse_pod({"metadata": {"name": "p", "uid": "u"}}, None)
    assert (found.ready, found.ip, found.revision, found.restarts) == (False, None, "", 0)


def test_an_evicted_pod_is_not_live_and_a_pod_without_its_server_is_not_read() -> None:
    assert not is_live(pod(phase="Failed"))
    assert is_live(pod(phase="Pending"))
    assert not is_serving_process_up(pod(containerStatuses=[container("serve", state={"waiting": {}})]))
    assert is_serving_process_up(pod(containerStatuses=[container("serve", state={"running": {}})]))
