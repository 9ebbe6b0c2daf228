"""What follows from a ModelDeployment, and what happens to it when hands or others touch it."""

import pytest
from headway_api import names
from headway_operator.kinds import WATCHED

from tests.cluster.control.kube import Kube, Object, eventually
from tests.cluster.control.manifests import model, revision_of
from tests.cluster.control.process import WRITES, OperatorProcess

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
NEAR = {"key": "zone", "operator": "Near", "values": ["here"]}


def settled(kube: Kube, operator: OperatorProcess, **spec: object) -> str:
    """Apply a ModelDeployment and wait until the operator has nothing more to write; its revision."""
    kube.apply(model(**spec))
    eventually(lambda: kube.children() and kube.condition("sentiment", "Accepted"))
    operator.wait_until_quiet()
    return revision_of(kube.must("ModelDeployment", "sentiment"))


def resynced(operator: OperatorProcess) -> None:
    """Wait until the resync of the start, and the one after it, are over: from now on there are only the watches."""
    eventually(lambda: operator.requests("list") == 2 * len(WATCHED))


def test_its_objects_appear_with_its_labels_and_as_its_own(kube: Kube, running: OperatorProcess) -> None:
    revision = settled(kube, running)
    md = kube.must("ModelDeployment", "sentiment")
    of_revision, of_model = f"sentiment-{revision}", "sentiment"
    children = kube.children()
    assert set(children) == {
        f"ControllerRevision/{of_revision}",
        f"ConfigMap/{of_revision}",
        "ConfigMap/sentiment-knobs",
        f"ServiceAccount/{of_model}",
        f"NetworkPolicy/{of_model}",
        f"Service/{of_revision}",
        f"Service/{of_model}",
        f"PodDisruptionBudget/{of_revision}",
        f"Deployment/{of_revision}",
    }
    for obj in children.values():
        (owner,) = obj["metadata"]["ownerReferences"]
        assert (owner["uid"], owner["controller"]) == (md["metadata"]["uid"], True)
        labels = obj["metadata"]["labels"]
        assert (labels[names.LABEL_MANAGED_BY], labels[names.LABEL_MODEL]) == (names.MANAGED_BY, "sentiment")
    assert "finalizers" not in md["metadata"]
    assert "annotations" not in md["metadata"]


def test_a_settled_resource_costs_no_write_and_no_list(kube: Kube, running: OperatorProcess) -> None:
    settled(kube, running)
    resynced(running)
    before = running.requests(*WRITES), running.requests("list"), running.passes()
    kube.patch("ModelDeployment", "sentiment", {"metadata": {"annotations": {"example.com/wakes": "the pass"}}})
    eventually(lambda: running.passes() >= before[2] + 3)
    assert (running.requests(*WRITES), running.requests("list")) == before[:2]


def test_a_child_edited_by_hand_is_repaired(kube: Kube, running: OperatorProcess) -> None:
    revision = settled(kube, running)
    resynced(running)
    name = f"sentiment-{revision}"
    image = kube.must("Deployment", name)["spec"]["template"]["spec"]["containers"][0]["image"]
    containers = [{"name": names.SERVE_CONTAINER, "image": "registry.test/other:1"}]
    kube.apply(
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": name},
            "spec": {"replicas": 7, "template": {"spec": {"containers": containers}}},
        }
    )
    kube.patch("ConfigMap", "sentiment-knobs", {"data": {names.KNOBS_KEY: "{}"}})
    kube.patch("Service", "sentiment", {"spec": {"selector": {names.LABEL_COMPONENT: None, "app": "other"}}})
    kube.patch("Service", name, {"spec": {"selector": {"app": "other"}}})
    kube.patch("NetworkPolicy", "sentiment", {"metadata": {"labels": {names.LABEL_MANAGED_BY: None}}})
    for kind in ("Deployment", "ControllerRevision"):
        kube.patch(kind, name, {"metadata": {"labels": {names.LABEL_REVISION: None}}})

    def repaired() -> bool:
        deployment = kube.must("Deployment", name)["spec"]
        selector = kube.must("Service", "sentiment")["spec"]["selector"]
        return (
            deployment["replicas"] == 1
            and deployment["template"]["spec"]["containers"][0]["image"] == image
            and kube.must("ConfigMap", "sentiment-knobs")["data"][names.KNOBS_KEY] != "{}"
            and selector.get(names.LABEL_COMPONENT) == names.COMPONENT_ROUTER
            and "app" not in kube.must("Service", name)["spec"]["selector"]
            and kube.must("NetworkPolicy", "sentiment")["metadata"]["labels"].get(names.LABEL_MANAGED_BY) is not None
            and kube.must("Deployment", name)["metadata"]["labels"].get(names.LABEL_REVISION) == revision
            and kube.must("ControllerRevision", name)["metadata"]["labels"].get(names.LABEL_REVISION) == revision
        )

    eventually(repaired)


def test_a_child_deleted_by_hand_is_made_again(kube: Kube, running: OperatorProcess) -> None:
    settled(kube, running)
    resynced(running)
    before = kube.children()
    for obj in before.values():
        kube.delete(obj["kind"], obj["metadata"]["name"])

    def made_again() -> bool:
        after = kube.children()
        return set(after) == set(before) and all(
            after[reference]["metadata"]["uid"] != obj["metadata"]["uid"] for reference, obj in before.items()
        )

    eventually(made_again)
    revision = revision_of(kube.must("ModelDeployment", "sentiment"))
    assert f"Deployment/sentiment-{revision}" in before, "the record was lost and made again: it is the same revision"


