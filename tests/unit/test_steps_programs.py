"""Programs before and after the pod's own: joined by name, each with its own buckets, in one process."""

import base64
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from headway_runtime.cli import app
from headway_runtime.export import ExportError, Image, Labels, Size, Steps, export_model
from headway_runtime.prepare import inspection
from PIL import Image as Pillow
from typer.testing import CliRunner

from tests.unit.pod_process import PodProcess, pod, tensor
from tests.unit.steps_models import LABELS, prepared

EDGE = 8


class Scale(torch.nn.Module):
    """raw uint8 [batch, 8, 8, 3] -> pixels [batch, 3, 8, 8] from -1 to 1."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("middle", torch.tensor([127.5, 127.0, 128.0]))

    def forward(self, raw: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"pixels": (raw.to(torch.float32) / self.middle - 1).permute(0, 3, 1, 2)}


class Classify(torch.nn.Module):
    """pixels [batch, 3, 8, 8], weight [batch, 1] -> scores [batch, 4]."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.layer = torch.nn.Linear(3 * EDGE * EDGE, len(LABELS))

    def forward(self, pixels: torch.Tensor, weight: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"scores": self.layer(pixels.flatten(1)) * weight}


class Sharpen(torch.nn.Module):
    """scores [batch, 4], weight [batch, 1] -> chances [batch, 4]."""

    def __init__(self) -> None:
        super().__init__()
        self.power = torch.nn.Parameter(torch.tensor([3.0, 2.0, 4.0, 1.0]))

    def forward(self, scores: torch.Tensor, weight: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"chances": (self.power * scores * weight).softmax(-1)}


RAW = torch.arange(2 * EDGE * EDGE * 3).reshape(2, EDGE, EDGE, 3).to(torch.uint8)
PIXELS = torch.randn(2, 3, EDGE, EDGE, generator=torch.Generator().manual_seed(1))
WEIGHT = torch.tensor([[1.0], [0.5]])
BATCH = {0: Size("batch", 1, 64)}


def before(folder: Path) -> Path:
    export_model(Scale().eval(), {"raw": RAW}, path=folder / "before.pt2", dynamic_shapes={"raw": BATCH})
    return folder / "before.pt2"


def after(folder: Path) -> Path:
    inputs = {"scores": torch.randn(2, 4), "weight": WEIGHT}
    shapes = dict.fromkeys(inputs, BATCH)
    export_model(Sharpen().eval(), inputs, path=folder / "after.pt2", dynamic_shapes=shapes)
    return folder / "after.pt2"


def whole(folder: Path, **more: Any) -> Path:
    inputs = {"pixels": PIXELS, "weight": WEIGHT}
    export_model(
        Classify().eval(),
        inputs,
        path=folder / "whole.pt2",
        dynamic_shapes=dict.fromkeys(inputs, BATCH),
        preprocess=before(folder),
        postprocess=after(folder),
        labels=LABELS,
        steps=Steps(image=Image("raw", resize=(EDGE, EDGE), layout="NHWC"), labels=Labels("chances")),
        **more,
    )
    return folder / "whole.pt2"


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return whole(tmp_path_factory.mktemp("programs"))


@pytest.fixture(scope="module")
def serving(file: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PodProcess]:
    with pod(tmp_path_factory.mktemp("pod"), prepared(file)) as process:
        process.wait_for_phase()
        yield process


