"""What the operator learns from pods, and what it makes them do."""

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from headway_api import names
from headway_api.podconfig import knobs_hash

from tests.cluster.control.kube import Kube, Object, eventually
from tests.cluster.control.manifests import model, revision_of
from tests.cluster.control.played import DIGEST, PlayedNode
from tests.cluster.control.played import running as running_status
from tests.cluster.control.process import WRITES, OperatorProcess


@pytest.fixture
def node(kube: Kube) -> Iterator[PlayedNode]:
    """Plays the pods of the namespace. It has a connection of its own: it works in a thread."""
    played = PlayedNode(kube).start()
    yield played
    played.end()


def wanted_knobs(kube: Kube) -> str:
    return knobs_hash(kube.must("ConfigMap", "sentiment-knobs")["data"][names.KNOBS_KEY])


def is_true(kube: Kube, condition: str) -> Object | None:
    found = kube.condition("sentiment", condition)
    generation = kube.must("ModelDeployment", "sentiment")["metadata"]["generation"]
    return found if found["status"] == "True" and found["observedGeneration"] == generation else None


def test_what_the_first_pod_found_is_pinned_before_the_others_start(
    kube: Kube, running: OperatorProcess, node: PlayedNode
) -> None:
    kube.apply(model(replicas=3))
    eventually(lambda: is_true(kube, "ArtifactVerified"))
    eventually(lambda: len(node.pods) == 3)
    name = f"sentiment-{revision_of(kube.must('ModelDeployment', 'sentiment'))}"
    assert kube.must("ControllerRevision", name)["metadata"]["annotations"][names.ANNOTATION_DIGEST] == DIGEST
    assert kube.must("ConfigMap", name)["data"][names.DIGEST_KEY] == DIGEST
    assert kube.must("Deployment", name)["spec"]["replicas"] == 3


def test_changed_knobs_reach_every_pod_by_a_nudge_and_are_confirmed_without_a_restart(
    kube: Kube, running: OperatorProcess, node: PlayedNode
) -> None:
    kube.apply(model(replicas=2))
    eventually(lambda: len(node.pods) == 2 and is_true(kube, "KnobsApplied"))
    pods = {pod["metadata"]["uid"] for pod in kube.pods()}
    for wait in ("5ms", "6ms", "7ms"):
        kube.apply(model(replicas=2, batching={"maxWait": wait}))
        eventually(lambda wait=wait: wait in kube.must("ConfigMap", "sentiment-knobs")["data"][names.KNOBS_KEY])
        eventually(lambda: is_true(kube, "KnobsApplied"))
        assert {pod.knobs for pod in node.pods.values()} == {wanted_knobs(kube)}
    assert {pod["metadata"]["uid"] for pod in kube.pods()} == pods
    running.wait_until_quiet()
    (deployment,) = kube.all("Deployment")
    annotations = deployment["spec"]["template"]["metadata"].get("annotations", {})
    assert names.ANNOTATION_SYNC not in annotations


def test_a_pod_that_missed_a_nudge_gets_another_one(kube: Kube, running: OperatorProcess, node: PlayedNode) -> None:
    kube.apply(model())
    eventually(lambda: node.pods and is_true(kube, "KnobsApplied"))
    (pod,) = node.pods.values()
    pod.deaf = True
    kube.apply(model(batching={"maxWait": "5ms"}))
    annotations: list[str] = []

    def nudged_twice() -> bool:
        (obj,) = kube.pods()
        value = obj["metadata"].get("annotations", {}).get(names.ANNOTATION_SYNC, "")
        if value and value not in annotations:
            annotations.append(value)
        return len(annotations) == 2

    eventually(nudged_twice)
    assert annotations == [wanted_knobs(kube), f"{wanted_knobs(kube)}.2"]
    assert kube.condition("sentiment", "KnobsApplied")["reason"] == "Waiting"
    pod.deaf = False
    eventually(lambda: is_true(kube, "KnobsApplied"))


def test_a_settled_pod_is_not_asked_any_more(kube: Kube, running: OperatorProcess, node: PlayedNode) -> None:
    kube.apply(model())
    eventually(lambda: node.pods and is_true(kube, "KnobsApplied"))
    running.wait_until_quiet()
    (pod,) = node.pods.values()
    asked, passes = pod.asked, running.passes()
    kube.patch("ModelDeployment", "sentiment", {"metadata": {"annotations": {"example.com/wakes": "the pass"}}})
    eventually(lambda: running.passes() > passes)
    running.wait_until_quiet()
    assert pod.asked == asked


