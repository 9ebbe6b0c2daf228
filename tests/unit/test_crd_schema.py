"""The structural schema: everything is described and bounded, and only hot scalars have defaults."""

from collections.abc import Iterator
from typing import Annotated, Any

import pytest
import yaml
from headway_api import crd, names
from headway_api.fields import ApiModel
from headway_api.revision import cold_fields
from headway_api.rules import Rule
from headway_api.schema import structural
from headway_api.types import Spec
from pydantic import Field

Schema = dict[str, Any]

DEFAULTS = {
    "spec.batching.maxWait": "2ms",
    "spec.batching.queue.capacity": 512,
    "spec.batching.queue.bytes": "256Mi",
    "spec.batching.queue.timeout": "2s",
    "spec.batching.nonFinite": "Allow",
    "spec.generation.stepTokens": 256,
    "spec.generation.prefixCache": True,
    "spec.limits.requestBytes": "64Mi",
    "spec.rollout.progressDeadline": "15m",
    "spec.rollback.keep": "Warm",
    "spec.rollback.warmReplicas": 1,
    "spec.rollback.keepFor": "24h",
    "spec.rollback.history": 5,
}


def _walk(node: Schema, path: str) -> Iterator[tuple[str, Schema]]:
    yield path, node
    for name, field in node.get("properties", {}).items():
        yield from _walk(field, f"{path}.{name}")
    for key in ("items", "additionalProperties"):
        if isinstance(node.get(key), dict):
            yield from _walk(node[key], f"{path}[]")


@pytest.fixture(scope="module")
def root() -> Schema:
    return crd.schema()


def test_every_field_is_described_at_every_depth(root: Schema) -> None:
    fields = [entry for part in ("spec", "status") for entry in _walk(root["properties"][part], part)]
    assert len(fields) > 100
    assert not [path for path, node in fields if not path.endswith("]") and not node.get("description")]


def test_every_string_list_and_map_of_spec_has_an_upper_bound(root: Schema) -> None:
    for path, node in _walk(root["properties"]["spec"], "spec"):
        if node.get("x-kubernetes-int-or-string") or (node.get("type") == "string" and "enum" not in node):
            assert "maxLength" in node, path
        if node.get("type") == "array":
            assert "maxItems" in node, path
        if "additionalProperties" in node:
            assert "maxProperties" in node, path
        if node.get("type") == "integer" and not path.endswith("tolerationSeconds"):
            assert {"minimum", "maximum"} <= node.keys(), path


def test_defaults_are_where_they_are_promised_and_nowhere_else(root: Schema) -> None:
    found = {path: node["default"] for path, node in _walk(root, "") if "default" in node}
    assert {path.removeprefix("."): value for path, value in found.items()} == DEFAULTS


def test_no_default_is_a_part_of_a_revision() -> None:
    """A default of a cold field would make a new revision of every stored object."""
    bare = {"artifact": {"uri": "s3://m/a.pt2"}, "device": {"kind": "cpu"}}
    full = {**bare, "batching": {"queue": {}}, "generation": {}, "limits": {}, "rollout": {}, "rollback": {}}
    for path, value in DEFAULTS.items():
        *parents, last = path.split(".")[1:]
        node = full
        for parent in parents:
            node = node[parent]
        node[last] = value
    assert cold_fields(Spec.model_validate(full)) == cold_fields(Spec.model_validate(bare))


def test_the_crd_is_small_and_without_what_structural_schemas_cannot_say(root: Schema) -> None:
    text = crd.files()[crd.CRD_FILE]
    assert len(text) < 100_000
    assert yaml.safe_load(text) == crd.render()
    for path, node in _walk(root, ""):
        assert not {"$ref", "anyOf", "oneOf", "title", "patternProperties", "propertyNames"} & node.keys(), path
        assert not ({"properties", "additionalProperties"} <= node.keys()), path


def test_rendering_is_deterministic_and_shares_nothing() -> None:
    assert crd.files() == crd.files()
    first = crd.render()
    first["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"].clear()
    assert crd.render() != first


def test_a_field_without_a_description_is_an_error_that_names_it() -> None:
    class Inner(ApiModel):
        bare: int

    class Outer(ApiModel):
        inner: Inner = Field(description="Something.")

    with pytest.raises(ValueError, match=r"Outer\.inner\.bare: has no description"):
        structural(Outer)


def test_a_type_that_a_structural_schema_cannot_say_is_an_error_that_names_it() -> None:
    class Undecided(ApiModel):
        value: int | list[Annotated[str, Field(max_length=4)]] = Field(description="Something.")

    with pytest.raises(ValueError, match=r"Undecided\.value: a structural schema cannot say"):
        structural(Undecided)


def test_a_rule_for_a_field_that_is_not_there_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crd, "RULES", (Rule(("spec", "batchin"), "true", "never"),))
    with pytest.raises(ValueError, match=r"spec\.batchin: there is no batchin"):
        crd.schema()


def test_check_names_the_stale_file(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(crd, "ROOT", tmp_path)
    assert crd.main([]) == 0
    assert crd.main(["--check"]) == 0
    (tmp_path / crd.CRD_FILE).write_text("stale")
    capsys.readouterr()
    assert crd.main(["--check"]) == 1
    assert f"crds/{names.GROUP}_{names.PLURAL}.yaml" in capsys.readouterr().err
