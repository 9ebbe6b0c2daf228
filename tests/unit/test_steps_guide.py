"""docs/steps.md is true: its commands write files whose steps are what the page says."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import torch
from headway_runtime.cli import app
from headway_runtime.export import Size, export_model
from headway_runtime.prepare import inspection
from headway_runtime.serving.steps import image, pixels
from typer.testing import CliRunner

from tests.unit.steps_models import tokenizer

PAGE = (Path(__file__).resolve().parents[2] / "docs/steps.md").read_text()
ENCODER = """
import torch

class Encoder(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.words = torch.nn.Embedding(16, 8)

    def forward(self, ids, mask):
        weight = mask.unsqueeze(-1).float()
        return (self.words(ids) * weight).sum(1) / weight.sum(1).clamp(min=1)

def make_model():
    return Encoder().eval()
"""
CLASSIFIER = """
import torch

class Classifier(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(3 * 32 * 32, 3)

    def forward(self, pixels):
        return self.layer(pixels.flatten(1))

def make_model():
    return Classifier().eval()
"""


class Twice(torch.nn.Module):
    """x -> 2x."""

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"x": 2 * x}


@pytest.fixture(scope="module")
def steps(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The steps in the file of each command, by its name, after all were run as a reader would."""
    where = tmp_path_factory.mktemp("guide")
    (where / "encoder.py").write_text(ENCODER)
    (where / "classifier.py").write_text(CLASSIFIER)
    (where / "labels.txt").write_text("cat\ndog\nmat\n")
    tokenizer(where / "tokenizer.json")
    for name in ("main", "scale", "nms"):
        shapes = {"x": {0: Size("batch", 1, 8)}}
        export_model(Twice().eval(), {"x": torch.ones(2, 3)}, path=where / f"{name}.pt2", dynamic_shapes=shapes)
    found: dict[str, Any] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(where)
        for command in re.findall(r"^headway export ((?:.*\\\n)*.*)$", PAGE, flags=re.MULTILINE):
            arguments = shlex.split(command.replace("\\\n", " "))
            result = CliRunner().invoke(app, ["export", *arguments])
            assert result.exit_code == 0, result.output
            file = arguments[arguments.index("-o") + 1]
            found[file] = (inspection.inspect(file).main.document["steps"], result.output)
    return found


def test_every_command_of_the_page_writes_what_it_says(steps: dict[str, Any]) -> None:
    assert {file: document for file, (document, _) in steps.items()} == {
        "encoder.pt2": {"text": {"ids": "ids", "mask": "mask", "truncate": True}},
        "classifier.pt2": {
            "image": {
                "tensor": "pixels", "resize": 40, "crop": [32, 32],
                "mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225],
            },
            "labels": {"output": "logits", "top": 2, "softmax": True},
        },
        "whole.pt2": {"preprocess": "preprocess", "postprocess": "postprocess"},
    }  # fmt: skip


def test_export_tells_what_went_through_the_steps(steps: dict[str, Any]) -> None:
    assert "note: a request of text went through the steps: embedding [1, 8]" in steps["encoder.pt2"][1]
    assert "of image went through the steps: logits [1, 3], label [1, 2], score [1, 2]" in steps["classifier.pt2"][1]


def test_the_bounds_of_images_are_those_of_the_page() -> None:
    for number in (pixels.MAX_PIXELS, pixels.MAX_RATIO, image.MAX_IMAGES):
        assert f"{number:,}" in PAGE
