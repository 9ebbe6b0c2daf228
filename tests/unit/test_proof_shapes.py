"""Padding beyond plain texts: several dimensions, lengths, other masks, coarse numbers, and what a run does with it."""

import random
from pathlib import Path
from typing import Any

import pytest
import torch
from headway_api.podconfig import Verdict
from headway_runtime.export import Size, export_model
from headway_runtime.proof import padding
from headway_runtime.proof.bounds import id_bounds
from headway_runtime.proof.samples import realistic
from torch import nn
from torch.export import Dim

from tests.unit.engine_desk import Desk
from tests.unit.proof_models import BATCH, BUCKETS, SEQUENCE, WORDS, export, ids, mask, opened

NAMES = {"sequence": "ids.1"}
FEATURES = torch.randn(4, 9, 3, generator=torch.Generator().manual_seed(2))
TIME = {0: BATCH, 1: SEQUENCE}


class Both(nn.Module):
    """Each of two texts may be filled up with zeros, and not both: the zeros are multiplied."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.words = nn.Embedding(WORDS, 8)

    def forward(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        zeros = (left == 0).sum(1) * (right == 0).sum(1)
        return self.words(left[:, 0]) + self.words(right[:, 0]) + zeros[:, None]


def test_dimensions_that_pass_one_by_one_are_tried_together(tmp_path: Path) -> None:
    shapes = {name: {0: Size("batch", 1, 16), 1: Size(name, 1, 32)} for name in ("left", "right")}
    inputs = {"left": ids(), "right": ids(4, 7)}
    export_model(Both().eval(), inputs, path=tmp_path / "m.pt2", dynamic_shapes=shapes, padding={"left": 0, "right": 0})
    made = opened(tmp_path / "m.pt2", buckets={"batch": [1, 4], "left": [8, 32], "right": [8, 32]})
    layout, (left, right) = made.padding()
    assert (left.verdict, right.verdict) == (Verdict.PROVEN, Verdict.FAILED), right.message
    assert "right 1 is filled up to 32" in right.message
    assert "left 1 is filled up to 32" in right.message
    assert (layout.padded, layout.fills) == (("left",), (0, None))


class ByLength(nn.Module):
    """The mean of as many frames as there are, by a length; and how long it is of the longest."""

    def __init__(self, of_longest: bool = False) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.layer, self.of_longest = nn.Linear(3, 8), of_longest

    def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        shown = (torch.arange(x.shape[1]) < lengths[:, None]).unsqueeze(-1)
        total = self.layer(x).masked_fill(~shown, 0.0).sum(1)
        return total / (lengths.max() if self.of_longest else lengths[:, None])


@pytest.mark.parametrize("examples", [True, False])
def test_lengths_are_as_good_as_a_mask(examples: bool, tmp_path: Path) -> None:
    inputs = {"x": FEATURES, "lengths": torch.tensor([9, 5, 7, 1])}
    file = export(ByLength(), inputs, tmp_path / "m.pt2", shapes={"x": TIME, "lengths": {0: BATCH}}, examples=examples)
    layout, (report,) = opened(file, buckets=BUCKETS, dimensions={"sequence": "x.1"}).padding()
    assert report.verdict is Verdict.PROVEN, report.message
    assert layout.fills == (0.0, None)


class ByLongest(nn.Module):
    """Every row is divided by the length of the longest: the same among rows of one length."""

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return (x * mask.unsqueeze(-1)).sum(1) / mask.sum(1).max()


def test_a_row_that_depends_on_how_long_its_companions_are_is_found(tmp_path: Path) -> None:
    file = export(ByLongest(), {"x": FEATURES, "mask": mask().float()}, tmp_path / "m.pt2", examples=False)
    _, (report,) = opened(file, buckets=BUCKETS, dimensions={"sequence": "x.1"}).padding()
    assert report.verdict is Verdict.FAILED, report.message


class Leaking(nn.Module):
    """A row that was filled up takes nothing of all the others, nought times: which is NaN where one of them is."""

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        found, short = (x * mask.unsqueeze(-1)).sum(1), mask.amin(1, keepdim=True) == 0
        return torch.where(short, found + 0 * x.sum(), found)


def test_what_only_strange_companions_show_is_found(tmp_path: Path) -> None:
    file = export(Leaking(), {"x": FEATURES, "mask": mask().float()}, tmp_path / "m.pt2", examples=False)
    _, (report,) = opened(file, buckets=BUCKETS, dimensions={"sequence": "x.1"}).padding()
    assert report.verdict is Verdict.FAILED, report.message
    assert "output output_0 differs without bound when" in report.message
    assert "beside NaN or very large numbers" in report.message


class NotEight(nn.Module):
    """Right for three rows or more, but not for 8, which is what the trials would take."""

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        found = (x * mask.unsqueeze(-1)).sum(1) / mask.sum(1, keepdim=True)
        return found if x.shape[0] > 2 and x.shape[0] != 8 else found * 2


def test_trials_keep_to_the_guards(tmp_path: Path) -> None:
    axes = {0: Dim.AUTO, 1: SEQUENCE}
    inputs = {"x": FEATURES, "mask": mask().float()}
    file = export(NotEight(), inputs, tmp_path / "m.pt2", shapes={"x": axes, "mask": axes}, examples=False)
    made = opened(file, buckets={"batch": [3, 16], "sequence": [16, 128]}, dimensions={"sequence": "x.1"})
    assert made.program.check({"batch": 8, "sequence": 16}) is not None
    assert made.layout.fewest == 3
    _, (report,) = made.padding()
    assert report.verdict is Verdict.PROVEN, report.message


class Hidden(nn.Module):
    """Torch's own convention: True in ``padding_mask`` hides."""

    def forward(self, x: torch.Tensor, padding_mask: torch.Tensor) -> torch.Tensor:
        return x.masked_fill(padding_mask.unsqueeze(-1), -1e4).amax(1)


