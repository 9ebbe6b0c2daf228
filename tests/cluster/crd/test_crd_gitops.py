"""GitOps: a manifest that was synced shows no difference, whatever defaults and status were added to it."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from headway_api import crd

from tests.cluster.crd.access import Kubectl, Models, model

EXAMPLES = crd.ROOT / "examples"
EMPTY_BLOCKS = {"batching": {"queue": {}}, "limits": {}, "rollout": {}, "rollback": {}, "template": {}}

MANIFESTS = {
    "smallest": model(),
    "empty-blocks": model(**EMPTY_BLOCKS),
    **{
        f"{path.parent.name}-{path.stem}": yaml.safe_load(path.read_text()) for path in sorted(EXAMPLES.rglob("*.yaml"))
    },
}


def _sync(kubectl: Kubectl, manifest: dict[str, Any], *options: str) -> dict[str, Any]:
    """Server-side apply, as Argo CD and Flux do it."""
    stdin = json.dumps(manifest)
    arguments = ("apply", "--server-side", "--field-manager=gitops", "-o", "json", *options, "-f", "-")
    applied: dict[str, Any] = json.loads(kubectl(*arguments, stdin=stdin))
    return applied


@pytest.mark.parametrize("name", MANIFESTS)
def test_a_second_sync_and_a_dry_run_change_nothing(kubectl: Kubectl, name: str) -> None:
    manifest = MANIFESTS[name]
    first = _sync(kubectl, manifest)
    assert _sync(kubectl, manifest, "--dry-run=server") == first
    assert _sync(kubectl, manifest) == first
    difference = kubectl.run("diff", "--server-side", "--field-manager=gitops", "-f", "-", stdin=json.dumps(manifest))
    assert (difference.returncode, difference.stdout) == (0, "")


def test_what_the_operator_writes_is_no_difference_for_git(kubectl: Kubectl) -> None:
    manifest = model(**EMPTY_BLOCKS)
    synced = _sync(kubectl, manifest)
    status = {**{key: manifest[key] for key in ("apiVersion", "kind", "metadata")}, "status": {"url": "http://s"}}
    arguments = ("apply", "--server-side", "--subresource=status", "--field-manager=headway-operator", "-f", "-")
    kubectl(*arguments, stdin=json.dumps(status))
    again = _sync(kubectl, manifest, "--dry-run=server")
    assert again["status"] == {"url": "http://s"}
    assert again["spec"] == synced["spec"]
    assert again["metadata"]["generation"] == 1


def test_defaults_are_added_to_the_blocks_that_are_there_and_nowhere_else(models: Models) -> None:
    assert models.create(model("bare"))["spec"] == model()["spec"]
    assert models.create(model("blocks", **EMPTY_BLOCKS))["spec"] == {
        **model()["spec"],
        "batching": {
            "maxWait": "2ms",
            "nonFinite": "Allow",
            "queue": {"capacity": 512, "bytes": "256Mi", "timeout": "2s"},
        },
        "limits": {"requestBytes": "64Mi"},
        "rollout": {"progressDeadline": "15m"},
        "rollback": {"keep": "Warm", "warmReplicas": 1, "keepFor": "24h", "history": 5},
        "template": {},
    }


def test_a_field_that_git_no_longer_says_goes(kubectl: Kubectl) -> None:
    _sync(kubectl, model(replicas=3, batching={"maxBatch": 8, "shapeBuckets": {"batch": [1, 8], "sequence": [16]}}))
    after = _sync(kubectl, model(batching={"shapeBuckets": {"batch": [1, 8]}}))
    assert after["spec"] == {
        **model()["spec"],
        "batching": {"maxWait": "2ms", "nonFinite": "Allow", "shapeBuckets": {"batch": [1, 8]}},
    }


def test_the_examples_are_all_here() -> None:
    assert {path.relative_to(EXAMPLES) for path in EXAMPLES.rglob("*.yaml")} >= {
        Path("sentiment.yaml"),
        Path("minilm/modeldeployment.yaml"),
        Path("minilm/canary.yaml"),
    }
