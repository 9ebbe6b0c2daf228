"""Programs whose weights are kept in a lower precision, and some that do not bear it."""

import math
import warnings
from pathlib import Path
from typing import Any

import torch
from headway_api.types import Precision
from headway_runtime.export import Size, export_model
from headway_runtime.program import Program, load_program

from tests.unit import proof_models
from tests.unit.small_models import prepare

WIDE = 320
LOWER = [Precision.BFLOAT16, Precision.INT8]
NAN, INF = math.nan, math.inf


class Classifier(torch.nn.Module):
    """x [batch, 320] -> scores [batch, 320] and best [batch], the number of the largest."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.layers = torch.nn.Sequential(torch.nn.Linear(WIDE, WIDE), torch.nn.GELU(), torch.nn.Linear(WIDE, WIDE))

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        scores = self.layers(x)
        return {"scores": scores, "best": scores.argmax(1)}


class Fragile(torch.nn.Module):
    """x [batch, 320] -> y [batch, 320]: two large products that all but cancel."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(6)
        self.one, self.other = (torch.nn.Linear(WIDE, WIDE, bias=False) for _ in range(2))
        self.other.weight.data = self.one.weight.data + 1e-3 * torch.randn(WIDE, WIDE)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.one(x) - self.other(x)


class Nothing(Classifier):
    """x [batch, 320] -> nothing [batch, 0]."""

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"nothing": self.layers(x)[:, :0]}


class Small(torch.nn.Module):
    """x [batch, 3] -> y [batch, 3]: no weight that is worth it."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)


class Broken(torch.nn.Module):
    """x [batch, 320] -> y [batch, 320], with a weight that is infinite somewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(WIDE, WIDE)
        self.layer.weight.data[3, 4] = INF

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)


class Words(torch.nn.Module):
    """ids, mask [batch, sequence] -> [batch, 320]: a masked mean, and `leak` times one that heeds no mask."""

    def __init__(self, leak: float) -> None:
        super().__init__()
        torch.manual_seed(7)
        self.words = torch.nn.Embedding(proof_models.WORDS, WIDE)
        self.layer = torch.nn.Linear(WIDE, WIDE)
        self.leak = leak

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        tokens = torch.tanh(self.layer(self.words(ids)))
        weight = mask.unsqueeze(-1).float()
        return (tokens * weight).sum(1) / weight.sum(1).clamp(min=1) + self.leak * tokens.mean(1)


def plain(module: torch.nn.Module, x: torch.Tensor, file: Path, *, examples: bool = True) -> Path:
    """An export without golden answers, with example inputs or without."""
    return proof_models.export(module, {"x": x}, file, shapes={"x": {0: proof_models.BATCH}}, examples=examples)


def golden(folder: Path) -> Path:
    """The classifier with golden samples, prepared."""
    samples = [{"x": torch.randn(rows, WIDE, generator=torch.Generator().manual_seed(rows))} for rows in (1, 4, 16)]
    shapes = {"x": {0: Size("batch", 1, 16)}}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        example = {"x": torch.randn(2, WIDE)}
        export_model(Classifier().eval(), example, path=folder / "m.pt2", dynamic_shapes=shapes, samples=samples)
    return prepare(folder / "m.pt2", folder / "prepared")


def loaded(folder: Path, **options: Any) -> Program:
    return load_program(folder, dimension_names={}, **options)
