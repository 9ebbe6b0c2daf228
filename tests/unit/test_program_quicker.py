"""A program that answers at once multiplies by packed weights where they are large, and answers what it answered."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from headway_runtime.program import Program, load, load_program, quicker
from headway_runtime.program.weights import Weights
from torch.export import Dim

from tests.unit.small_models import prepare

WIDE, NARROW = 320, 16


class Layers(torch.nn.Module):
    """x [batch, tokens, 320] -> y [batch, tokens, 16]: one large weight used twice, one that is also looked up, and one
    too narrow to be packed.
    """

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.first = torch.nn.Linear(WIDE, WIDE)
        self.tied = torch.nn.Embedding(WIDE, WIDE)
        self.last = torch.nn.Linear(WIDE, NARROW)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(torch.tanh(self.first(x)))
        x = torch.nn.functional.linear(x, self.tied.weight) + self.tied(torch.zeros(1, dtype=torch.int64))
        y: torch.Tensor = self.last(torch.tanh(x))
        return y


class Counting(torch.nn.Module):
    """x [batch, 320] -> y [batch, 320]: its weight is written to, so it is not what the file has."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("weight", torch.eye(WIDE))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weight = self.weight
        assert isinstance(weight, torch.Tensor)
        weight.add_(1.0)
        return torch.nn.functional.linear(x, weight)


def prepared(module: torch.nn.Module, example: torch.Tensor, folder: Path) -> Path:
    shapes = ({axis: Dim(f"d{axis}", min=1, max=64) for axis in range(example.dim() - 1)},)
    with torch.no_grad():
        exported = torch.export.export(module.eval(), (example,), dynamic_shapes=shapes)
    torch.export.save(exported, folder / "m.pt2")
    return prepare(folder / "m.pt2", folder / "prepared")


@pytest.fixture(scope="module")
def layers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepared(Layers(), torch.zeros(2, 3, WIDE), tmp_path_factory.mktemp("layers"))


@pytest.fixture(autouse=True)
def worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a trial on this busy machine would say."""
    monkeypatch.setattr(quicker, "quicker", lambda: True)


def opened(folder: Path, **options: Any) -> Program:
    return load_program(folder, dimension_names={}, **options)


def test_large_weights_are_packed_once_and_the_answers_stay(layers: Path) -> None:
    packed, mapped = opened(layers), opened(layers, pack=False)
    assert mapped.packed == 0
    assert 2 * WIDE * WIDE * 4 <= packed.packed < 2.2 * WIDE * WIDE * 4, "two weights, one of them for two layers"
    x = torch.randn(7, 5, WIDE)
    torch.testing.assert_close(packed.run([x])[0], mapped.run([x])[0], rtol=1e-5, atol=1e-5)


def test_a_row_has_the_same_bits_whatever_runs_beside_it(tmp_path: Path) -> None:
    wide = [torch.nn.Linear(WIDE, WIDE) for _ in range(2)]
    packed = opened(prepared(torch.nn.Sequential(wide[0], torch.nn.ReLU(), wide[1]), torch.zeros(2, WIDE), tmp_path))
    x = torch.randn(40, WIDE)
    together = packed.run([x])[0]
    assert all(torch.equal(packed.run([x[row : row + 1]])[0][0], together[row]) for row in range(0, 40, 7))


def test_what_else_reads_a_weight_still_has_it(layers: Path) -> None:
    document = load.read_document(layers)[1]
    weights = Weights(layers / "weights.bin", document["weights"], torch.device("cpu"))
    found = quicker.pack_where_quicker(document, weights)
    assert found is not None
    names = {row["value"]: row["name"] for row in document["weights"]}
    left = {names[value] for value in weights.tensors}
    assert left == {"first.bias", "tied.weight", "last.weight", "last.bias"}


def test_a_weight_that_is_written_to_is_read_where_it_is_written(tmp_path: Path) -> None:
    folder = prepared(Counting(), torch.zeros(2, WIDE), tmp_path)
    rows = json.loads(json.dumps(load.read_document(folder)[1]["weights"]))
    assert [row["written"] for row in rows] == [True]
    found = opened(folder)
    assert found.packed == 0
    x = torch.randn(3, WIDE)
    torch.testing.assert_close(found.run([x])[0], x @ (torch.eye(WIDE) + 1).T, rtol=1e-4, atol=1e-3)


def test_nothing_is_packed_where_that_is_not_quicker(layers: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quicker, "quicker", lambda: False)
    assert opened(layers).packed == 0


def test_no_native_code_is_no_quicker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(quicker.library, "native", lambda: None)
    quicker.quicker.cache_clear()
    try:
        assert not quicker.quicker()
    finally:
        quicker.quicker.cache_clear()
