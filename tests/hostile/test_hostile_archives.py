"""Every hostile archive is refused by the rule it breaks, before torch sees a byte of it, and touches nothing."""

import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from headway_runtime.prepare import inspection, rulesdoc
from headway_runtime.prepare.errors import Refusal
from headway_runtime.prepare.rules import RULES

from tests.hostile import archives, zoo
from tests.hostile.samples import SAMPLES

Exported = Callable[[str], Path]

NAMED = {"schema", "name", "expression", "guard", "tree", "tensor", "weight", "graph", "operator", "write"}
"""Subjects whose refusals have a record, and a place in its JSON."""
WHOLE = {"schema.torch", "schema.unknown", "schema.missing"}
"""Some of these speak of a document as a whole."""
SECONDS = 10.0
"""CPU time of inspecting one sample; the largest of them are at the limits."""
ELSEWHERE = {
    "inspector.limits": "a process that is ended from outside (tests/unit/test_isolate.py)",
    "inspector.malformed": "what no rule speaks of: a mutant that reaches it is a finding (test_archive_mutations)",
    "input.symbol": "a size that no input has (tests/unit/test_program_dimensions.py)",
    "write.branch": "needs a branch: below",
    "write.shared": "needs two buffers: below",
    **{f"native.{kind}": "compiled programs (tests/unit/test_native_*)" for kind in
       ("form", "processor", "torch", "unsigned")},
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(SAMPLES))
def test_a_hostile_archive_is_refused_for_the_right_rule(name: str, honest: archives.Entries, tmp_path: Path) -> None:
    rule, build = SAMPLES[name]
    marker = tmp_path / "marker"
    path = build(tmp_path / "sample.pt2", dict(honest), marker)
    started = time.process_time()
    with pytest.raises(Refusal) as refused:
        inspection.inspect(str(path))
    assert time.process_time() - started < SECONDS
    assert refused.value.rule == rule, str(refused.value)
    assert not marker.exists()
    message = str(refused.value)
    assert message.startswith(RULES[rule].sentence)
    assert rule in message
    assert len(message) < 2000
    if rule.partition(".")[0] in NAMED:
        assert refused.value.record
        assert refused.value.path.startswith("$.") or rule in WHOLE


def test_every_rule_has_a_sample() -> None:
    known = {rule for rule, _ in SAMPLES.values()} | {rule for _, rule in zoo.REFUSED.values()}
    assert sorted(RULES.keys() - known) == sorted(ELSEWHERE)


def rule_of(path: Path) -> str:
    with pytest.raises(Refusal) as refused:
        inspection.inspect(str(path))
    return refused.value.rule


def test_a_branch_that_writes_to_its_operand_is_refused(exported: Exported, tmp_path: Path) -> None:
    def write(document: Any) -> None:
        nodes = document["graph_module"]["graph"]["nodes"]
        branch = next(n for n in nodes if n["target"].endswith("cond"))["inputs"][1]["arg"]["as_graph"]["graph"]
        operand = branch["inputs"][0]["as_tensor"]
        zeroed = {"target": "torch.ops.aten.zero_.default", "inputs": [{"name": "self", "arg": {"as_tensor": operand}}]}
        branch["nodes"].insert(0, {**zeroed, "outputs": [{"as_tensor": {"name": "zeroed"}}], "metadata": {}})

    entries = archives.altered(archives.read(exported("cond")), write)
    assert rule_of(archives.write(tmp_path / "branch.pt2", entries)) == "write.branch"


class TwoBuffers(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("counted", torch.zeros(4))
        self.register_buffer("added", torch.ones(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.counted.add_(1)
        return x + self.added


def test_a_written_buffer_in_the_bytes_of_another_is_refused(tmp_path: Path) -> None:
    torch.export.save(torch.export.export(TwoBuffers(), (torch.ones(4),)), tmp_path / "two.pt2")
    entries = archives.read(tmp_path / "two.pt2")
    table = archives.document(entries, archives.WEIGHTS)["config"]
    inspection.inspect(str(tmp_path / "two.pt2"))

    def share(config: Any) -> None:
        config["config"]["added"]["path_name"] = table["counted"]["path_name"]

    del entries[f"data/weights/{table['added']['path_name']}"]
    assert (
        rule_of(archives.write(tmp_path / "one.pt2", archives.altered(entries, share, archives.WEIGHTS)))
        == "write.shared"
    )


def test_the_page_of_rules_is_up_to_date() -> None:
    assert (rulesdoc.ROOT / rulesdoc.PAGE).read_text(encoding="utf-8") == rulesdoc.render()


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