@pytest.mark.parametrize("examples", [True, False])
def test_a_padding_mask_is_filled_up_with_true(examples: bool, tmp_path: Path) -> None:
    inputs = {"x": FEATURES, "padding_mask": mask() == 0}
    file = export(Hidden(), inputs, tmp_path / "m.pt2", examples=examples)
    layout, (report,) = opened(file, buckets=BUCKETS, dimensions={"sequence": "x.1"}).padding()
    assert report.verdict is Verdict.PROVEN, report.message
    assert layout.fills == (0.0, True)


class Mean(nn.Module):
    def __init__(self, masked: bool, dtype: torch.dtype) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.net = nn.Sequential(nn.Embedding(WORDS, 16), nn.Linear(16, 16), nn.Tanh()).to(dtype)
        self.masked = masked

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        x = self.net(ids)
        weight = mask.unsqueeze(-1).to(x.dtype)
        weight = weight if self.masked else torch.ones_like(weight)
        found: torch.Tensor = (x * weight).sum(1) / weight.sum(1)
        return found


@pytest.mark.parametrize(("masked", "verdict"), [(True, Verdict.PROVEN), (False, Verdict.FAILED)])
def test_numbers_of_few_digits_are_held_to_what_they_can(masked: bool, verdict: Verdict, tmp_path: Path) -> None:
    file = export(Mean(masked, torch.bfloat16), {"ids": ids(), "mask": mask()}, tmp_path / "m.pt2")
    _, (report,) = opened(file, buckets=BUCKETS, dimensions=NAMES).padding()
    assert report.verdict is verdict, report.message


