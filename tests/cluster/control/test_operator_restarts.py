"""The operator may die at any moment and come back as another release: nothing is lost, no pod is touched."""

from pathlib import Path

import pytest
from headway_api import names
from kubernetes import client, config

from tests.cluster.control.kube import Kube, Object, eventually
from tests.cluster.control.manifests import model
from tests.cluster.control.process import WRITES, OperatorProcess

MOST_WRITES = 60

_OF_THE_SERVER = ("uid", "resourceVersion", "creationTimestamp", "managedFields", "generation", "namespace")


def shape(obj: Object) -> Object:
    """An object without what is different each time it is made."""
    metadata = {key: value for key, value in obj["metadata"].items() if key not in _OF_THE_SERVER}
    owners = [{**owner, "uid": ""} for owner in metadata.pop("ownerReferences", [])]
    annotations = {
        k: v for k, v in metadata.pop("annotations", {}).items() if not k.startswith("deployment.kubernetes")
    }
    spec = {key: value for key, value in obj.get("spec", {}).items() if key not in ("clusterIP", "clusterIPs")}
    rest = {key: value for key, value in obj.items() if key not in ("metadata", "spec", "status")}
    return {**rest, "spec": spec, "metadata": {**metadata, "owners": owners, "annotations": annotations}}


def shapes(kube: Kube) -> dict[str, str]:
    """Every child, without what is different each time, and without the namespace's name."""
    return {name: repr(shape(obj)).replace(kube.namespace, "<namespace>") for name, obj in kube.children().items()}


def test_killed_after_every_single_write_it_arrives_at_the_same_objects(
    kube: Kube, operator: OperatorProcess, served: Path, tmp_path: Path
) -> None:
    kube.apply(model())
    crashes = 0
    operator.start(HEADWAY_CRASH_AFTER_WRITES="1")
    while operator.crashes():
        crashes += 1
        assert crashes < MOST_WRITES, "it never has nothing more to write"
        operator.start(HEADWAY_CRASH_AFTER_WRITES="1")
    operator.kill()
    assert crashes >= 10

    other = Kube(served, f"{kube.namespace}-b")
    with config.new_client_from_config(str(served)) as administrator:
        client.CoreV1Api(administrator).create_namespace({"metadata": {"name": other.namespace}})
    undisturbed = OperatorProcess(served, other.namespace, tmp_path / "undisturbed.log")
    try:
        undisturbed.start()
        other.apply(model())
        eventually(lambda: other.children() and other.condition("sentiment", "Accepted"))
        undisturbed.wait_until_quiet()
        assert shapes(kube) == shapes(other)
        after, before = (k.must("ModelDeployment", "sentiment")["status"]["conditions"] for k in (kube, other))
        assert [(c["type"], c["status"], c["reason"]) for c in after] == [
            (c["type"], c["status"], c["reason"]) for c in before
        ]
    finally:
        undisturbed.end()
        with config.new_client_from_config(str(served)) as administrator:
            client.CoreV1Api(administrator).delete_namespace(other.namespace)
        other.close()


# Another release: the pod template has one more variable, the record one more field.
CHANGED_RENDERER = """
from headway_operator.desired import build, record

pod_template, controller_revision = record.pod_template, build.controller_revision

def changed_template(*arguments, **named):
    template = pod_template(*arguments, **named)
    template["spec"]["containers"][0].setdefault("env", []).append({"name": "NEW", "value": "1"})
    return template

def changed_record(*arguments):
    changed = controller_revision(*arguments)
    return {**changed, "data": {**changed["data"], "new": 1}}

record.pod_template, build.controller_revision = changed_template, changed_record
"""


