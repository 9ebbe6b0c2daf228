"""A release with one more field must read every stored object as it was: no new value, no new revision."""

import copy
import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from headway_api import crd, names
from headway_api.revision import cold_fields, revision_name
from headway_api.types import Spec

from tests.cluster.crd.access import Kubectl, model

GROUP = "evolution.headway.dev"  # of its own: other tests of the session use the real one


def _crd() -> dict[str, Any]:
    definition = json.loads(json.dumps(crd.render()).replace(names.GROUP, GROUP))
    definition["spec"]["names"] |= {"shortNames": ["mdx"], "categories": []}
    assert isinstance(definition, dict)
    return definition


@pytest.fixture
def other_group(kubectl: Kubectl) -> Iterator[dict[str, Any]]:
    definition = _crd()
    _install(kubectl, definition)
    yield definition
    kubectl("delete", "crd", definition["metadata"]["name"], "--wait=false")


def _install(kubectl: Kubectl, definition: dict[str, Any]) -> None:
    kubectl("apply", "--server-side", "-f", "-", stdin=json.dumps(definition))
    kubectl("wait", "--for=condition=Established", f"crd/{definition['metadata']['name']}", "--timeout=30s")


def _read(kubectl: Kubectl, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(kubectl("get", "mdx", name, "-o", "json"))
    return found


def _wait_until_known(kubectl: Kubectl, md: dict[str, Any], field: str) -> None:
    """The API server serves a changed schema a moment after it was written."""
    probe = json.dumps({**md, "metadata": {"name": "probe"}, "spec": {**md["spec"], field: {}}})
    deadline = time.monotonic() + 20
    while kubectl.run("create", "--dry-run=server", "-f", "-", stdin=probe).returncode:
        assert time.monotonic() < deadline, f"spec.{field} is still unknown"
        time.sleep(0.1)


def test_an_object_stored_before_a_field_existed_reads_the_same_after(
    kubectl: Kubectl, other_group: dict[str, Any]
) -> None:
    md = {**model(batching={"shapeBuckets": {"batch": [1, 4]}}), "apiVersion": f"{GROUP}/{names.VERSION}"}
    kubectl("apply", "--server-side", "-f", "-", stdin=json.dumps(md))
    before = _read(kubectl, "sentiment")

    grown = copy.deepcopy(other_group)
    properties = grown["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    properties["novelty"] = {
        "type": "object",
        "description": "New.",
        "properties": {"bytes": {"type": "string", "maxLength": 24, "default": "64Mi", "description": "Hot."}},
    }
    properties["batching"]["properties"]["novelty"] = {"type": "string", "maxLength": 8, "description": "Cold."}
    _install(kubectl, grown)
    _wait_until_known(kubectl, md, "novelty")

    after = _read(kubectl, "sentiment")
    assert after["spec"] == before["spec"]
    assert after["metadata"]["generation"] == before["metadata"]["generation"]
    revisions = [revision_name(cold_fields(Spec.model_validate(obj["spec"]))) for obj in (before, after)]
    assert revisions[0] == revisions[1]