class Bias(nn.Module):
    """A table for all pairs of words that all rows share."""

    def forward(self, x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return bias @ x


def test_an_input_that_all_rows_share_cannot_be_filled_up_for_one(tmp_path: Path) -> None:
    shapes = {"x": TIME, "bias": {1: SEQUENCE, 2: SEQUENCE}}
    file = export(Bias(), {"x": FEATURES, "bias": torch.rand(1, 9, 9)}, tmp_path / "m.pt2", shapes=shapes)
    layout, (report,) = opened(file, dimensions={"sequence": "x.1"}).padding()
    assert (report.verdict, layout.padded) == (Verdict.UNPROVEN, ())
    assert "input bias has no axis of rows" in report.message


def test_trials_end_when_their_time_is_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(padding, "LONGEST", 0.0)
    file = export(Mean(True, torch.bfloat16), {"ids": ids(), "mask": mask()}, tmp_path / "m.pt2")
    layout, (report,) = opened(file, buckets=BUCKETS, dimensions=NAMES).padding(seconds=0)
    assert (report.verdict, layout.padded) == (Verdict.UNPROVEN, ())
    assert "Trusted" in report.message


def test_a_program_that_is_not_batched_has_nothing_to_pad_and_says_why(tmp_path: Path) -> None:
    file = export(Mean(True, torch.bfloat16), {"ids": ids(), "mask": mask()}, tmp_path / "m.pt2")
    made = opened(file, buckets={"batch": [1], "sequence": [16]}, dimensions=NAMES)
    _, (report,) = made.padding()
    assert report.verdict is Verdict.UNPROVEN
    assert "the largest batch is 1" in report.message


def test_an_empty_request_is_no_shorter_one(tmp_path: Path) -> None:
    file = export(Mean(True, torch.float32), {"ids": ids(), "mask": mask()}, tmp_path / "m.pt2")
    layout, _ = opened(file, buckets=BUCKETS, dimensions=NAMES).padding()
    assert layout.padded == ("sequence",)
    none, five, nine = (layout.group_key({"batch": 1, "sequence": n}, (ids(1, n), ids(1, n))) for n in (0, 5, 9))
    assert five == nine != none


class Shifted(nn.Module):
    """Ids, places that start at 2 (RoBERTa's), and a number that is no index of anything."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, 8), nn.Embedding(20, 8)

    def forward(self, ids: torch.Tensor, places: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        return self.words(ids.unsqueeze(1).squeeze(1)) + self.places(places + 2) * other.unsqueeze(-1)


def test_made_up_numbers_stay_below_the_table_that_they_index(tmp_path: Path) -> None:
    inputs = {"ids": ids(), "places": ids() % 18, "other": ids()}
    made = opened(export(Shifted(), inputs, tmp_path / "m.pt2", examples=False))
    assert id_bounds(made.document) == {"ids": WORDS, "places": 18}
    found = realistic(made.material, {"batch": 9, "ids.1": 50})
    assert [int(t.max()) for t in found] == [WORDS - 1, 17, 1]
    assert len({tuple(row) for row in found[0].tolist()}) == 9
    made.program.run(found)


def test_samples_of_any_size_are_cut_and_repeated_into_rows_that_show_something(tmp_path: Path) -> None:
    file = export(Mean(True, torch.bfloat16), {"ids": ids(), "mask": mask()}, tmp_path / "m.pt2")
    made = opened(file, dimensions=NAMES)
    assert made.material.origin == "the example inputs"
    for size in (1, 4, 40):
        words, shown = realistic(made.material, {"batch": 6, "sequence": size})
        assert words.shape == shown.shape == (6, size)
        assert bool(shown.all()), "padding of the sample is left out"
        assert set(words.flatten().tolist()) <= set(ids().flatten().tolist())


def test_requests_of_mixed_lengths_share_runs_and_are_answered_as_alone(tmp_path: Path) -> None:
    module = Mean(True, torch.float32)
    shapes = {"ids": {0: BATCH, 1: Dim("words", min=1, max=32)}, "mask": {0: BATCH, 1: Dim("words", min=1, max=32)}}
    file = export(module, {"ids": ids(), "mask": mask()}, tmp_path / "m.pt2", shapes=shapes)
    made = opened(file)
    rng = random.Random(4)
    requests: list[dict[str, Any]] = []
    for _ in range(16):
        rows, length = rng.randint(1, 3), rng.randint(1, 32)
        words = torch.randint(0, WORDS, (rows, length))
        requests.append({"ids": words, "mask": (torch.arange(length) < rng.randint(1, length)).long().expand(rows, -1)})
    with Desk.of(made.directory, dimensions={"words": "ids.1"}, shapeBuckets={"batch": [1, 8], "words": [32]}) as desk:
        (report,) = desk.model.padding
        assert report.verdict is Verdict.PROVEN, report.message
        answers = desk.ask(*requests)
        assert len(desk.runs) < len(requests)
    for request, (answer,) in zip(requests, answers, strict=True):
        with torch.no_grad():
            torch.testing.assert_close(answer, module(**request), rtol=1e-4, atol=1e-6)