def expected(raw: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        scores = Classify().eval()(Scale()(raw)["pixels"], weight)["scores"]
        return Sharpen()(scores, weight)["chances"]


def ask(serving: PodProcess, *inputs: dict[str, Any], outputs: list[dict[str, Any]] | None = None) -> Any:
    body: dict[str, Any] = {"inputs": list(inputs)}
    return serving.client.post(serving.infer, json=body if outputs is None else {**body, "outputs": outputs})


def weights(*values: float) -> dict[str, Any]:
    return tensor("weight", "FP32", [len(values), 1], list(values))


def test_the_archive_holds_three_programs_with_their_golden_samples(file: Path) -> None:
    found = inspection.inspect(str(file))
    assert sorted(found.programs) == ["model", "postprocess", "preprocess"]
    assert found.main.document["steps"]["preprocess"] == "preprocess"
    assert found.main.samples
    assert found.programs["preprocess"].samples, "they keep their golden samples"


def test_what_one_returns_the_next_takes(serving: PodProcess) -> None:
    raw = tensor("raw", "UINT8", list(RAW.shape), RAW.flatten().tolist())
    (output,) = ask(serving, raw, weights(1.0, 0.5), outputs=[{"name": "chances"}]).json()["outputs"]
    found = torch.tensor(output["data"]).reshape(output["shape"])
    assert torch.allclose(found, expected(RAW, WEIGHT), atol=1e-6)


def test_an_image_goes_through_all_of_them(serving: PodProcess) -> None:
    out = io.BytesIO()
    Pillow.fromarray(RAW[0].numpy()).save(out, "PNG")
    image = tensor("image", "BYTES", [1], [base64.b64encode(out.getvalue()).decode()])
    answer = ask(serving, image, weights(1.0))
    assert answer.status_code == 200, answer.text
    found = {o["name"]: o["data"] for o in answer.json()["outputs"]}
    wanted = expected(RAW[:1], WEIGHT[:1])[0]
    assert found["chances"] == pytest.approx(wanted.tolist(), abs=1e-6)
    assert found["label"] == [LABELS[int(wanted.argmax())]]


def test_the_model_is_shown_as_the_whole_of_them(serving: PodProcess) -> None:
    found = serving.client.get(f"{serving.url}/v2/models/encoder").json()
    assert [(i["name"], i["datatype"]) for i in found["inputs"]] == [("image", "BYTES"), ("weight", "FP32")]
    assert [i["name"] for i in found["inputs"][0]["parameters"]["instead"]] == ["raw"]
    assert [o["name"] for o in found["outputs"]] == ["chances", "label", "score"]


def test_errors_of_any_of_them_reach_the_client(serving: PodProcess) -> None:
    raw = tensor("raw", "UINT8", list(RAW.shape), RAW.flatten().tolist())
    for inputs, words in (
        ((raw,), "input 'weight' is missing; this model takes 'image' (or 'raw'), 'weight'"),
        ((raw, weights(1.0, 1.0, 1.0)), "input weight, axis 0 is 3"),
        ((tensor("pixels", "FP32", [1, 1], [1.0]), weights(1.0)), "input 'pixels' is not one of this model's"),
    ):
        answer = ask(serving, *inputs)
        assert answer.status_code == 400, answer.text
        assert words in answer.json()["error"]


def test_the_steps_are_timed(serving: PodProcess) -> None:
    text = serving.admin("/metrics").text
    for step in ("image", "preprocess", "postprocess"):
        assert f'headway_step_seconds_count{{step="{step}"}}' in text


def test_knobs_reach_all_of_them(serving: PodProcess) -> None:
    def runs(step: str) -> float:
        name = f'headway_step_seconds_count{{step="{step}"}} '
        text = serving.admin("/metrics").text
        return sum(float(line.removeprefix(name)) for line in text.splitlines() if line.startswith(name))

    serving.apply_knobs({"maxBatch": 2, "maxWait": "0ms"})
    begun = {step: runs(step) for step in ("preprocess", "postprocess")}
    raw = tensor("raw", "UINT8", [6, *RAW.shape[1:]], RAW.repeat(3, 1, 1, 1).flatten().tolist())
    (output,) = ask(serving, raw, weights(*[1.0, 0.5] * 3), outputs=[{"name": "chances"}]).json()["outputs"]
    found = torch.tensor(output["data"]).reshape(output["shape"])
    assert torch.allclose(found, expected(RAW, WEIGHT).repeat(3, 1), atol=1e-6)
    assert {step: runs(step) - before for step, before in begun.items()} == {"preprocess": 3, "postprocess": 3}


def test_the_command_puts_them_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    before(tmp_path)
    after(tmp_path)
    inputs = {"pixels": PIXELS, "weight": WEIGHT}
    shapes = dict.fromkeys(inputs, BATCH)
    export_model(Classify().eval(), inputs, path="main.pt2", dynamic_shapes=shapes)
    Path("labels").write_text("\n".join(LABELS))
    result = CliRunner().invoke(
        app,
        ["export", "main.pt2", "-o", "out.pt2", "--before", "before.pt2", "--after", "after.pt2", "--labels", "labels",
         "--image", "tensor=raw,resize=8x8,layout=NHWC", "--classify", "output=chances,top=2"],
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert "the steps were not tried: a request has other inputs (weight)" in result.output
    found = inspection.inspect("out.pt2").main.document["steps"]
    assert found == {
        "image": {"tensor": "raw", "resize": [8, 8], "layout": "NHWC"},
        "labels": {"output": "chances", "top": 2},
        "preprocess": "preprocess",
        "postprocess": "postprocess",
    }


def test_what_does_not_fit_is_told_and_nothing_is_written(tmp_path: Path) -> None:
    class Wrong(torch.nn.Module):
        def forward(self, raw: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"pixels": raw.to(torch.float64).permute(0, 3, 1, 2)}

    export_model(Wrong().eval(), {"raw": RAW}, path=tmp_path / "wrong.pt2", dynamic_shapes={"raw": BATCH})
    inputs = {"pixels": PIXELS, "weight": WEIGHT}
    with pytest.raises(ExportError, match="output pixels of preprocess is not what the next program takes: float64"):
        export_model(
            Classify().eval(),
            inputs,
            path=tmp_path / "out.pt2",
            dynamic_shapes=dict.fromkeys(inputs, BATCH),
            preprocess=tmp_path / "wrong.pt2",
        )
    assert not (tmp_path / "out.pt2").exists()
