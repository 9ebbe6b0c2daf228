"""Everything ends by itself, in whatever order it is deleted."""

from pathlib import Path

import pytest
from kubernetes import client, config

from tests.cluster.control.kube import Kube, eventually
from tests.cluster.control.manifests import model
from tests.cluster.control.process import OperatorProcess

COLLECTED = 60.0  # seconds: the garbage collector learns of a new kind only every 30 s


@pytest.mark.parametrize("propagation", ["Background", "Foreground"])
def test_a_deleted_model_takes_its_objects_with_it(kube: Kube, running: OperatorProcess, propagation: str) -> None:
    kube.apply(model())
    eventually(lambda: len(kube.children()) >= 9)
    kube.delete("ModelDeployment", "sentiment", propagation=propagation)
    eventually(lambda: kube.get("ModelDeployment", "sentiment") is None and kube.children() == {}, seconds=COLLECTED)
    running.wait_until_quiet()
    assert kube.children() == {}


def test_a_model_can_be_deleted_while_no_operator_runs(kube: Kube, running: OperatorProcess) -> None:
    kube.apply(model())
    eventually(lambda: len(kube.children()) >= 9)
    running.kill()
    kube.delete("ModelDeployment", "sentiment")
    eventually(lambda: kube.get("ModelDeployment", "sentiment") is None and kube.children() == {}, seconds=COLLECTED)


def test_a_model_that_is_deleted_and_made_again_at_once_gets_all_its_objects(
    kube: Kube, running: OperatorProcess
) -> None:
    kube.apply(model())
    eventually(lambda: len(kube.children()) >= 9)
    kube.delete("ModelDeployment", "sentiment")
    eventually(lambda: kube.get("ModelDeployment", "sentiment") is None)
    uid = kube.apply(model())["metadata"]["uid"]

    def all_of_the_new_one() -> bool:
        children = kube.children().values()
        owners = {obj["metadata"]["ownerReferences"][0]["uid"] for obj in children}
        return len(children) == 9 and owners == {uid}

    eventually(all_of_the_new_one, seconds=COLLECTED)
    running.wait_until_quiet()
    assert kube.condition("sentiment", "Accepted")["reason"] != "NameConflict"


def test_a_deleted_namespace_ends_and_the_operator_stays_calm(
    kube: Kube, running: OperatorProcess, served: Path, namespace: str
) -> None:
    for name in ("a", "b"):
        kube.apply(model(name))
    eventually(lambda: len(kube.children()) >= 18)
    with config.new_client_from_config(str(served)) as administrator:
        core = client.CoreV1Api(administrator)
        core.delete_namespace(namespace)
        eventually(lambda: namespace not in {item.metadata.name for item in core.list_namespace().items})
        core.create_namespace({"metadata": {"name": namespace}})  # the fixture deletes it once more
    running.wait_until_quiet()
    assert running.get("/healthz")[0] == 200
    assert '"level": "error"' not in running.log.read_text()
