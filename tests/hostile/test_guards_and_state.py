"""What export assumed of sizes is enforced, and what a program writes is forgotten: with the models that give wrong
answers without.
"""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from headway_runtime.prepare import inspection
from headway_runtime.prepare.errors import Refusal
from headway_runtime.program import Program
from torch import nn

from tests.hostile import archives, zoo
from tests.hostile.test_honest_zoo import oracle, prepared
from tests.hostile.zoo import basics
from tests.hostile.zoo.case import AUTO, ROWS, Case

Exported = Callable[[str], Path]


def made(module: nn.Module, *args: torch.Tensor, dynamic: Any = None, path: Path, **options: Any) -> Program:
    """A module as a program; its files go into a folder."""
    Case(lambda: module, args, dynamic=dynamic, **options).export(path / "m.pt2")
    return prepared(path / "m.pt2", path / "prepared")


class Coupled(nn.Module):
    """Batch and sequence are coupled: their product is cut into fours."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = x.reshape(-1, 4).sum(1)
        return found


class Padded(nn.Module):
    """The branch of an odd length was taken."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x[:, :-1] if x.shape[1] % 2 else x * 100


def test_a_branch_on_a_product_would_give_another_answer_without_its_guard(exported: Exported, tmp_path: Path) -> None:
    program = prepared(exported("branch"), tmp_path / "prepared")
    rows, columns = program.dimensions
    small = torch.ones(2, 3)
    assert not torch.equal(program.run([small])[0], basics.Branch()(small)), "20 where 100 is right"
    assert program.check({rows: 2, columns: 3}) is not None


def test_a_size_that_is_cut_in_eights_refuses_what_does_not_divide(exported: Exported, tmp_path: Path) -> None:
    program = prepared(exported("view8"), tmp_path / "prepared")
    rows, columns = program.dimensions
    admitted = {n for n in range(2, 64) if program.check({rows: 3, columns: n}) is None}
    assert admitted == {n for n in range(2, 64) if n % 8 == 0 and n > 8} | ({8} & admitted)


