"""Every rule of the CRD, on a real API server: what breaks it is refused with its message, what it asks for passes."""

from dataclasses import dataclass, field
from typing import Any

import pytest
from headway_api.rules import RULES, Rule

from tests.cluster.crd.access import Models, RefusedError, model

Spec = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """A spec that breaks one rule, the place that is named, and the same spec corrected."""

    broken: Spec
    place: str
    message: str
    corrected: tuple[Spec, ...]
    name: str = "sentiment"
    right_names: tuple[str, ...] = field(default=())


def _env(*entries: Spec) -> Spec:
    return {"template": {"env": list(entries)}}


def _batching(**fields: Any) -> Spec:
    return {"batching": fields}


def _template(**fields: Any) -> Spec:
    return {"template": fields}


def _canary(artifact: Spec) -> Spec:
    return {"canary": {"weight": 10, "artifact": artifact}}


def _trust(**fields: Any) -> Spec:
    return {"artifact": {"uri": "s3://models/a.pt2", "trust": fields}}


KEYS = {"secretName": "signers"}
LABEL_PREFIX = "keys that begin with headway.dev/"
QUALIFIED = "write keys such as team or example.com/team"
DIMENSION = "write dimension names of letters"
SECRET_KEY = {"secretKeyRef": {"name": "s", "key": "k"}}
EIGHT = [1, 2, 3, 4, 5, 6, 7, 8]

