"""`spec.precision` from outside: a pod, `headway serve` and `headway bench` in a lower precision."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from headway_api.types import Precision
from headway_runtime.cli import app
from typer.testing import CliRunner

from tests.ports import free_port
from tests.unit.pod_process import pod, tensor
from tests.unit.precision_models import LOWER, WIDE, Classifier, Fragile, Small, golden, loaded, plain
from tests.unit.small_models import prepare


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return golden(tmp_path_factory.mktemp("classifier"))


@pytest.mark.parametrize("precision", LOWER)
def test_a_pod_serves_in_the_precision_that_is_asked_for_and_says_how_close(
    classifier: Path, tmp_path: Path, precision: Precision
) -> None:
    x = torch.randn(2, WIDE)
    with pod(tmp_path, classifier, precision=precision.value) as serving:
        serving.wait_for_phase(seconds=120)
        report = serving.report()
        assert report["precision"] == precision.value
        assert (report["parity"]["samples"], report["parity"]["agrees"]) == (3, True)
        assert report["parity"]["message"].startswith(f"{precision.value}, 3 golden samples: ")
        asked = {"inputs": [tensor("x", "FP32", [2, WIDE], x.flatten().tolist())]}
        scores = serving.client.post(serving.infer, json=asked).json()["outputs"][0]["data"]
    expected = loaded(classifier, precision=precision).run([x])[0].flatten()
    torch.testing.assert_close(torch.tensor(scores), expected, rtol=1e-4, atol=1e-4)


def test_a_pod_whose_answers_become_others_never_becomes_ready(tmp_path: Path) -> None:
    model = prepare(plain(Fragile(), torch.randn(4, WIDE), tmp_path / "m.pt2"), tmp_path / "model")
    with pod(tmp_path, model, precision="Int8") as serving:
        assert serving.process.wait(120) == 1
    assert "bucket_warm" not in (tmp_path / "log").read_text(), "a refusal waits for no bucket"
    said = json.loads((tmp_path / "termination-log").read_text())
    assert (said["condition"], said["reason"], said["field"]) == ("Accepted", "PrecisionRefused", "spec.precision")
    assert said["message"].startswith("spec.precision: Int8, 1 example input: output output_0 is off by ")
    assert said["message"].endswith("this program does not bear it: write a higher precision")


def test_a_pod_without_anything_to_try_with_never_becomes_ready(tmp_path: Path) -> None:
    file = plain(Classifier(), torch.randn(4, WIDE), tmp_path / "m.pt2", examples=False)
    with pod(tmp_path, prepare(file, tmp_path / "model"), precision="BFloat16") as serving:
        assert serving.process.wait(120) == 1
    said = json.loads((tmp_path / "termination-log").read_text())
    assert (said["reason"], said["field"]) == ("PrecisionRefused", "spec.precision")


def test_a_file_is_served_and_measured_in_the_precision_that_is_asked_for(classifier: Path) -> None:
    file = str(classifier.parent / "m.pt2")
    quick = ["--seconds", "0.2", "--connections", "1", "--rate", "20", "--no-verify"]
    done = CliRunner().invoke(app, ["bench", file, *quick, "--precision", "Int8", "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["precision"] == "Int8"
    refused = CliRunner().invoke(app, ["bench", "--url", "http://127.0.0.1:1", "--precision", "Int8"])
    assert refused.exit_code == 2
    assert "--precision is for a .pt2" in refused.output


def test_serve_says_how_close_its_weights_are(classifier: Path) -> None:
    program = "import sys, headway_runtime.cli as c; c.main()"
    ports = ["--port", "0", "--admin-port", "0", "--grpc-port", "0"]
    command = ["serve", str(classifier.parent / "m.pt2"), "--precision", "BFloat16", *ports]
    with subprocess.Popen([sys.executable, "-c", program, *command], stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        said = []
        for line in process.stderr:
            said.append(line)
            if line.startswith("Ctrl-C"):
                break
        process.send_signal(signal.SIGINT)
    (weights,) = [line for line in said if line.startswith("  weights ")]
    assert weights.split(maxsplit=1)[1].startswith("BFloat16, 3 golden samples: ")


def test_serve_says_why_a_precision_is_refused(tmp_path: Path) -> None:
    file = plain(Small(), torch.randn(2, 3), tmp_path / "m.pt2")
    ports = [f"--{name}={free_port()}" for name in ("port", "admin-port", "grpc-port")]
    done = CliRunner().invoke(app, ["serve", str(file), "--precision", "Int8", *ports])
    assert done.exit_code == 1
    assert "Accepted=False/PrecisionRefused: --precision: Int8, and this program has no weight" in done.output
    assert done.output.endswith("in the main graph; write --precision Exported\n")
