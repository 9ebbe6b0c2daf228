"""Every hostile archive is refused by the rule it breaks, before torch sees a byte of it, and touches nothing."""

import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from headway_runtime.prepare import inspection
from headway_runtime.prepare.errors import Refusal

from tests.hostile import archives
from tests.hostile.samples import SAMPLES

Exported = Callable[[str], Path]


@pytest.mark.parametrize("name", sorted(SAMPLES))
def test_a_hostile_archive_is_refused_for_the_right_rule(name: str, honest: archives.Entries, tmp_path: Path) -> None:
    rule, build = SAMPLES[name]
    marker = tmp_path / "marker"
    path = build(tmp_path / "sample.pt2", dict(honest), marker)
    with pytest.raises(Refusal) as refused:
        inspection.inspect(str(path))
    assert refused.value.rule == rule, str(refused.value)
    assert len(str(refused.value)) < 2000
    assert not marker.exists()


def test_the_same_archive_unaltered_is_accepted(honest: archives.Entries, tmp_path: Path) -> None:
    found = inspection.inspect(str(archives.write(tmp_path / "same.pt2", honest)))
    assert [i["name"] for i in found.document["inputs"]] == ["x"]


@pytest.mark.parametrize("name", ["my model", "model-v1.2", "a+b (1), c", "modèle", "x" * 200])
def test_a_model_may_be_saved_under_any_plain_file_name(name: str, exported: Exported, tmp_path: Path) -> None:
    path = tmp_path / f"{name}.pt2"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.export.save(torch.export.load(exported("mlp")), path)
    assert [i["name"] for i in inspection.inspect(str(path)).document["inputs"]] == ["x"]


def test_a_refusal_names_the_record_and_the_json_path(honest: archives.Entries, tmp_path: Path) -> None:
    path = SAMPLES["an_operator_that_reads_a_file"][1](tmp_path / "sample.pt2", dict(honest), tmp_path / "marker")
    with pytest.raises(Refusal) as refused:
        inspection.inspect(str(path))
    assert refused.value.record == "models/model.json"
    assert refused.value.path == "$.graph_module.graph.nodes[1]"
    assert "aten.from_file.default" in str(refused.value)
