"""The life of a pod inside the test's own process: what no request and no file can bring about from outside."""

import asyncio
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch
from headway_api.podconfig import ColdConfig, Phase
from headway_runtime import knobs, life
from headway_runtime.batching.engine import Engine
from headway_runtime.batching.layout import Layout
from headway_runtime.buckets import resolve_buckets
from headway_runtime.metrics import Metrics
from headway_runtime.origin import Origin
from headway_runtime.pod import Model, Pod
from headway_runtime.program import Program, load_program
from headway_runtime.protocols.oip import Signature
from headway_runtime.server import listen

from tests.unit.pod_process import question
from tests.unit.small_models import Encoder, export, prepare


class DeviceLost(BaseException):
    """What no handler of ordinary errors catches."""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Program:
    folder = tmp_path_factory.mktemp("life")
    return load_program(prepare(export(Encoder, folder / "model.pt2"), folder / "model"), dimension_names={})


@pytest.fixture
def pod() -> Pod:
    cold = {"model": "encoder", "namespace": "t", "revision": "0a1b2c3d", "artifact": {"uri": "file:///m.pt2"}}
    return Pod(ColdConfig.model_validate({**cold, "device": {"kind": "cpu"}}), Metrics(), Origin())


def model(program: Program, deliver: Any) -> Model:
    layout, buckets = Layout.of(program), resolve_buckets(program, {"batch": [8]})
    engine = Engine(program, layout, knobs.resolve(knobs.parse("{}"), 8).limits, deliver)
    return Model(engine, layout, Signature(program, layout, buckets), buckets)


async def test_when_the_engine_thread_dies_every_request_is_answered_and_the_pod_ends_with_a_reason(
    pod: Pod, program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(inputs: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        raise DeviceLost("the device is gone")

    monkeypatch.setattr(program, "run", fail)
    monkeypatch.setattr(life, "load", lambda pod, folder, deliver, hand: model(program, deliver))
    (tmp_path / "knobs.json").write_text('{"maxWait": "5s", "maxBatch": 2}')
    inference, admin = listen("127.0.0.1", 0), listen("127.0.0.1", 0)
    port = inference.getsockname()[1]
    alive = asyncio.create_task(life.Life(pod, life.Options(tmp_path, tmp_path / "knobs.json", inference, admin)).run())
    try:
        async with asyncio.timeout(20), httpx.AsyncClient(timeout=20) as http:
            for _ in range(1000):
                if (await http.get(f"http://127.0.0.1:{port}/v2/health/ready")).status_code == 200:
                    break
                await asyncio.sleep(0.01)
            url = f"http://127.0.0.1:{port}/v2/models/encoder/infer"
            answers = await asyncio.gather(*(http.post(url, json=question([[1, 2]])) for _ in range(3)))
            failure = await alive
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().remove_signal_handler(number)
    assert sorted(a.status_code for a in answers) == [500, 500, 503], "two were in the run, one waited"
    assert [a.headers.get("x-headway-not-admitted") for a in answers if a.status_code == 503] == ["1"]
    assert not any("x-headway-not-admitted" in a.headers for a in answers if a.status_code == 500)
    assert failure is not None
    assert (failure.reason, failure.condition) == ("EngineFailed", "Ready")
    assert "the device is gone" in failure.message
    assert pod.phase is Phase.FAILED


def test_bad_knobs_at_the_start_leave_the_defaults_and_are_reported(pod: Pod, program: Program) -> None:
    pod.knobs_changed("{", "abc")
    pod.install(model(program, lambda outcomes, record: None))
    report = pod.report()
    assert report.phase is Phase.READY
    assert report.knobs.effective["maxBatch"] == 8
    assert report.knobs.hash is None
    assert report.knobs.error