def test_batch_and_sequence_that_are_coupled_are_checked_together(tmp_path: Path) -> None:
    program = made(Coupled(), torch.ones(4, 6), dynamic=({0: AUTO, 1: AUTO},), path=tmp_path)
    rows, columns = program.dimensions
    for b in range(2, 9):
        for t in range(2, 9):
            if program.check({rows: b, columns: t}) is None:
                assert b * t % 4 == 0, "every admitted shape runs"
                assert torch.equal(program.run([torch.ones(b, t)])[0], torch.full((b * t // 4,), 4.0))
    assert program.check({rows: 4, columns: 6}) is None
    assert program.check({rows: 3, columns: 3}) is not None


def test_a_branch_on_the_parity_of_a_length_is_kept(tmp_path: Path) -> None:
    program = made(Padded(), torch.ones(4, 7), dynamic=({0: AUTO, 1: AUTO},), path=tmp_path)
    rows, columns = program.dimensions
    assert program.check({rows: 4, columns: 9}) is None
    assert program.check({rows: 4, columns: 8}) is not None


@pytest.mark.parametrize("name", ["named_tuple_in", "dataclass_in"])
def test_a_guard_that_names_a_field_is_enforced(name: str, exported: Exported, tmp_path: Path) -> None:
    program = prepared(exported(name), tmp_path / "prepared")
    assert program.check(program.bind([(4, 6), (4, 6)])) is None
    violated = program.check(program.bind([(2, 3), (2, 3)]))
    assert violated is not None
    assert "> 12" in violated


@pytest.mark.parametrize("name", ["counter", "counter_decomposed", "keeps_state", "keeps_state_decomposed"])
def test_every_run_starts_from_the_state_in_the_file(name: str, exported: Exported, tmp_path: Path) -> None:
    program = prepared(exported(name), tmp_path / "prepared")
    args = list(zoo.PROGRAMS[name].args)
    with torch.no_grad():
        first = oracle(exported(name))(*args)
    weights = (tmp_path / "prepared/weights.bin").read_bytes()
    others = [a * 7 if a.is_floating_point() else a for a in args]
    for _ in range(3):
        assert torch.equal(program.run(args)[0], first)
        assert not torch.equal(program.run(others)[0], first)
    assert program.batch is None, "two requests in one run would see one state"
    assert (tmp_path / "prepared/weights.bin").read_bytes() == weights


def test_runs_at_the_same_time_do_not_share_state(exported: Exported, tmp_path: Path) -> None:
    program = prepared(exported("counter"), tmp_path / "prepared")
    inputs = [torch.full((4, 6), float(n)) for n in range(4)]
    expected = [program.run([x])[0] for x in inputs]
    wrong: list[int] = []

    def work(number: int) -> None:
        answers = [program.run([inputs[number]])[0] for _ in range(50)]
        wrong.extend(number for answer in answers if not torch.equal(answer, expected[number]))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


class WritesThroughViews(nn.Module):
    """The buffer is written by way of a view of a view."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("table", torch.zeros(2, 6))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.table.view(-1)[3:9].view(2, 3).add_(x)
        found: torch.Tensor = self.table.sum(1) + x.sum()
        return found


def test_a_write_through_views_is_a_write(tmp_path: Path) -> None:
    program = made(WritesThroughViews(), torch.ones(2, 3), path=tmp_path)
    answers = [program.run([torch.ones(2, 3)])[0] for _ in range(2)]
    assert torch.equal(*answers)
    assert "table" in (program.not_batchable or "")


@pytest.mark.parametrize("name", ["writes_input", "in_place", "in_place_decomposed"])
def test_the_caller_s_tensors_are_not_written(name: str, exported: Exported, tmp_path: Path) -> None:
    program = prepared(exported(name), tmp_path / "prepared")
    inputs = [a.clone() for a in zoo.PROGRAMS[name].args]
    before = [a.clone() for a in inputs]
    answers = [program.run(inputs)[0] for _ in range(2)]
    assert torch.equal(*answers)
    assert all(torch.equal(a, b) for a, b in zip(inputs, before, strict=True))
    assert program.batch == "batch", "a written input is no state: rows still share runs"


class Tied(nn.Module):
    """Two names of one buffer; a write to one changes the other."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("one", torch.zeros(8))
        self.register_buffer("two", self.one[2:6])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.one.add_(1)
        return x + self.two


def test_a_write_to_storage_that_others_share_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Refusal) as refused:
        made(Tied(), torch.ones(4), path=tmp_path)
    assert refused.value.rule == "write.shared"


@pytest.mark.parametrize("name", ["scan", "map"])
def test_a_loop_that_writes_to_what_it_is_given_is_refused(name: str, exported: Exported, tmp_path: Path) -> None:
    """torch does not export one; a file may say so all the same."""
    entries = archives.read(exported(name))
    (where,) = (n for n in entries if n.startswith("models/"))

    def change(document: Any) -> None:
        nodes = document["graph_module"]["graph"]["nodes"]
        body = next(i["arg"]["as_graph"]["graph"] for n in nodes for i in n["inputs"] if "as_graph" in i["arg"])
        first = body["inputs"][0]["as_tensor"]["name"]
        node = next(n for n in body["nodes"] if n["target"].endswith(("tanh.default", "linear.default")))
        node["target"] = "torch.ops.aten.relu_.default"
        node["inputs"] = [{"name": "self", "arg": {"as_tensor": {"name": first}}, "kind": 1}]

    path = archives.write(tmp_path / "a.pt2", archives.altered(entries, change, where))
    with pytest.raises(Refusal) as refused:
        inspection.inspect(str(path))
    assert refused.value.rule == "write.branch"


class TrainedNorm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.norm(x)
        return found


@pytest.mark.parametrize("decompose", [False, True])
def test_a_batch_norm_in_training_mode_mixes_rows_and_is_refused(decompose: bool, tmp_path: Path) -> None:
    module = TrainedNorm().train()
    alone, together = module(torch.ones(2, 6))[:1], module(torch.randn(2, 6))[:1]
    assert not torch.equal(alone, together)
    with pytest.raises(Refusal, match=r"call \.eval\(\) before exporting") as refused:
        made(module, torch.randn(4, 6), dynamic=(ROWS,), path=tmp_path, decompose=decompose)
    assert refused.value.rule == "operator.training"
