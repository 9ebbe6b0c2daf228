"""The shape gate and the bound on allocations in the serving process, inside its sandbox."""

import json
from pathlib import Path
from typing import Any

import torch

from tests.unit.pod_process import pod, tensor
from tests.unit.small_models import Quadratic, export, prepare


class Sized(torch.nn.Module):
    """n [1] -> sum of n ones: a size that the request's data decide."""

    def forward(self, n: torch.Tensor) -> torch.Tensor:
        size = n[0].item()
        torch._check(size >= 0)
        return torch.ones(size).sum()


def test_a_bucket_that_cannot_fit_ends_the_pod_before_it_is_run(tmp_path: Path) -> None:
    model = prepare(export(Quadratic, tmp_path / "q.pt2"), tmp_path / "model")
    with pod(tmp_path, model, batching={"shapeBuckets": {"batch": [1, 2**20]}}) as server:
        assert server.process.wait(60) == 1
    message = json.loads((tmp_path / "termination-log").read_text())
    assert (message["condition"], message["reason"]) == ("Accepted", "WillNotFit")
    assert message["field"] == "spec.batching.shapeBuckets"
    assert "bucket batch=1048576 needs at least 4.0 TiB" in message["message"]
    events = [json.loads(line)["event"] for line in (tmp_path / "log").read_text().splitlines()]
    assert "bucket_warm" not in events


def test_a_request_whose_data_ask_for_too_much_memory_fails_alone(tmp_path: Path) -> None:
    with torch.no_grad():
        torch.export.save(torch.export.export(Sized(), (torch.tensor([5]),)), tmp_path / "s.pt2")
    with pod(tmp_path, prepare(tmp_path / "s.pt2", tmp_path / "model")) as server:
        server.wait_for_phase()

        def ask(size: int) -> Any:
            return server.client.post(server.infer, json={"inputs": [tensor("n", "INT64", [1], [size])]})

        absurd = ask(10**14)
        assert absurd.status_code == 500
        assert "allocate memory" in absurd.text
        assert ask(1000).json()["outputs"][0]["data"] == [1000.0]
    assert "shapes_depend_on_data" in (tmp_path / "log").read_text()
