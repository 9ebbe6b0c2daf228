"""The chart on a real API server, by Helm: what it installs is accepted, what must outlive it does."""

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from headway_api import crd, names
from onenode import build

from tests.cluster.crd.access import Kubectl, RefusedError, model

CHART = crd.ROOT / "charts" / "headway"
(HELM,) = (tool for tool in build.TOOLS if tool.name == "helm")

Helm = Callable[..., str]


@pytest.fixture
def helm(installed_crd: Path, namespace: str) -> Helm:
    """Helm in the test's namespace; its standard output."""
    build.build((HELM,))

    def run(*arguments: str) -> str:
        command = [HELM.path(), f"--kubeconfig={installed_crd}", f"--namespace={namespace}", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


@pytest.fixture
def release(helm: Helm, kubectl: Kubectl) -> Iterator[str]:
    """An installed release, named after the namespace; the CRD that is there already becomes a part of it."""
    name = f"headway-{kubectl.namespace[-10:]}"
    helm("install", name, str(CHART), "--take-ownership")
    yield name
    helm("uninstall", name, "--ignore-not-found")
    for role in ("view", "edit"):  # kept on purpose, but not by a test
        kubectl("delete", "clusterrole", f"{name}-{role}", "--ignore-not-found")


def test_the_notes_name_commands_that_work(kubectl: Kubectl, helm: Helm, release: str) -> None:
    notes = helm("get", "notes", release)
    manifest = notes.partition("<<EOF\n")[2].partition("  EOF")[0].replace("\n  ", "\n").removeprefix("  ")
    assert "sentiment" in kubectl("apply", "--dry-run=server", "-f", "-", stdin=manifest)
    assert f"deployment/{release}-operator" in notes
    kubectl("get", f"deployment/{release}-operator")


def test_an_upgrade_with_the_same_values_changes_nothing(kubectl: Kubectl, helm: Helm, release: str) -> None:
    def generations() -> dict[str, int]:
        kinds = "deployment,service,serviceaccount,clusterrole,clusterrolebinding,crd"
        found = json.loads(kubectl("get", kinds, "-l", f"app.kubernetes.io/instance={release}", "-o", "json"))
        return {item["kind"]: item["metadata"].get("generation", 0) for item in found["items"]}

    before = generations()
    assert "Deployment" in before
    helm("upgrade", release, str(CHART))
    assert generations() == before


def test_the_operators_pod_is_admitted_where_pod_security_is_restricted(kubectl: Kubectl, release: str) -> None:
    kubectl("label", "namespace", kubectl.namespace, "pod-security.kubernetes.io/enforce=restricted")
    deployment = json.loads(kubectl("get", f"deployment/{release}-operator", "-o", "json"))
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": deployment["spec"]["template"]["spec"]}
    kubectl("create", "--dry-run=server", "-f", "-", stdin=json.dumps(pod))
    del pod["spec"]["containers"][0]["securityContext"]
    with pytest.raises(RefusedError, match="restricted"):
        kubectl("create", "--dry-run=server", "-f", "-", stdin=json.dumps(pod))


def test_models_outlive_the_release_and_can_still_be_deleted(kubectl: Kubectl, helm: Helm, release: str) -> None:
    md = json.loads(kubectl("create", "-o", "json", "-f", "-", stdin=json.dumps(model())))
    child = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": "sentiment-knobs",
            "ownerReferences": [
                {
                    "apiVersion": names.API_VERSION,
                    "kind": names.KIND,
                    "name": "sentiment",
                    "uid": md["metadata"]["uid"],
                    "controller": True,
                    "blockOwnerDeletion": False,
                }
            ],
        },
    }
    kubectl("create", "-f", "-", stdin=json.dumps(child))

    helm("uninstall", release, "--wait")

    assert kubectl("get", "deployment,rolebinding", "-o", "name") == ""
    kubectl("get", "md/sentiment", "configmap/sentiment-knobs", f"crd/{names.PLURAL}.{names.GROUP}")
    kubectl("get", f"clusterrole/{release}-view", f"clusterrole/{release}-edit")
    kubectl("delete", "md/sentiment", "--timeout=20s")
    deadline = time.monotonic() + 90  # the garbage collector looks for new kinds every 30 s
    while "configmap/sentiment-knobs" in kubectl("get", "configmap", "-o", "name"):
        assert time.monotonic() < deadline
        time.sleep(0.2)
