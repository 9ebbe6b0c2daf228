"""Whole numbers that come of a decision: what moves the scores behind them is found, and a tie is no difference."""

from pathlib import Path

import pytest
import torch
from headway_api.podconfig import Verdict
from headway_runtime.program.load import read_document
from headway_runtime.proof.compare import compare, exceeds
from headway_runtime.proof.deciders import deciders
from headway_runtime.proof.noise import Noise
from headway_runtime.proof.runs import Runs
from torch import nn

from tests.unit.proof_models import BUCKETS, WORDS, export, ids, mask, opened

TEXT = {"ids": ids(), "mask": mask()}
NAMES = {"sequence": "ids.1"}


class Labels(nn.Module):
    """Only the number of the best class: for most rows it stays the same whatever the pooling does."""

    def __init__(self, masked: bool = True, answer: str = "argmax") -> None:
        super().__init__()
        torch.manual_seed(5)
        self.words, self.score = nn.Embedding(WORDS, 8), nn.Linear(8, 3)
        self.masked, self.answer = masked, answer
        with torch.no_grad():
            self.score.bias += torch.tensor([9.0, 0.0, 3.0])

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        x, weight = torch.tanh(self.words(ids)), mask.unsqueeze(-1).float()
        if not self.masked:
            weight = torch.ones_like(weight)
        scores = self.score((x * weight).sum(1) / weight.sum(1).clamp(min=1e-9))
        answers = {
            "argmax": lambda: scores.argmax(-1),
            "kept": lambda: scores.argmax(1, keepdim=True).to(torch.int32),
            "max": lambda: scores.max(-1).indices,
            "topk": lambda: scores.topk(2, dim=-1).indices,
            "sort": lambda: scores.sort(-1, descending=True).indices,
            "above": lambda: scores > 0.5,
        }
        found: torch.Tensor = answers[self.answer]()
        return found


@pytest.mark.parametrize("answer", ["argmax", "kept", "max", "topk", "sort", "above"])
def test_padding_that_moves_the_scores_behind_a_label_is_found(answer: str, tmp_path: Path) -> None:
    made = opened(export(Labels(False, answer), TEXT, tmp_path / "m.pt2"), buckets=BUCKETS, dimensions=NAMES)
    _, (report,) = made.padding()
    assert report.verdict is Verdict.FAILED, report.message
    assert "the scores behind output output_0 differs by" in report.message


def test_a_label_of_a_masked_mean_is_proven_by_its_scores(tmp_path: Path) -> None:
    made = opened(export(Labels(), TEXT, tmp_path / "m.pt2"), buckets=BUCKETS, dimensions=NAMES)
    _, (report,) = made.padding()
    assert report.verdict is Verdict.PROVEN, report.message


class BestPlace(nn.Module):
    """The best place of a text, which may be one that was filled up; or not, with the mask."""

    def __init__(self, masked: bool) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.words, self.masked = nn.Embedding(WORDS, 1), masked

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        scores = self.words(ids).squeeze(-1)
        if self.masked:
            scores = scores.masked_fill(mask == 0, -1e9)
        return scores.argmax(1)


@pytest.mark.parametrize(("masked", "verdict"), [(True, Verdict.PROVEN), (False, Verdict.FAILED)])
def test_a_place_beyond_the_end_is_no_tie(masked: bool, verdict: Verdict, tmp_path: Path) -> None:
    made = opened(export(BestPlace(masked), TEXT, tmp_path / "m.pt2"), buckets=BUCKETS, dimensions=NAMES)
    _, (report,) = made.padding()
    assert report.verdict is verdict, report.message


def test_two_labels_agree_where_their_scores_all_but_agree(tmp_path: Path) -> None:
    made = opened(export(Labels(), TEXT, tmp_path / "m.pt2"), buckets=BUCKETS, dimensions=NAMES)
    _, document = read_document(made.directory)
    assert [(d.output, d.axis, d.kept) for d in deciders(document)] == [(0, -1, False)]
    runs = Runs(made.program, made.layout, 60, behind=document)
    noise = Noise()
    tied = [torch.tensor(0), torch.tensor([1.0, 1.0 - 1e-7, 0.5])]
    noise.hear(tied, tied)
    second, third = [torch.tensor(1), tied[1]], [torch.tensor(2), tied[1]]
    assert not any(map(exceeds, compare(runs, tied, second, noise)))
    assert any(map(exceeds, compare(runs, tied, third, noise)))
