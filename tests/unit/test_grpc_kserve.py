"""KServe's gRPC client, unchanged, against a pod."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import torch

from tests.unit.pod_process import MODEL, REVISION, pod
from tests.unit.small_models import Encoder, export, prepare

IDS, MASK = [[1, 2, 3], [4, 5, 6]], [[1, 1, 0], [1, 1, 1]]  # what `grpc_kserve_client` asks


def test_kserves_client_is_answered_raw_and_typed(tmp_path: Path) -> None:
    model = prepare(export(Encoder, tmp_path / "model.pt2"), tmp_path / "model")
    with pod(tmp_path, model) as server:
        server.wait_for_phase()
        script = Path(__file__).with_name("grpc_kserve_client.py")
        arguments = [sys.executable, str(script), server.grpc, MODEL]
        done = subprocess.run(arguments, capture_output=True, text=True, timeout=120, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert [told[key] for key in ("live", "ready", "model")] == [True, True, True]
    assert told["error"].startswith("NOT_FOUND model 'other' is not served here")
    with torch.no_grad():
        expected = {
            name: each.numpy() for name, each in Encoder().eval()(torch.tensor(IDS), torch.tensor(MASK)).items()
        }
    for raw in (True, False):
        answer = told[f"raw {raw}"]
        assert (answer["id"], answer["model"], answer["version"]) == ("k-1", MODEL, REVISION)
        assert set(answer["outputs"]) == set(expected)
        for name, value in answer["outputs"].items():
            found = np.array(value, dtype=np.float32).reshape(expected[name].shape)
            np.testing.assert_allclose(found, expected[name], rtol=1e-5, atol=1e-6)
