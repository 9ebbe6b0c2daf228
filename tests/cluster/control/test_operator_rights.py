"""The operator works with the rights that the chart gives it, and uses them.

It runs as the chart's ServiceAccount, with the Role that the chart renders for one namespace: what it may not do shows
as 403. `HEADWAY_RBAC_LOG` says what it asked for in a life that meets every kind of object: made, edited and deleted by
hand, and pods that hang or talk.
"""

import http.server
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from headway_api import names
from headway_api.podconfig import BucketReport, KnobsReport, Phase, Report
from headway_operator.kinds import CHILDREN
from kubernetes import client, config
from onenode import build

from tests.charts.chart import of_kind, only, render
from tests.charts.rbac import Right, asked, granted
from tests.cluster.control.kube import Kube, eventually
from tests.cluster.control.manifests import model
from tests.cluster.control.process import OperatorProcess

(HELM,) = (tool for tool in build.TOOLS if tool.name == "helm")
POD_IP = "127.83.12.9"  # the machine itself; of this test only, so that the port of every pod is free

# Granted, but not asked for in this life: the objects of a revision are deleted once every router has let go of it, and
# no router runs on a control plane alone; those of a router, minutes after the last ModelDeployment of its namespace.
UNSEEN = {Right(kind.group, kind.plural, "delete") for kind in CHILDREN}


@pytest.fixture
def rights(served: Path, namespace: str, tmp_path: Path) -> tuple[frozenset[Right], Path]:
    """The chart's Role in the namespace: what it grants, and the kubeconfig of an account that has it and no more."""
    build.build((HELM,))
    objects = render(HELM.path(), {"watchNamespaces": [namespace], "crds": {"install": False}})
    role, account = only(objects, "Role"), only(objects, "ServiceAccount")["metadata"]["name"]
    with config.new_client_from_config(str(served)) as administrator:
        core, rbac = client.CoreV1Api(administrator), client.RbacAuthorizationV1Api(administrator)
        core.create_namespaced_service_account(namespace, {"metadata": {"name": account}})
        rbac.create_namespaced_role(namespace, role)
        for binding in of_kind(objects, "RoleBinding"):
            subjects = [{**subject, "namespace": namespace} for subject in binding["subjects"]]
            rbac.create_namespaced_role_binding(namespace, {**binding, "subjects": subjects})
        token = core.create_namespaced_service_account_token(account, namespace, {"spec": {}}).status.token
    signed_in = yaml.safe_load(served.read_text())
    signed_in["users"] = [{"name": account, "user": {"token": token}}]
    for context in signed_in["contexts"]:
        context["context"]["user"] = account
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(yaml.safe_dump(signed_in))
    return frozenset(granted(role)), kubeconfig


@contextmanager
def _pod_that_says(report: Report) -> Iterator[None]:
    """The admin port of a pod at POD_IP."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(report.to_json().encode())

        def log_message(self, *_: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer((POD_IP, names.ADMIN_PORT), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join()


def _runs(pod: dict[str, Any]) -> dict[str, Any]:
    """The status of a pod that runs and is ready."""
    running = {"name": names.SERVE_CONTAINER, "ready": True, "restartCount": 0, "image": "i", "imageID": "i"}
    return {
        "phase": "Running",
        "podIP": POD_IP,
        "podIPs": [{"ip": POD_IP}],
        "conditions": [{"type": kind, "status": "True"} for kind in ("PodScheduled", "Ready", "ContainersReady")],
        "containerStatuses": [{**running, "state": {"running": {"startedAt": pod["metadata"]["creationTimestamp"]}}}],
    }


def test_the_charts_rights_are_enough_and_used(
    kube: Kube, rights: tuple[frozenset[Right], Path], tmp_path: Path, namespace: str
) -> None:
    granted_rights, kubeconfig = rights
    log = tmp_path / "rbac.log"
    log.touch()
    operator = OperatorProcess(kubeconfig, namespace, tmp_path / "operator.log")
    operator.start(HEADWAY_RBAC_LOG=str(log))
    try:
        operator.wait_until_healthy()
        _live(kube, operator, log)
    except AssertionError as error:
        error.add_note(f"{operator.tail()}\n{yaml.safe_dump(kube.pods())}")
        raise
    finally:
        operator.end()
    assert "forbidden" not in operator.log.read_text().lower()
    used = asked(log.read_text())
    assert used <= granted_rights
    assert granted_rights - used == UNSEEN


def _made(kube: Kube) -> set[str]:
    """What the operator made for the model."""
    labelled = (names.LABEL_MANAGED_BY, names.MANAGED_BY)
    return {name for name, obj in kube.children().items() if labelled in obj["metadata"].get("labels", {}).items()}


def _live(kube: Kube, operator: OperatorProcess, log: Path) -> None:
    kube.apply(model())
    eventually(lambda: len(_made(kube)) >= 9)
    operator.wait_until_quiet()
    children = _made(kube)
    pod = eventually(lambda: next(p for p in kube.pods() if p["metadata"]["labels"].get(names.LABEL_REVISION)))
    name, revision = pod["metadata"]["name"], pod["metadata"]["labels"][names.LABEL_REVISION]

    kube.bind(name)
    eventually(lambda: Right("", "events", "list") in asked(log.read_text()), seconds=40)

    buckets = BucketReport(total=1, warm=1)
    report = Report(
        model="sentiment", revision=revision, phase=Phase.READY, buckets=buckets, knobs=KnobsReport(hash="old")
    )
    with _pod_that_says(report):
        kube.patch_pod_status(name, _runs(pod))
        eventually(lambda: Right("", "pods", "patch") in asked(log.read_text()), seconds=40)

    for reference in sorted(children):
        kind, _, called = reference.partition("/")
        kube.patch(kind, called, {"metadata": {"labels": {names.LABEL_MANAGED_BY: None}}})
        operator.wait_until_quiet(1.0)
        kube.delete(kind, called)
    eventually(lambda: _made(kube) >= children, seconds=60)
    operator.wait_until_quiet()
