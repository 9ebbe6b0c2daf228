"""Small real models, exported and prepared as a user's would be: what the tests of the serving pod run."""

from pathlib import Path
from typing import Any

import torch
from headway_runtime.prepare import run
from torch.export import Dim

WORDS = 50  # ids the encoder knows; a larger one makes the program raise


class Encoder(torch.nn.Module):
    """ids, mask [batch, sequence] -> pooled [batch, 8] and tokens [batch, sequence, 8], by a masked mean."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(7)
        self.words = torch.nn.Embedding(WORDS, 8)
        self.layer = torch.nn.Linear(8, 8)

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> dict[str, torch.Tensor]:
        tokens = torch.tanh(self.layer(self.words(ids)))
        weight = mask.to(torch.float32).unsqueeze(-1)
        pooled = (tokens * weight).sum(1) / weight.sum(1).clamp(min=1e-9)
        return {"pooled": pooled, "tokens": tokens}


class Scaled(torch.nn.Module):
    """x [batch, 3] and factor [3] -> y [batch, 3]: an input without rows."""

    def forward(self, x: torch.Tensor, factor: torch.Tensor) -> torch.Tensor:
        return torch.log(x) * factor


class Summed(torch.nn.Module):
    """x [n, 3] -> total [3]: no axis of rows in the answer, so it cannot be batched."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.sum(0)


class Quadratic(torch.nn.Module):
    """x [batch, 3] -> y [batch, 3], by way of batch² numbers: a million rows need 4 TiB."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x @ x.T) @ x


BATCH, SEQUENCE = Dim("batch", min=1, max=64), Dim("sequence", min=1, max=128)
_SHAPES: dict[type[torch.nn.Module], tuple[tuple[torch.Tensor, ...], tuple[dict[int, Any] | None, ...]]] = {
    Encoder: (
        (torch.ones(2, 5, dtype=torch.int64), torch.ones(2, 5, dtype=torch.int64)),
        ({0: BATCH, 1: SEQUENCE}, {0: BATCH, 1: SEQUENCE}),
    ),
    Scaled: ((torch.ones(2, 3), torch.ones(3)), ({0: BATCH}, None)),
    Quadratic: ((torch.ones(2, 3),), ({0: Dim("batch", min=1, max=2**20)},)),
    Summed: ((torch.ones(2, 3),), ({0: Dim("n", min=1, max=64)},)),
}


def export(model: type[torch.nn.Module], file: Path) -> Path:
    """Write the model as a `.pt2`."""
    example, shapes = _SHAPES[model]
    with torch.no_grad():
        program = torch.export.export(model().eval(), example, dynamic_shapes=shapes)
    torch.export.save(program, file)
    return file


def prepare(file: Path, target: Path) -> Path:
    """What the prepare container does."""
    run.prepare(file.as_uri(), target, pinned=None, credentials=Path("/nonexistent"))
    return target
