"""The soak in short: every answer of a pod under load is right, whatever comes beside it. `tests/bench/bench_soak.py`
runs it for an hour.
"""

import json
from pathlib import Path

import pytest
import torch
from headway_runtime.program import load_program

from tests.bench.soak import BUCKETS, Soak, checker, expected, read_binary, requests, soak
from tests.unit.pod_process import pod
from tests.unit.small_models import Encoder, export, prepare


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
def test_a_pod_under_load_gives_no_wrong_answer_and_keeps_its_memory(tmp_path: Path) -> None:
    torch.set_num_threads(1)
    prepare(export(Encoder, tmp_path / "encoder.pt2"), tmp_path / "model")
    program = load_program(tmp_path / "model", dimension_names={}, device="cpu", program=None)
    with pod(tmp_path, tmp_path / "model", batching={"shapeBuckets": BUCKETS}) as server:
        server.wait_for_phase()
        found = soak(server, program, seconds=8, slice_seconds=0.8)
        assert server.report()["phase"] == "Ready"
        assert server.terminate() == 0
    assert found.wrong == []
    assert found.checked > 200
    assert set(found.statuses) <= {200, 429}
    assert not found.lost
    assert found.misdeeds > 20
    grown, _ = found.growth()
    assert grown < 24 * 2**20


def test_a_wrong_answer_is_noticed(tmp_path: Path) -> None:
    prepare(export(Encoder, tmp_path / "encoder.pt2"), tmp_path / "model")
    program = load_program(tmp_path / "model", dimension_names={}, device="cpu", program=None)
    asked = requests(4)
    truth = expected(program, asked)
    outputs = [
        {"name": name, "datatype": "FP32", "shape": list(array.shape), "data": array.reshape(-1).tolist()}
        for name, array in zip(("pooled", "tokens"), truth[0], strict=True)
    ]
    found = Soak()
    check = checker(found, truth, binary=False)
    check(0, 200, json.dumps({"outputs": outputs}).encode())
    assert (found.checked, found.wrong) == (1, [])
    outputs[0]["data"][0] += 0.01  # type: ignore[index]
    check(0, 200, json.dumps({"outputs": outputs}).encode())
    check(1, 200, json.dumps({"outputs": outputs}).encode())
    check(0, 200, json.dumps({"outputs": outputs[1:]}).encode())
    assert (found.checked, len(found.wrong)) == (4, 3)
    check(0, 429, b"")
    assert found.statuses == {200: 4, 429: 1}


def test_a_binary_answer_is_read() -> None:
    head = {"outputs": [{"name": "x", "shape": [1, 2], "parameters": {"binary_data_size": 8}}]}
    raw = torch.tensor([1.5, -2.0]).numpy().tobytes()
    assert read_binary(json.dumps(head).encode() + raw)["x"].tolist() == [[1.5, -2.0]]