def test_an_operator_that_starts_reads_every_pod_once(kube: Kube, running: OperatorProcess, node: PlayedNode) -> None:
    kube.apply(model(replicas=3))
    eventually(lambda: len(node.pods) == 3 and is_true(kube, "KnobsApplied"))
    running.terminate()
    before = {uid: pod.asked for uid, pod in node.pods.items()}
    running.start()
    running.wait_until_healthy()
    running.wait_until_quiet()
    assert {uid: pod.asked for uid, pod in node.pods.items()} == {uid: asked + 1 for uid, asked in before.items()}


def failed_mount(kube: Kube, pod: Object) -> None:
    """What the kubelet says of a pod whose Secret is not there."""
    metadata = pod["metadata"]
    involved = {"apiVersion": "v1", "kind": "Pod", "name": metadata["name"], "namespace": kube.namespace}
    message = 'MountVolume.SetUp failed for volume "credentials" : secret "models-read" not found'
    event: dict[str, Any] = {
        "metadata": {"name": f"{metadata['name']}.1", "namespace": kube.namespace},
        "involvedObject": {**involved, "uid": metadata["uid"]},
        "reason": "FailedMount",
        "message": message,
        "type": "Warning",
        "source": {"component": "kubelet"},
    }
    kube.create(f"/api/v1/namespaces/{kube.namespace}/events", event)


def test_a_secret_that_is_not_there_is_named_though_the_operator_may_read_none(
    kube: Kube, running: OperatorProcess
) -> None:
    artifact = {"uri": "s3://models/sentiment.pt2", "credentials": {"secretName": "models-read"}}
    kube.apply(model(artifact=artifact))
    pod = eventually(lambda: kube.pods()[0])
    kube.bind(pod["metadata"]["name"])
    failed_mount(kube, pod)

    def named() -> bool:
        conditions = kube.must("ModelDeployment", "sentiment")["status"]["conditions"]
        return any(c["reason"] == "SecretNotFound" and "models-read" in c["message"] for c in conditions)

    eventually(named)


def test_a_pod_that_its_model_took_over_costs_few_writes_and_says_little(
    kube: Kube, running: OperatorProcess, node: PlayedNode
) -> None:
    kube.apply(model())
    eventually(lambda: node.pods and is_true(kube, "KnobsApplied"))
    running.wait_until_quiet()
    (pod,) = node.pods.values()
    pod.taken = True
    (obj,) = kube.pods()
    kube.patch_pod_status(pod.name, taken_over(pod.address))  # it was started anew, and is read again
    eventually(lambda: kube.must("ModelDeployment", "sentiment")["status"].get("lastFailure"))
    began, asked, writes = time.monotonic(), pod.asked, running.requests(*WRITES)
    time.sleep(3)
    eventually(lambda: pod.asked - asked >= 3)
    looks, written, seconds = pod.asked - asked, running.requests(*WRITES) - writes, time.monotonic() - began
    assert looks <= 5 * seconds
    assert written <= 10 * seconds  # a status and an event for each look
    status = kube.must("ModelDeployment", "sentiment")["status"]
    assert len(status["lastFailure"]["message"]) <= 2000
    assert status["lastFailure"]["message"].isprintable()
    assert len(kube.all("Deployment")) == 1
    assert kube.pods()[0]["metadata"]["uid"] == obj["metadata"]["uid"]


def taken_over(address: str) -> Object:
    """A pod whose serving process ended once, with words that only `prepare` may say, and runs again."""
    status = running_status(address)
    (serve,) = status["containerStatuses"]
    words = json.dumps({"reason": "DigestMismatch", "message": "so it says", "condition": "ArtifactVerified"})
    ended = {"exitCode": 1, "reason": "Error", "message": words, "finishedAt": serve["state"]["running"]["startedAt"]}
    serve |= {"ready": False, "restartCount": 1, "lastState": {"terminated": ended}}
    for condition in status["conditions"]:
        condition["status"] = "False" if condition["type"] in ("Ready", "ContainersReady") else "True"
    return status
