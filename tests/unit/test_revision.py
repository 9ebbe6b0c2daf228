"""Which changes of a spec make a new revision, and which do not."""

import copy
from typing import Any

import pytest
from headway_api.revision import canary_cold_fields, cold_fields, revision_name
from headway_api.types import Spec

SPEC: dict[str, Any] = {
    "artifact": {"uri": "s3://models/a.pt2", "credentials": {"secretName": "keys"}},
    "device": {"kind": "cpu"},
    "batching": {"maxBatch": 8, "shapeBuckets": {"batch": [1, 8]}},
    "template": {"resources": {"limits": {"cpu": 1, "memory": "1Gi"}}, "env": [{"name": "A", "value": "1"}]},
}


def name(change: dict[str, Any], refresh: str | None = None) -> str:
    spec = copy.deepcopy(SPEC)
    for path, value in change.items():
        *parents, last = path.split(".")
        inner = spec
        for parent in parents:
            inner = inner.setdefault(parent, {})
        inner[last] = value
    return revision_name(cold_fields(Spec.model_validate(spec), refresh))


@pytest.mark.parametrize(
    "change",
    [
        {"replicas": 7},
        {"batching.maxBatch": 2},
        {"batching.maxWait": "9ms"},
        {"batching.queue": {"capacity": 3}},
        {"canary": {"artifact": {"uri": "s3://models/b.pt2"}, "weight": 5}},
        {"rollout.progressDeadline": "1m"},
        {"rollback.keep": "None"},
        {"artifact.digest": f"sha256:{'a' * 64}"},
        {"template.drainTimeout": "60s"},
        {"template.drainTimeout": "1m"},
        {"device.resourceName": "nvidia.com/gpu"},
        {"template.podLabels": {}},
        {"precision": "Exported"},
        {"template.resources.limits.cpu": "1"},
    ],
    ids=str,
)
def test_hot_fields_and_defaults_of_old_make_no_revision(change: dict[str, Any]) -> None:
    assert name(change) == name({})


@pytest.mark.parametrize(
    "change",
    [
        {"artifact.uri": "s3://models/b.pt2"},
        {"artifact.credentials": {"secretName": "others"}},
        {"device.kind": "gpu"},
        {"precision": "BFloat16"},
        {"batching.shapeBuckets": {"batch": [1, 4]}},
        {"batching.dimensions": {"sequence": "x.1"}},
        {"template.drainTimeout": "61s"},
        {"template.resources.limits.cpu": 2},
        {"template.env": [{"name": "A", "value": "2"}]},
        {"template.runtimeImage": "r:2"},
    ],
    ids=str,
)
def test_cold_fields_make_a_revision(change: dict[str, Any]) -> None:
    assert name(change) != name({})


def test_a_refresh_makes_a_revision_of_the_same_spec() -> None:
    assert len({name({}), name({}, "one"), name({}, "two")}) == 3


def test_a_digest_tells_two_contents_of_one_spec_apart() -> None:
    cold = cold_fields(Spec.model_validate(SPEC))
    assert len({revision_name(cold), revision_name(cold, "sha256:a"), revision_name(cold, "sha256:b")}) == 3


def test_a_promoted_canary_is_the_revision_it_was() -> None:
    both = Spec.model_validate({**SPEC, "canary": {"artifact": {"uri": "s3://models/b.pt2"}, "weight": 5}})
    canary = canary_cold_fields(both)
    assert canary is not None
    assert revision_name(canary) == name({"artifact.uri": "s3://models/b.pt2"})
    assert canary_cold_fields(Spec.model_validate(SPEC)) is None
