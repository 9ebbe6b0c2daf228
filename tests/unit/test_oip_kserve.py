"""KServe's REST client, unchanged, against a served pod."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import torch
from headway_runtime.program import load_program

from tests.unit.http_server import http_server
from tests.unit.pod_process import MODEL, REVISION
from tests.unit.small_models import Encoder, export, prepare

IDS, MASK = [[1, 2, 3], [4, 5, 6]], [[1, 1, 0], [1, 1, 1]]  # what `kserve_client` asks


def test_kserves_client_is_answered_in_json_and_in_binary(tmp_path: Path) -> None:
    program = load_program(prepare(export(Encoder, tmp_path / "m.pt2"), tmp_path / "m"), dimension_names={})
    with http_server(program, batch=[1, 8]) as server:
        script = Path(__file__).with_name("kserve_client.py")
        arguments = [sys.executable, str(script), server.url, MODEL]
        done = subprocess.run(arguments, capture_output=True, text=True, timeout=120, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert [told[k] for k in ("live", "ready", "model", "other")] == [True, True, True, False]
    assert told["revision"] == REVISION
    assert "input 'ids' is missing" in told["error"]
    with torch.no_grad():
        expected = {k: v.numpy() for k, v in Encoder().eval()(torch.tensor(IDS), torch.tensor(MASK)).items()}
    for key, outputs in (("pooled", ("pooled",)), (None, ("pooled", "tokens"))):
        for send in (True, False):
            for receive in (True, False) if key else (None,):
                answer = told[f"{send} {receive}"]
                assert (answer.pop("id"), answer.pop("model")) == ("k-1", MODEL)
                assert tuple(answer) == outputs
                for name in outputs:
                    value = np.array(answer[name], dtype=np.float32).reshape(expected[name].shape)
                    np.testing.assert_allclose(value, expected[name], rtol=1e-5, atol=1e-6)
    assert np.allclose(np.array(told["dictionary"]["pooled"]).reshape(2, 8), expected["pooled"], atol=1e-5)