CASES = (
    Case({}, "metadata.name", "at most 48 characters", ({},), name="a" * 49, right_names=("a" * 48,)),
    Case({}, "metadata.name", "begins with a letter", ({},), name="9-lives", right_names=("nine-lives-9",)),
    Case({}, "metadata.name", "begins with a letter", ({},), name="v1.2", right_names=("v1-2", "v")),
    Case({}, "metadata.name", "the router's own Service", ({},), name="headway-router", right_names=("headway",)),
    Case(
        {"device": {"kind": "cpu", "resourceName": "nvidia.com/gpu"}},
        "spec.device.resourceName",
        "remove it, or write kind: gpu",
        ({"device": {"kind": "gpu", "resourceName": "nvidia.com/gpu"}}, {"device": {"kind": "gpu"}}),
    ),
    Case(
        _batching(maxBatch=9, shapeBuckets={"batch": [1, 8]}),
        "spec.batching.maxBatch",
        "write a smaller maxBatch, or add its size to shapeBuckets.batch",
        (
            _batching(maxBatch=8, shapeBuckets={"batch": [1, 8]}),
            _batching(maxBatch=9),
            _batching(maxBatch=9, shapeBuckets={"sequence": [1, 8]}),
            _batching(shapeBuckets={"batch": [1, 8]}),
        ),
    ),
    Case(
        _batching(maxWait="30001ms"),
        "spec.batching.maxWait",
        "write a duration of at most 30s",
        (_batching(maxWait="30s"), _batching(maxWait="0ms"), _batching(maxWait="1.5ms"), _batching(maxWait="9s500ms")),
    ),
    Case(
        _batching(maxWait="999999h999999h99999h"),
        "spec.batching.maxWait",
        "write a duration of at most 30s",
        (_batching(maxWait="999999us"),),
    ),
    Case(
        _batching(queue={"timeout": "31s"}),
        "spec.batching.queue.timeout",
        "write a duration of at least 1ms and at most 30s",
        (_batching(queue={"timeout": "30s"}), _batching(queue={"timeout": "1ms"}), _batching(queue={})),
    ),
    Case(
        _batching(queue={"timeout": "0s"}),
        "spec.batching.queue.timeout",
        "write a duration of at least 1ms and at most 30s",
        (_batching(queue={"capacity": 1}),),
    ),
    Case(
        _batching(latencyTarget="999us"),
        "spec.batching.latencyTarget",
        "write a duration of at least 1ms and at most 30s",
        (_batching(latencyTarget="1ms"), _batching(latencyTarget="30s")),
    ),
    Case(
        _batching(latencyTarget="31s"),
        "spec.batching.latencyTarget",
        "write a duration of at least 1ms and at most 30s",
        (_batching(latencyTarget="50ms"),),
    ),
    Case(
        {**_batching(policy="Dynamic"), "generation": {"maxLength": 100}},
        "spec.generation",
        "generation is for batching.policy Continuous: remove it, or write policy: Continuous",
        (
            {**_batching(policy="Continuous"), "generation": {"maxLength": 100}},
            {**_batching(maxBatch=4), "precision": "Int8", "generation": {"cacheBytes": "1Gi"}},
        ),
    ),
    *(
        Case(
            _batching(policy="Continuous", **other),
            "spec.batching.policy",
            "shapeBuckets, dimensions, padding, oversize and instances are for policy Dynamic",
            (_batching(policy="Dynamic", **other), _batching(policy="Continuous", maxBatch=8)),
        )
        for other in (
            {"shapeBuckets": {"batch": [1]}},
            {"dimensions": {"batch": "x.0"}},
            {"padding": "Auto"},
            {"oversize": "Reject"},
            {"instances": 1},
        )
    ),
    Case(
        {"generation": {"speculation": {"method": "PromptLookup", "program": "draft"}}},
        "spec.generation.speculation.program",
        "program names the draft: remove it, or write method: Draft",
        (
            {"generation": {"speculation": {"method": "Draft", "program": "small"}}},
            {"generation": {"speculation": {"method": "PromptLookup", "tokens": 8}}},
        ),
    ),
    Case(
        _batching(shapeBuckets={"2nd": [1]}),
        "spec.batching.shapeBuckets",
        DIMENSION,
        (_batching(shapeBuckets={"second_2.x": [1]}), _batching(shapeBuckets={"d" * 64: [1]})),
    ),
    Case(
        _batching(shapeBuckets={"d" * 65: [1]}),
        "spec.batching.shapeBuckets",
        DIMENSION,
        (_batching(shapeBuckets={}),),
    ),
    Case(
        _batching(shapeBuckets={"a": EIGHT, "b": EIGHT, "c": [1, 2]}),
        "spec.batching.shapeBuckets",
        "more than 64 buckets",
        (
            _batching(shapeBuckets={"a": EIGHT, "b": EIGHT, "c": [1]}),
            _batching(shapeBuckets={name: [1, 2] for name in "abcdef"}),
            _batching(shapeBuckets={name: [1] for name in "abcdefgh"}),
        ),
    ),
    Case(
        _batching(shapeBuckets={name: [1, 2] for name in "abcdefg"}),
        "spec.batching.shapeBuckets",
        "more than 64 buckets",
        (_batching(shapeBuckets={"a": list(range(1, 17)), "b": [1, 2, 3, 4]}),),
    ),
    Case(
        _batching(shapeBuckets={"batch": [1, 8, 4]}),
        "spec.batching.shapeBuckets[batch]",
        "ascending order",
        (_batching(shapeBuckets={"batch": [1, 4, 8]}), _batching(shapeBuckets={"batch": [4]})),
    ),
    Case(
        _batching(shapeBuckets={"batch": [1, 4, 4]}),
        "spec.batching.shapeBuckets[batch]",
        "each one once",
        (_batching(shapeBuckets={"batch": [1, 4]}),),
    ),
    Case(
        _batching(dimensions={"a-b": "ids.1"}),
        "spec.batching.dimensions",
        DIMENSION,
        (_batching(dimensions={"a_b": "ids.1"}),),
    ),
    Case(
        _canary({}),
        "spec.canary.artifact",
        "write its uri, or remove canary",
        (
            _canary({"uri": "s3://models/b.pt2"}),
            _canary({"digest": "sha256:" + "0" * 64}),
            _canary({"credentials": {"secretName": "s"}}),
            _canary({"program": "decoder"}),
        ),
    ),
    Case(
        _trust(require="Signature"),
        "spec.artifact.trust.require",
        "write publicKeys.secretName",
        (
            _trust(require="Signature", publicKeys=KEYS),
            _trust(require="Signature", builderKeys=KEYS),
            _trust(require="None"),
            _trust(publicKeys=KEYS),
        ),
    ),
    Case(
        {"rollout": {"progressDeadline": "0s"}},
        "spec.rollout.progressDeadline",
        "write a duration of at least 1s",
        ({"rollout": {"progressDeadline": "1s"}}, {"rollout": {}}),
    ),
    Case(
        _template(resources={"requests": {"-cpu": 1}}),
        "spec.template.resources.requests",
        QUALIFIED,
        (_template(resources={"requests": {"cpu": 1, "memory": "1.5Gi", "example.com/fast": "2"}}),),
    ),
    Case(
        _template(resources={"limits": {"example.com/": 1}}),
        "spec.template.resources.limits",
        QUALIFIED,
        (_template(resources={"limits": {"memory": "1Gi"}}), _template(resources={})),
    ),
    Case(
        _env({"name": "A", "value": "1", "valueFrom": SECRET_KEY}),
        "spec.template.env[0]",
        "value and valueFrom exclude each other",
        (_env({"name": "A", "value": "1"}), _env({"name": "A", "valueFrom": SECRET_KEY}), _env({"name": "A"})),
    ),
    Case(
        _env({"name": "A", "valueFrom": {**SECRET_KEY, "fieldRef": {"fieldPath": "metadata.name"}}}),
        "spec.template.env[0].valueFrom",
        "write exactly one of secretKeyRef, configMapKeyRef and fieldRef",
        (_env({"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}),),
    ),
    Case(
        _template(tolerations=[{"key": "k", "operator": "Exists", "value": "v"}]),
        "spec.template.tolerations[0].value",
        "remove value, or write operator: Equal",
        (
            _template(tolerations=[{"key": "k", "operator": "Exists"}]),
            _template(tolerations=[{"key": "k", "operator": "Equal", "value": "v"}]),
            _template(tolerations=[{"key": "k", "value": "v"}]),
        ),
    ),
    Case(
        _template(tolerations=[{"value": "v"}]),
        "spec.template.tolerations[0]",
        "write the key of the taint",
        (_template(tolerations=[{"operator": "Exists"}]), _template(tolerations=[{"key": "k"}])),
    ),
    Case(
        _template(nodeSelector={"a b": "c"}),
        "spec.template.nodeSelector",
        QUALIFIED,
        (_template(nodeSelector={"kubernetes.io/arch": "amd64"}),),
    ),
    Case(
        _template(podLabels={"Example.com/team": "ml"}),
        "spec.template.podLabels",
        QUALIFIED,
        (_template(podLabels={"example.com/team": "ml", "tier": ""}),),
    ),
    Case(
        _template(podLabels={"headway.dev/model": "other"}),
        "spec.template.podLabels",
        LABEL_PREFIX,
        (_template(podLabels={"model": "other"}),),
    ),
    Case(
        _template(podAnnotations={"/x": ""}),
        "spec.template.podAnnotations",
        QUALIFIED,
        (_template(podAnnotations={"example.com/x": "anything at all: {}"}),),
    ),
    Case(
        _template(podAnnotations={"headway.dev/sync": "x"}),
        "spec.template.podAnnotations",
        LABEL_PREFIX,
        (_template(podAnnotations={"sync": "x"}),),
    ),
    Case(
        _template(drainTimeout="61m"),
        "spec.template.drainTimeout",
        "write a duration of at least 1s and at most 1h",
        (_template(drainTimeout="1h"), _template(drainTimeout="1s"), _template()),
    ),
)


def _breaks(case: Case, rule: Rule) -> bool:
    if not rule.path:
        return case.place == "metadata.name" and case.message in rule.message
    place = ".".join(rule.path).replace(".*", "[]") + (rule.blames or "")
    return place == case.place.replace("[0]", "[]").replace("[batch]", "[]") and case.message in rule.message


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.place}: {case.message[:30]}")
def test_what_breaks_a_rule_is_refused_with_its_message_and_the_correction_passes(models: Models, case: Case) -> None:
    with pytest.raises(RefusedError) as refused:
        models.create(model(case.name, **case.broken), dry_run=True)
    assert case.place in str(refused.value)
    assert case.message in str(refused.value)
    for corrected in case.corrected:
        for name in case.right_names or ("sentiment",):
            models.create(model(name, **corrected), dry_run=True)


def test_every_rule_has_a_case() -> None:
    assert not [rule for rule in RULES if not any(_breaks(case, rule) for case in CASES)]


@pytest.mark.parametrize("absent", [{}, {"batching": {}, "rollout": {}, "rollback": {}, "template": {}}])
def test_the_smallest_manifest_breaks_no_rule(models: Models, absent: Spec) -> None:
    models.create(model(**absent), dry_run=True)


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        (
            {"canary": {"weight": 101, "artifact": {"uri": "s3://m/b"}}},
            "weight in body should be less than or equal to 100",
        ),
        (
            {"canary": {"weight": -1, "artifact": {"uri": "s3://m/b"}}},
            "weight in body should be greater than or equal to 0",
        ),
        ({"canary": {"weight": 5}}, "spec.canary.artifact: Required value"),
        ({"device": {"kind": "tpu"}}, 'supported values: "cpu", "gpu"'),
        ({"device": {}}, "spec.device.kind: Required value"),
        ({"artifact": {"uri": "models/a.pt2"}}, "spec.artifact.uri in body should match"),
        ({"artifact": {"uri": "s3://m/a", "digest": "9f2c"}}, "spec.artifact.digest in body should match"),
        ({"replicas": 0}, "spec.replicas in body should be greater than or equal to 1"),
        ({"batching": {"maxWait": "2"}}, "spec.batching.maxWait in body should match"),
        (
            {"batching": {"shapeBuckets": {"batch": []}}},
            "shapeBuckets.batch in body should have at least 1",
        ),
        (_batching(padding="Always"), 'supported values: "Auto", "Never", "Trusted"'),
        (_batching(oversize="Split"), 'supported values: "Reject", "RunUnpadded"'),
        (_batching(nonFinite="Warn"), 'supported values: "Allow", "Reject"'),
        (_batching(instances=0), "spec.batching.instances in body should be greater than or equal to 1"),
        (_batching(policy="Static"), 'supported values: "Dynamic", "Continuous"'),
        ({"precision": "Int4"}, 'supported values: "Exported", "BFloat16", "Int8"'),
        ({"generation": {"cacheType": "Int8"}}, 'supported values: "Float32", "BFloat16"'),
        ({"generation": {"maxLength": 1}}, "spec.generation.maxLength in body should be greater than or equal to 2"),
        ({"generation": {"speculation": {}}}, "spec.generation.speculation.method: Required value"),
        (_batching(cache={}), "spec.batching.cache.bytes: Required value"),
        ({"limits": {"requestBytes": "much"}}, "spec.limits.requestBytes in body should match"),
        ({"verification": {"onMismatch": "Ignore"}}, 'supported values: "Block", "Warn"'),
        ({"verification": {"rtol": -1}}, "spec.verification.rtol in body should be greater than or equal to 0"),
        (_template(sandbox="Off"), 'supported values: "Require", "BestEffort"'),
        (_trust(require="Maybe"), 'supported values: "None", "Signature"'),
        ({"artifact": {"uri": "s3://m/a", "program": "../x"}}, "spec.artifact.program in body should match"),
        ({"rollback": {"keep": "Cached"}}, 'supported values: "Warm", "None"'),
        (_env({"name": "A", "value": "1"}, {"name": "A", "value": "2"}), "Duplicate value"),
    ],
)
def test_what_a_type_forbids_is_refused_by_the_fields_path(models: Models, spec: Spec, said: str) -> None:
    with pytest.raises(RefusedError, match="spec") as refused:
        models.create(model(**spec), dry_run=True)
    assert said in str(refused.value)