def test_an_operator_of_another_release_changes_no_pod_template(
    kube: Kube, running: OperatorProcess, tmp_path: Path
) -> None:
    kube.apply(model())
    eventually(lambda: kube.children() and kube.condition("sentiment", "Accepted"))
    running.wait_until_quiet()
    deployments = {obj["metadata"]["name"]: obj for obj in kube.all("Deployment")}
    records = {obj["metadata"]["name"]: obj for obj in kube.all("ControllerRevision")}
    running.terminate()
    (tmp_path / "sitecustomize.py").write_text(CHANGED_RENDERER)
    running.start(runtime_image="registry.test/runtime:2", PYTHONPATH=str(tmp_path))
    eventually(lambda: running.passes() > 0)
    running.wait_until_quiet()
    assert kube.condition("sentiment", "Accepted")["status"] != "False"
    for obj in kube.all("Deployment"):
        was = deployments[obj["metadata"]["name"]]
        assert obj["metadata"]["generation"] == was["metadata"]["generation"]
        assert obj["spec"] == was["spec"]
    assert {obj["metadata"]["name"]: obj["data"] for obj in kube.all("ControllerRevision")} == {
        name: obj["data"] for name, obj in records.items()
    }
    kube.apply(model("later"))  # what this release sees first is of this release
    (new,) = eventually(lambda: [obj for obj in kube.all("Deployment") if obj["metadata"]["name"].startswith("later")])
    container = new["spec"]["template"]["spec"]["containers"][0]
    assert container["image"] == "registry.test/runtime:2"
    assert {"name": "NEW", "value": "1"} in container["env"]


@pytest.mark.parametrize("label", [names.LABEL_MANAGED_BY, names.LABEL_MODEL])
def test_a_record_without_its_label_is_still_what_another_release_renders_from(
    kube: Kube, running: OperatorProcess, tmp_path: Path, label: str
) -> None:
    kube.apply(model())
    eventually(lambda: kube.children() and kube.condition("sentiment", "Accepted"))
    running.wait_until_quiet()
    (was,), (record,) = kube.all("Deployment"), kube.all("ControllerRevision")
    running.terminate()
    kube.patch("ControllerRevision", record["metadata"]["name"], {"metadata": {"labels": {label: None}}})
    (tmp_path / "sitecustomize.py").write_text(CHANGED_RENDERER)
    running.start(runtime_image="registry.test/runtime:2", PYTHONPATH=str(tmp_path))
    eventually(lambda: label in kube.must("ControllerRevision", record["metadata"]["name"])["metadata"]["labels"])
    running.wait_until_quiet()
    assert kube.condition("sentiment", "Accepted")["status"] != "False"
    assert [obj["spec"] for obj in kube.all("Deployment")] == [was["spec"]]


def test_a_restart_of_the_same_release_writes_nothing(kube: Kube, running: OperatorProcess) -> None:
    kube.apply(model(replicas=2, batching={"maxBatch": 8}))
    eventually(lambda: kube.children() and kube.condition("sentiment", "Accepted"))
    running.wait_until_quiet()
    running.terminate()
    running.start()
    eventually(lambda: running.passes() > 0)
    running.wait_until_quiet()
    assert running.requests(*WRITES) == 0


def test_changes_made_while_no_operator_ran_are_caught_up_with(kube: Kube, running: OperatorProcess) -> None:
    kube.apply(model())
    eventually(lambda: kube.children() and kube.condition("sentiment", "Accepted"))
    running.kill()
    kube.apply(model(batching={"maxWait": "9ms"}))
    kube.delete("ServiceAccount", "sentiment")
    kube.patch("ConfigMap", "sentiment-knobs", {"metadata": {"labels": {names.LABEL_MODEL: "nobody"}}})
    running.start()
    eventually(lambda: "9ms" in kube.must("ConfigMap", "sentiment-knobs")["data"][names.KNOBS_KEY])
    eventually(lambda: kube.get("ServiceAccount", "sentiment") is not None)


def test_sigterm_ends_it_cleanly(running: OperatorProcess) -> None:
    assert running.terminate() == 0
    assert '"stopped"' in running.log.read_text()
