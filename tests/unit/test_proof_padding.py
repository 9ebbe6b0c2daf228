"""Padding is done where it changes no answer, and nowhere else: small real models, each right or wrong in its way."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from headway_api.podconfig import PaddingReport, Verdict
from headway_api.types import Padding
from headway_runtime.batching.layout import Layout
from headway_runtime.export import Size, export_model
from headway_runtime.proof.noise import largest
from torch import nn
from torch.nn import functional

from tests.unit.proof_models import BUCKETS, WORDS, export, ids, mask, opened


class Words(nn.Module):
    """ids [batch, sequence] -> vectors [batch, sequence, 8]"""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.words = nn.Embedding(WORDS, 8)
        self.layer = nn.Linear(8, 8)

    def vectors(self, ids: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.layer(self.words(ids)))


class Attended(Words):
    """One layer of attention that heeds a mask, or not; or that looks back only."""

    def attended(self, ids: torch.Tensor, mask: torch.Tensor | None, causal: bool = False) -> torch.Tensor:
        x = self.vectors(ids)
        seen = None if mask is None else mask[:, None, :].bool().expand(-1, ids.shape[1], -1)
        found: torch.Tensor = functional.scaled_dot_product_attention(x, x, x, attn_mask=seen, is_causal=causal)
        return found + x


class MaskedMean(Attended):
    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        x, weight = self.attended(ids, mask), mask.unsqueeze(-1).float()
        return (x * weight).sum(1) / weight.sum(1).clamp(min=1e-9)


class UnmaskedMean(Attended):
    """The attention heeds the mask, the pooling does not: the mistake that is easily made."""

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return self.attended(ids, mask).mean(1)


class UnmaskedLogits(Attended):
    """One class is never to be chosen: beside its number every other is small."""

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        never = torch.tensor([torch.finfo(torch.float32).min / 4, *[0.0] * 7])
        return self.attended(ids, mask).mean(1) + never


class UnmaskedMax(Attended):
    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return self.attended(ids, mask).amax(1)


class UnmaskedAttention(Attended):
    """The pooling heeds the mask, the attention does not."""

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        x, weight = self.attended(ids, None), mask.unsqueeze(-1).float()
        return (x * weight).sum(1) / weight.sum(1).clamp(min=1e-9)


class First(Attended):
    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return self.attended(ids, mask)[:, 0]


class Last(Attended):
    """The last position, which is a padded one."""

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return self.attended(ids, mask)[:, -1]


class SoftmaxOverTime(Words):
    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return (self.vectors(ids).sum(-1) * mask).softmax(1)


class Convolved(Words):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Sequential(nn.Conv1d(8, 8, 3, padding=1), nn.ReLU(), nn.Conv1d(8, 4, 3, padding=1))

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.conv((self.vectors(ids) * mask.unsqueeze(-1)).transpose(1, 2)).transpose(1, 2)
        return found


class Recurrent(Words):
    """A recurrent network over time (`nn.LSTM` exports with a fixed time only), one way or both ways."""

    def __init__(self, both_ways: bool) -> None:
        super().__init__()
        self.cells = nn.ModuleList([nn.GRUCell(8, 4) for _ in range(1 + both_ways)])

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        from torch._higher_order_ops.scan import scan

        def step(cell: nn.Module) -> Callable[..., tuple[torch.Tensor, torch.Tensor]]:
            def compute(state: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
                state = cell(x, state)
                return state, state.clone()

            return compute

        x = self.words(ids)
        start = x.new_zeros(x.shape[0], 4)
        ways = [scan(step(cell), start, x, dim=1, reverse=bool(n))[1] for n, cell in enumerate(self.cells)]
        return torch.cat(ways, dim=-1).transpose(0, 1)


class Causal(Attended):
    """A decoder: logits of every position, each of which sees only those before it."""

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.attended(ids, None, causal=True) @ self.words.weight.T


class FromTheEnd(Words):
    """Positions are counted from the last one."""

    def __init__(self) -> None:
        super().__init__()
        self.places = nn.Embedding(128, 8)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        count = ids.shape[1]
        return self.vectors(ids) + self.places(count - 1 - torch.arange(count))


class MeanOfIds(Words):
    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.vectors(ids).mean(1)


class OwnMask(Words):
    """Zeros are no words: the model makes its mask by itself."""

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        weight = (ids != 0).unsqueeze(-1).float()
        return (self.vectors(ids) * weight).sum(1) / weight.sum(1).clamp(min=1e-9)


TEXT = {"ids": ids(), "mask": mask()}
ONLY_IDS = {"ids": ids()}


def one_way() -> nn.Module:
    return Recurrent(both_ways=False)


def both_ways() -> nn.Module:
    return Recurrent(both_ways=True)


def tried(
    module: nn.Module, inputs: dict[str, torch.Tensor], folder: Path, asked: Padding = Padding.AUTO, **more: Any
) -> tuple[Layout, PaddingReport]:
    made = opened(export(module, inputs, folder / "model.pt2", **more), buckets=BUCKETS, dimensions=NAMES)
    layout, (report,) = made.padding(asked)
    assert report.dimension == "sequence"
    assert len(report.message) <= 300, "the operator shows no more of it"
    return layout, report


NAMES = {"sequence": "ids.1"}


@pytest.mark.parametrize("examples", [True, False])
@pytest.mark.parametrize("module", [MaskedMean, First])
def test_a_model_that_heeds_its_mask_is_padded(module: type[nn.Module], examples: bool, tmp_path: Path) -> None:
    layout, report = tried(module(), TEXT, tmp_path, examples=examples)
    assert report.verdict is Verdict.PROVEN, report.message
    assert (layout.padded, layout.fills) == (("sequence",), (0, 0))
    assert ("the example inputs" if examples else "made-up inputs") in report.message


WRONG = [UnmaskedMean, UnmaskedLogits, UnmaskedMax, UnmaskedAttention, Last, SoftmaxOverTime, Convolved]


@pytest.mark.parametrize("examples", [True, False])
@pytest.mark.parametrize("module", WRONG)
def test_a_model_that_does_not_heed_its_mask_is_caught(module: type[nn.Module], examples: bool, tmp_path: Path) -> None:
    layout, report = tried(module(), TEXT, tmp_path, examples=examples)
    assert report.verdict is Verdict.FAILED, report.message
    assert (layout.padded, layout.fills) == ((), (None, None))
    assert "output output_0 differs" in report.message
    assert "ids with 0, mask with 0" in report.message


@pytest.mark.parametrize("module", [Causal, one_way])
def test_what_looks_back_only_is_padded_with_anything(module: Callable[[], nn.Module], tmp_path: Path) -> None:
    layout, report = tried(module(), ONLY_IDS, tmp_path)
    assert report.verdict is Verdict.PROVEN, report.message
    assert layout.fills == (0,)


@pytest.mark.parametrize("module", [both_ways, FromTheEnd, MeanOfIds, OwnMask])
def test_without_a_mask_and_a_recorded_value_nothing_is_padded(module: Callable[[], nn.Module], tmp_path: Path) -> None:
    layout, report = tried(module(), ONLY_IDS, tmp_path)
    assert report.verdict is Verdict.UNPROVEN, report.message
    assert layout.padded == ()
    assert "headway export --pad ids=VALUE" in report.message


@pytest.mark.parametrize(
    ("numbers", "usual"),
    [
        ([0.5, -2.0, 1.0, -1e30], 2.0),
        ([0.5, -2.0, 1.0, -1e4, float("-inf"), float("nan")], 2.0),
        ([0.5, 3.0, 900.0], 900.0),
        ([1e-22, 3e-22, 1e-21, 1.0], 1.0),  # a softmax that is sure
        ([0.0, 0.0, 4000.0], 4000.0),
        ([1.0, -1e30, -1e30, -1e30], 1.0),
        ([0.0, 0.0], 0.0),
    ],
)
def test_numbers_that_stand_for_never_are_no_scale(numbers: list[float], usual: float) -> None:
    assert largest(torch.tensor(numbers)) == usual


def recorded(module: nn.Module, folder: Path, padding: dict[str, float]) -> tuple[Layout, PaddingReport]:
    shapes = {"ids": {0: Size("batch", 1, 16), 1: Size("sequence", 1, 128)}}
    export_model(module.eval(), ONLY_IDS, path=folder / "m.pt2", dynamic_shapes=shapes, padding=padding)
    layout, (report,) = opened(folder / "m.pt2", buckets=BUCKETS).padding()
    return layout, report


def test_the_recorded_value_is_tried_and_used(tmp_path: Path) -> None:
    layout, report = recorded(OwnMask(), tmp_path, {"ids": 0})
    assert report.verdict is Verdict.PROVEN, report.message
    assert layout.fills == (0,)
    assert "golden samples" in report.message


@pytest.mark.parametrize(("module", "value"), [(OwnMask, 1), (MeanOfIds, 0)])
def test_a_recorded_value_that_is_wrong_fails(module: type[nn.Module], value: int, tmp_path: Path) -> None:
    layout, report = recorded(module(), tmp_path, {"ids": value})
    assert report.verdict is Verdict.FAILED, report.message
    assert layout.padded == ()


def test_never_and_trusted_are_not_tried(tmp_path: Path) -> None:
    layout, report = tried(UnmaskedMean(), TEXT, tmp_path, Padding.NEVER)
    assert (report.verdict, layout.padded) == (Verdict.NEVER, ())
    layout, report = tried(UnmaskedMean(), TEXT, tmp_path, Padding.TRUSTED)
    assert (report.verdict, layout.padded, layout.fills) == (Verdict.TRUSTED, ("sequence",), (0, 0))
