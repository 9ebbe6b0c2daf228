"""The CRD as people meet it through kubectl: refusals, columns, documentation, the status subresource."""

import json
from typing import Any

import pytest
from headway_api import crd

from tests.cluster.crd.access import Kubectl, Models, RefusedError, model

STATUS = {
    "observedGeneration": 1,
    "url": "http://sentiment.test.svc",
    "revisions": [
        {
            "name": "6f9c2a71",
            "role": "Stable",
            "weight": 90,
            "replicas": 3,
            "ready": 2,
            "artifactDigest": "sha256:" + "9" * 64,
        },
        {"name": "b04d77e0", "role": "Canary", "weight": 10, "replicas": 1, "ready": 1},
        {"name": "19aa03c4", "role": "Previous", "weight": 0, "replicas": 1, "ready": 1},
    ],
    "conditions": [
        {"type": "Ready", "status": "True", "reason": "Serving", "message": "answers"},
        {"type": "UpToDate", "status": "False", "reason": "RollingOut", "message": "waiting for 1 of 3 pods"},
    ],
}


def _apply(kubectl: Kubectl, md: dict[str, Any], *options: str) -> None:
    kubectl("apply", *options, "-f", "-", stdin=json.dumps(md))


def _set_status(kubectl: Kubectl, name: str, status: dict[str, Any]) -> None:
    patch = json.dumps({"status": status})
    kubectl("patch", "md", name, "--subresource=status", "--type=merge", "--patch", patch)


@pytest.mark.parametrize("options", [(), ("--server-side",)])
def test_an_unknown_field_is_refused_by_name(kubectl: Kubectl, options: tuple[str, ...]) -> None:
    md = model(batching={"maxBtach": 8})
    with pytest.raises(RefusedError, match=r"maxBtach"):
        _apply(kubectl, md, *options)
    md["spec"]["batching"] = {"maxBatch": 8}
    _apply(kubectl, md, *options)


def test_a_weight_of_101_is_refused_by_name(kubectl: Kubectl) -> None:
    with pytest.raises(RefusedError, match=r"spec\.canary\.weight.*101.*less than or equal to 100"):
        _apply(kubectl, model(canary={"artifact": {"uri": "s3://models/b.pt2"}, "weight": 101}))


def test_other_clients_lose_an_unknown_field_and_keep_the_rest(models: Models) -> None:
    stored = models.create(model(batching={"maxBatch": 8, "maxBtach": 8}))
    assert "maxBtach" not in stored["spec"]["batching"]
    assert stored["spec"]["batching"]["maxBatch"] == 8


def test_the_columns_show_what_serves(kubectl: Kubectl) -> None:
    _apply(kubectl, model())
    _set_status(kubectl, "sentiment", STATUS)
    header, row = kubectl("get", "md").splitlines()
    assert header.split() == ["NAME", "READY", "STABLE", "CANARY", "WEIGHT", "REPLICAS", "UPTODATE", "AGE"]
    assert row.split()[:-1] == ["sentiment", "True", "6f9c2a71", "b04d77e0", "10", "2", "False"]
    wide_header, wide_row = kubectl("get", "md", "-o", "wide").splitlines()
    assert wide_header.split()[-3:] == ["DIGEST", "URL", "MESSAGE"]
    assert wide_row.endswith("waiting for 1 of 3 pods")
    assert "http://sentiment.test.svc" in wide_row.split()
    assert "sha256:" + "9" * 64 in wide_row.split()


def test_a_model_without_status_has_empty_columns(kubectl: Kubectl) -> None:
    _apply(kubectl, model())
    _, row = kubectl("get", "md", "-o", "wide").splitlines()
    assert len(row.split()) == 2  # its name and its age


def test_a_model_is_among_all_that_runs(kubectl: Kubectl) -> None:
    _apply(kubectl, model())
    assert "modeldeployment.serving.headway.dev/sentiment" in kubectl("get", "all")


def test_explain_is_documentation(kubectl: Kubectl) -> None:
    text = " ".join(kubectl("explain", "md.spec.batching").split())
    for said in (
        "maxBatch <integer>",
        "Default: 2ms.",
        "shapeBuckets <map[string][]integer>",
        "at most 64",
        "Hot.",
        "Cold.",
    ):
        assert said in text
    for path in ("md", "md.spec", "md.spec.template.tolerations", "md.spec.canary.artifact", "md.status.revisions"):
        explained = kubectl("explain", path, "--recursive=false")
        assert "<no description>" not in explained
        assert "DESCRIPTION" in explained


def test_status_is_written_by_its_subresource_only(kubectl: Kubectl) -> None:
    _apply(kubectl, {**model(replicas=1), "status": {"url": "http://forged"}})
    _set_status(kubectl, "sentiment", STATUS)
    kubectl("patch", "md", "sentiment", "--type=merge", "--patch", '{"status": {"url": "http://forged"}}')
    kubectl("patch", "md", "sentiment", "--subresource=status", "--type=merge", "--patch", '{"spec": {"replicas": 9}}')
    stored = json.loads(kubectl("get", "md", "sentiment", "-o", "json"))
    assert stored["status"]["url"] == STATUS["url"]
    assert stored["spec"]["replicas"] == 1
    assert stored["metadata"]["generation"] == 1


def test_wait_follows_a_condition(kubectl: Kubectl) -> None:
    _apply(kubectl, model())
    _set_status(kubectl, "sentiment", STATUS)
    kubectl("wait", "md/sentiment", "--for=condition=Ready", "--timeout=10s")
    with pytest.raises(RefusedError, match="timed out"):
        kubectl("wait", "md/sentiment", "--for=condition=UpToDate", "--timeout=1s")


def test_the_crd_has_no_complaint_of_the_api_server(kubectl: Kubectl) -> None:
    name = crd.render()["metadata"]["name"]
    installed = json.loads(kubectl("get", "crd", name, "-o", "json"))
    conditions = {condition["type"]: condition["status"] for condition in installed["status"]["conditions"]}
    assert conditions["Established"] == conditions["NamesAccepted"] == "True"
    assert conditions.get("NonStructuralSchema", "False") == "False"
