"""Golden files of all releases: hashes never change, and what was recorded is rendered as it was recorded."""

import json
from pathlib import Path
from typing import Any

import pytest
from headway_operator.desired import controller_revision, desired_objects, record_of
from headway_operator.observed import Object, Plan, Role, Step, Target

from tests.unit import golden_revisions as golden

CASES = [
    pytest.param(case, id=f"{path.stem}-{name}")
    for path in sorted(Path(golden.FOLDER).glob("revisions_*.json"))
    for name, case in json.loads(path.read_text()).items()
]


@pytest.mark.parametrize("case", CASES)
def test_the_revisions_of_a_release_keep_their_names(case: dict[str, Any]) -> None:
    now = golden.entry(case["spec"], case["refresh"])
    assert {key: now[key] for key in ("stable", "salted", "canary")} == {
        key: case[key] for key in ("stable", "salted", "canary")
    }


@pytest.mark.parametrize("case", CASES)
def test_a_recorded_revision_is_rendered_as_it_was_recorded(case: dict[str, Any]) -> None:
    record = record_of(case["record"])
    seen = golden.observed(case["spec"])
    observed = type(seen)(seen.resource, {record.name: record}, {}, (), seen.route)
    objects = desired_objects(observed, Plan(Step("", "", ""), (Target(record.name, Role.STABLE, 2, 100),)))
    by_kind: dict[str, Object] = {obj["kind"]: obj for obj in reversed(objects)}
    assert by_kind["Deployment"]["spec"]["template"] == case["record"]["data"]["podTemplate"]
    assert by_kind["ConfigMap"]["data"]["config.json"] == case["record"]["data"]["config"]
    assert by_kind["ControllerRevision"] == case["record"]


@pytest.mark.parametrize("case", CASES)
def test_a_record_survives_the_way_to_the_api_server_and_back(case: dict[str, Any]) -> None:
    resource = golden.observed(case["spec"]).resource
    assert controller_revision(resource, record_of(case["record"]), None) == case["record"]


def test_the_file_of_the_present_version_is_what_the_present_code_renders() -> None:
    kept = json.loads((golden.FOLDER / f"revisions_{golden.VERSION}.json").read_text())
    assert kept == golden.entries(), (
        "run `python -m tests.unit.golden_revisions`; new revisions are rendered differently"
    )
