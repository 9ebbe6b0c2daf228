"""The chart's rule about artifacts (ValidatingAdmissionPolicy), installed by Helm on a real API server.

It is for one namespace of this module alone: other tests share the API server. What it refuses says what to write; what
was there before it can still be labelled, deleted, and have its status written.
"""

import copy
import json
import subprocess
import time
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from headway_api import crd
from onenode import build

from tests.cluster.crd.access import KUBECTL, Kubectl, Models, Object, RefusedError, model

CHART = crd.ROOT / "charts" / "headway"
(HELM,) = (tool for tool in build.TOOLS if tool.name == "helm")

BEFORE = "made-before-the-rule"
TRUST = {"require": "Signature", "publicKeys": {"secretName": "signers"}}
GOOD: Object = {
    "artifact": {"uri": "s3://models/a.pt2", "trust": TRUST, "credentials": {"secretName": "models-read"}},
    "device": {"kind": "cpu"},
}
POLICY = {
    "enabled": True,
    "allowedUriPrefixes": ["s3://models/", "https://models.example.com/team/"],
    "credentialsSecrets": ["models-read"],
    "requireSignature": True,
    "publicKeysSecret": "signers",
    "builderKeysSecret": "builders",
    "runtimeImages": ["registry.example/headway-runtime:7"],
    "environment": ["OMP_NUM_THREADS"],
}