def test_what_others_add_to_a_child_is_theirs(kube: Kube, running: OperatorProcess) -> None:
    pinned = {"uri": "s3://models/sentiment.pt2", "digest": f"sha256:{'0' * 64}"}  # so that all pods may start at once
    revision = settled(kube, running, artifact=pinned)
    name = f"sentiment-{revision}"
    note = {"metadata": {"annotations": {"example.com/note": "kept"}, "labels": {"team": "nlp"}}}
    kube.patch("Deployment", name, note)
    kube.patch("Deployment", name, {"spec": {"paused": True}})
    kube.apply(model(artifact=pinned, replicas=2))  # a change of our own beside it
    eventually(lambda: kube.must("Deployment", name)["spec"]["replicas"] == 2)
    running.wait_until_quiet()
    deployment = kube.must("Deployment", name)
    assert deployment["metadata"]["annotations"]["example.com/note"] == "kept"
    assert deployment["metadata"]["labels"]["team"] == "nlp"
    assert deployment["spec"]["paused"] is True


def test_a_value_that_the_server_spells_otherwise_is_not_applied_again_and_again(
    kube: Kube, running: OperatorProcess
) -> None:
    limits = {"cpu": "1000m", "memory": "1024Mi"}
    revision = settled(kube, running, template={"resources": {"limits": limits}})
    containers = kube.must("Deployment", f"sentiment-{revision}")["spec"]["template"]["spec"]["containers"]
    assert containers[0]["resources"]["limits"] == {"cpu": "1", "memory": "1Gi"}, "the premise of this test"
    before = running.requests(*WRITES), running.passes()
    kube.patch("ModelDeployment", "sentiment", {"metadata": {"annotations": {"example.com/wakes": "the pass"}}})
    eventually(lambda: running.passes() > before[1])
    assert running.requests(*WRITES) == before[0]


def test_a_user_s_object_of_the_same_name_is_left_alone_and_reported(kube: Kube, running: OperatorProcess) -> None:
    theirs = {"ports": [{"port": 1234}], "selector": {"app": "mine"}}
    kube.apply({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "sentiment"}, "spec": theirs})
    kube.apply(model())
    condition = eventually(lambda: (c := kube.condition("sentiment", "Accepted"))["status"] == "False" and c)
    assert condition["reason"] == "NameConflict"
    assert "Service/sentiment" in condition["message"]
    running.wait_until_quiet()
    service = kube.must("Service", "sentiment")
    assert "ownerReferences" not in service["metadata"]
    assert service["spec"]["selector"] == {"app": "mine"}
    kube.delete("ModelDeployment", "sentiment")
    eventually(lambda: kube.get("Deployment", "sentiment") is None and len(kube.all("Deployment")) == 0)
    assert kube.get("Service", "sentiment") is not None


def test_a_change_of_a_hot_field_changes_no_pod_template(kube: Kube, running: OperatorProcess) -> None:
    revision = settled(kube, running)
    before = kube.must("Deployment", f"sentiment-{revision}")
    kube.apply(model(batching={"maxBatch": 8, "maxWait": "7ms"}))
    eventually(lambda: "7ms" in kube.must("ConfigMap", "sentiment-knobs")["data"][names.KNOBS_KEY])
    running.wait_until_quiet()
    after = kube.must("Deployment", f"sentiment-{revision}")
    assert after["metadata"]["generation"] == before["metadata"]["generation"]
    assert len(kube.all("Deployment")) == len(kube.all("ControllerRevision"))


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ({"affinity": {"nodeAffinty": {}}}, "nodeAffinty"),
        ({"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [NEAR]}]}}}}, "Near"),
        ({"env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "spec.unknown"}}}]}, "spec.unknown"),
    ],
)
def test_a_template_that_the_server_refuses_is_named_and_what_serves_stays(
    kube: Kube, running: OperatorProcess, template: Object, words: str
) -> None:
    revision = settled(kube, running)
    before = kube.must("Deployment", f"sentiment-{revision}")
    kube.apply(model(template=template))
    condition = eventually(lambda: (c := kube.condition("sentiment", "Accepted"))["status"] == "False" and c)
    assert condition["reason"] == "InvalidSpec"
    assert words in condition["message"]
    running.wait_until_quiet()
    assert kube.must("Deployment", f"sentiment-{revision}")["metadata"]["uid"] == before["metadata"]["uid"]
    kube.apply(model(template={"podAnnotations": {"a-key": "x"}}))
    eventually(lambda: kube.condition("sentiment", "Accepted")["status"] != "False")
    eventually(lambda: len(kube.all("Deployment")) == 2)


def test_a_quota_that_is_used_up_is_told_and_waited_for(kube: Kube, running: OperatorProcess) -> None:
    quotas = f"/api/v1/namespaces/{kube.namespace}/resourcequotas"
    kube.create(quotas, {"metadata": {"name": "none"}, "spec": {"hard": {"count/deployments.apps": "0"}}})
    kube.apply(model())
    event = eventually(lambda: kube.events("Refused"))[0]
    assert "exceeded quota: none" in event["note"]
    condition = kube.condition("sentiment", "Accepted")
    assert (condition["status"], condition["reason"]) == ("False", "Refused")
    assert "exceeded quota: none" in condition["message"]
    assert kube.condition("sentiment", "Stalled")["status"] == "True"
    assert kube.all("Deployment") == []
    running.wait_until_quiet()
    kube.delete_path(f"{quotas}/none")
    eventually(lambda: kube.all("Deployment"))
    eventually(lambda: kube.condition("sentiment", "Accepted")["status"] != "False")