def helm(kubeconfig: Path, namespace: str, *arguments: str, values: Object | None = None) -> None:
    command = [HELM.path(), f"--kubeconfig={kubeconfig}", f"--namespace={namespace}", *arguments]
    given = ["--values", "-"] if values is not None else []
    done = subprocess.run(
        [*command, *given], input=json.dumps(values or {}), capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def ruled(installed_crd: Path) -> Iterator[Kubectl]:
    """A namespace in which the rule is in force, and an object from before it that breaks every part of it."""
    build.build((HELM,))
    name = f"test-{uuid.uuid4().hex[:10]}"
    kubectl = Kubectl(KUBECTL.path(), installed_crd, name)
    kubectl("create", "namespace", name)
    apply(kubectl, model(BEFORE, artifact={"uri": "s3://elsewhere/a.pt2"}))
    selector = {"matchLabels": {"kubernetes.io/metadata.name": name}}
    values = {"crds": {"install": False}, "policy": {**POLICY, "namespaceSelector": selector}}
    helm(installed_crd, name, "install", name, str(CHART), values=values)
    try:
        wait_until_in_force(kubectl)
        yield kubectl
    finally:
        helm(installed_crd, name, "uninstall", name)
        kubectl("delete", "namespace", name, "--wait=false")


def wait_until_in_force(kubectl: Kubectl) -> None:
    """The API server takes up a new policy after a moment."""
    end = time.monotonic() + 30
    while kubectl.run("create", "--dry-run=server", "-f", "-", stdin=json.dumps(model("x"))).returncode == 0:
        assert time.monotonic() < end, "the policy is not in force"
        time.sleep(0.1)


def apply(kubectl: Kubectl, md: Object, *options: str) -> Object:
    """Server-side apply."""
    arguments = ("apply", "--server-side", "--field-manager=git", "-o", "json", *options, "-f", "-")
    applied: Object = json.loads(kubectl(*arguments, stdin=json.dumps(md)))
    return applied


def changed(**paths: Any) -> Object:
    """The good spec with values at paths such as `artifact__uri`; None removes one."""
    spec = copy.deepcopy(GOOD)
    for path, value in paths.items():
        *above, last = path.split("__")
        place = spec
        for key in above:
            place = place.setdefault(key, {})
        if value is None:
            del place[last]
        else:
            place[last] = value
    return spec


def refused(kubectl: Kubectl, md: Object) -> str:
    """The words with which it is refused, the same for a creation and for a dry run of server-side apply."""
    words = set()
    for command in (("create",), ("apply", "--server-side", "--dry-run=server")):
        with pytest.raises(RefusedError) as caught:
            kubectl(*command, "-f", "-", stdin=json.dumps(md))
        words.add(str(caught.value).partition("denied request: ")[2])
    assert len(words) == 1, words
    return words.pop()


ALLOWED = {
    "first prefix": {},
    "second prefix": {"artifact__uri": "https://models.example.com/team/v1/a.pt2"},
    "deeper, with every plain character": {"artifact__uri": "s3://models/a/B_9/.v1.2/x~y+z=1,2@3:4-5.pt2"},
    "no credentials": {"artifact__credentials": None},
    "builder's keys": {"artifact__trust__builderKeys": {"secretName": "builders"}},
    "canary in place": {"canary": {"artifact": {"uri": "s3://models/b.pt2"}, "weight": 1}},
    "canary that only names a digest": {"canary": {"artifact": {"digest": f"sha256:{'0' * 64}"}, "weight": 1}},
    "listed variable": {"template": {"env": [{"name": "OMP_NUM_THREADS", "value": "2"}]}},
    "listed image": {"template": {"runtimeImage": "registry.example/headway-runtime:7"}},
}


@pytest.mark.parametrize("change", ALLOWED.values(), ids=ALLOWED)
def test_what_obeys_the_rule_passes(ruled: Kubectl, change: Object) -> None:
    apply(ruled, model("good", **changed(**change)), "--dry-run=server")


ELSEWHERE = (
    "s3://elsewhere/a.pt2",
    "s3://models-evil/a.pt2",
    "s3://models.evil/a.pt2",
    "s3://model/a.pt2",
    "s3://models",
    "s3://models/",
    "gs://models/a.pt2",
    "http://models.example.com/team/a.pt2",
    "https://models.example.com/a.pt2",
    "https://models.example.com/teams/a.pt2",
    "https://models.example.com@evil.example/team/a.pt2",
    "https://models.example.com.evil.example/team/a.pt2",
    "https://models.example.com:8443/team/a.pt2",
    "https://MODELS.example.com/team/a.pt2",
    "https://models.example.com/team/../other/a.pt2",
    "https://models.example.com/team/./a.pt2",
    "https://models.example.com/team/..",
    "https://models.example.com/team/.../a.pt2",
    "https://models.example.com/team/%2e%2e/other/a.pt2",
    "https://models.example.com/team/..%2fother/a.pt2",
    "https://models.example.com/team/a%00.pt2",
    "https://models.example.com/team//a.pt2",
    "https://models.example.com/team/a/",
    "https://models.example.com/team/a.pt2?versionId=1",
    "https://models.example.com/team/a.pt2#x",
    "https://models.example.com/team/..\\other\\a.pt2",
    "https://models.example.com/team/\u2025/a.pt2",
    "https://models.example.com/team/a\u200b.pt2",
)


@pytest.mark.parametrize("uri", ELSEWHERE)
def test_an_artifact_from_elsewhere_is_refused_stable_or_canary(ruled: Kubectl, models: Models, uri: str) -> None:
    there = replace(models, namespace=ruled.namespace)
    for change in ({"artifact__uri": uri}, {"canary": {"artifact": {"uri": uri}, "weight": 0}}):
        with pytest.raises(RefusedError) as caught:
            there.create(model("bad", **changed(**change)))
        words = str(caught.value)
        assert "spec.artifact.uri, spec.canary.artifact.uri: " in words
        assert "write one of s3://models/, https://models.example.com/team/ and after it a plain path" in words
        assert uri in words


WRONG = {
    "no trust": ({"artifact__trust": None}, "spec.artifact.trust.require: ", "publicKeys.secretName: signers"),
    "no signature": (
        {"artifact__trust": {"publicKeys": {"secretName": "signers"}}},
        "spec.artifact.trust.require: ",
        "write require: Signature",
    ),
    "signature not required": (
        {"artifact__trust": {"require": "None", "publicKeys": {"secretName": "signers"}}},
        "spec.artifact.trust.require: ",
        "write require: Signature",
    ),
    "keys of one's own": (
        {"artifact__trust__publicKeys": {"secretName": "mine"}},
        "spec.artifact.trust.publicKeys.secretName: ",
        "write signers",
    ),
    "builder's keys instead": (
        {"artifact__trust": {"require": "Signature", "builderKeys": {"secretName": "builders"}}},
        "spec.artifact.trust.publicKeys.secretName: ",
        "write signers",
    ),
    "builder's keys of one's own": (
        {"artifact__trust__builderKeys": {"secretName": "mine"}},
        "spec.artifact.trust.builderKeys.secretName: ",
        "write builders, or remove builderKeys",
    ),
    "another store by credentials": (
        {"artifact__credentials": {"secretName": "mine"}},
        "spec.artifact.credentials.secretName, spec.canary.artifact.credentials.secretName: ",
        "write one of models-read",
    ),
    "another store by the canary's credentials": (
        {"canary": {"artifact": {"credentials": {"secretName": "mine"}}, "weight": 0}},
        "spec.artifact.credentials.secretName, spec.canary.artifact.credentials.secretName: ",
        "write one of models-read",
    ),
    "a runtime of one's own": (
        {"template": {"runtimeImage": "registry.example/headway-runtime:7-mine"}},
        "spec.template.runtimeImage: ",
        "remove it, or write one of registry.example/headway-runtime:7",
    ),
    "a library of one's own": (
        {"template": {"env": [{"name": "OMP_NUM_THREADS", "value": "2"}, {"name": "LD_PRELOAD", "value": "/model/x"}]}},
        "spec.template.env: ",
        "remove it, or write only OMP_NUM_THREADS",
    ),
}


@pytest.mark.parametrize(("change", "place", "advice"), WRONG.values(), ids=WRONG)
def test_what_breaks_the_rule_is_refused_and_told_what_to_write(
    ruled: Kubectl, change: Object, place: str, advice: str
) -> None:
    words = refused(ruled, model("bad", **changed(**change)))
    assert words.startswith(place)
    assert advice in words


def test_a_good_one_cannot_become_a_bad_one(ruled: Kubectl) -> None:
    apply(ruled, model("turns", **GOOD))
    for patch in (
        {"spec": {"artifact": {"uri": "s3://elsewhere/a.pt2"}}},
        {"spec": {"artifact": {"trust": None}}},
        {"spec": {"canary": {"artifact": {"uri": "s3://elsewhere/b.pt2"}, "weight": 5}}},
    ):
        with pytest.raises(RefusedError, match="denied request"):
            ruled("patch", "md", "turns", "--type=merge", "-p", json.dumps(patch))
    ruled("patch", "md", "turns", "--type=merge", "-p", json.dumps({"spec": {"replicas": 3}}))
    ruled("delete", "md", "turns")


def test_one_from_before_keeps_working_and_only_what_asks_for_more_is_refused(ruled: Kubectl) -> None:
    ruled("label", "md", BEFORE, "team=search")
    status = {"status": {"url": "http://s"}}
    ruled("patch", "md", BEFORE, "--subresource=status", "--type=merge", "-p", json.dumps(status))
    assert json.loads(ruled("get", "md", BEFORE, "-o", "json"))["status"] == status["status"]
    for change in (
        ("patch", "md", BEFORE, "--type=merge", "-p", json.dumps({"spec": {"replicas": 2}})),
        ("annotate", "md", BEFORE, "headway.dev/refresh=2"),
    ):
        with pytest.raises(RefusedError, match="denied request"):
            ruled(*change)
    finalizers = {"metadata": {"finalizers": ["example.com/last-words"]}}
    ruled("patch", "md", BEFORE, "--type=merge", "-p", json.dumps(finalizers))
    ruled("delete", "md", BEFORE, "--cascade=foreground", "--wait=false")
    ruled("patch", "md", BEFORE, "--type=merge", "-p", json.dumps({"metadata": {"finalizers": None}}))
    ruled("wait", "--for=delete", f"md/{BEFORE}", "--timeout=60s")


def test_the_api_server_finds_no_fault_with_the_rule_itself(ruled: Kubectl) -> None:
    name = f"{ruled.namespace}-headway-artifacts"
    policy = json.loads(ruled("get", "validatingadmissionpolicy", name, "-o", "json"))
    assert policy["status"]["observedGeneration"] == policy["metadata"]["generation"]
    assert policy["status"].get("typeChecking", {}).get("expressionWarnings") is None
    assert policy["spec"]["failurePolicy"] == "Fail"


def test_other_namespaces_are_left_alone(ruled: Kubectl, kubectl: Kubectl) -> None:
    apply(kubectl, model("free", artifact={"uri": "s3://elsewhere/a.pt2"}), "--dry-run=server")
