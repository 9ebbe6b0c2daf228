"""The admin port without a process, documents from anywhere, and loading that fails."""

import json
import os
import shutil
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest
import torch
from headway_api.podconfig import ColdConfig
from headway_runtime.admin import Admin
from headway_runtime.batching.engine import Engine, Outcome, RunRecord, Work
from headway_runtime.batching.layout import Layout
from headway_runtime.batching.policy import Limits, Ticket
from headway_runtime.buckets import resolve_buckets
from headway_runtime.errors import FatalError, InvalidRequestError
from headway_runtime.loading import load
from headway_runtime.metrics import Metrics
from headway_runtime.origin import Origin
from headway_runtime.pod import Model, Pod
from headway_runtime.program import Program, load_program
from headway_runtime.protocols import oip
from headway_runtime.serving.intake import Intake
from headway_runtime.warmup import warm
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.pod_process import question
from tests.unit.small_models import Encoder, Quadratic, export, prepare

COLD = ColdConfig.model_validate(
    {
        "model": "encoder",
        "namespace": "test",
        "revision": "0a1b2c3d",
        "artifact": {"uri": "file:///m.pt2"},
        "device": {"kind": "cpu"},
    }
)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("front")
    return prepare(export(Encoder, folder / "model.pt2"), folder / "model")


@pytest.fixture(scope="module")
def program(directory: Path) -> Program:
    return load_program(directory, dimension_names={"sequence": "ids.1"})


@pytest.fixture
def pod() -> Pod:
    return Pod(COLD, Metrics(), Origin())


def client(app: Any) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://pod")


async def test_liveness_fails_without_an_engine_thread_and_when_a_run_does_not_come_back(
    pod: Pod, program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with client(Admin(pod, lambda: False)) as http:
        assert (await http.get("/healthz")).status_code == 503
    entered, leave = threading.Event(), threading.Event()

    def hang(inputs: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        entered.set()
        leave.wait(20)
        return Program.run(program, inputs)

    monkeypatch.setattr(program, "run", hang)
    model = serving(program)
    pod.model = model
    thread = threading.Thread(target=model.engine.run, daemon=True)
    thread.start()
    one = torch.ones(1, 4, dtype=torch.int64)
    now = time.monotonic()
    ticket = Ticket(1, "group", 1, 1, now, now + 60)
    model.engine.submit(Work(ticket, (one, one), {"batch": 1, "sequence": 4}, None, lambda: False))
    assert entered.wait(10)
    async with client(Admin(pod, thread.is_alive)) as http:
        assert (await http.get("/healthz")).status_code == 200
        monkeypatch.setattr("headway_runtime.pod.STUCK_SECONDS", 0.0)
        assert (await http.get("/healthz")).status_code == 503
    leave.set()
    model.engine.stop()
    thread.join(10)


def serving(program: Program) -> Model:
    def deliver(outcomes: Sequence[Outcome], record: RunRecord | None) -> None:
        pass

    layout, buckets = Layout.of(program), resolve_buckets(program, {"batch": [1, 8], "sequence": [8]})
    engine = Engine(program, layout, Limits(8, 0.0, 64, 10**6), deliver)
    return Model(engine, layout, Intake(program, layout, buckets), buckets)


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 60) | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["inputs", "outputs", "id", "name", "datatype", "shape", "data", "parameters"]),
            inner | st.sampled_from(["ids", "mask", "INT64", "pooled"]),
            max_size=5,
        )
    ),
    max_leaves=20,
)


@settings(max_examples=300, deadline=None)
@given(ANYTHING)
def test_any_document_is_decoded_or_refused(program: Program, document: object) -> None:
    check(serving(program).intake, orjson.dumps(document))


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_any_damage_to_a_good_request_is_decoded_or_refused(program: Program, data: st.DataObject) -> None:
    good = bytearray(json.dumps(question([[1, 2], [3, 4]])).encode())
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(good) - 1))
        good[at] = data.draw(st.sampled_from(b'0123456789[]{},:"-.eE ntf\x00\xff'))
    check(serving(program).intake, bytes(good))


def check(intake: Intake, body: bytes) -> None:
    try:
        request = intake.request(oip.decode(body).given)
    except InvalidRequestError:
        return
    assert [tuple(t.shape) for t in request.inputs] == [(request.sizes["batch"], request.sizes["sequence"])] * 2
    assert request.sizes["batch"] <= 8
    assert request.sizes["sequence"] <= 8


def test_a_bucket_that_needs_more_memory_than_there_is_says_so(tmp_path: Path) -> None:
    program = load_program(prepare(export(Quadratic, tmp_path / "q.pt2"), tmp_path / "q"), dimension_names={})
    with pytest.raises(FatalError, match=r"running bucket batch=1048576: not enough memory") as refusal:
        warm(program, resolve_buckets(program, {"batch": [1, 2**20]}), lambda cost: None)
    assert (refusal.value.reason, refusal.value.condition) == ("OutOfMemory", "Ready")
    assert refusal.value.field == "spec.template.resources"


def test_a_program_that_cannot_be_read_is_a_refusal_not_a_crash(directory: Path, tmp_path: Path, pod: Pod) -> None:
    broken = tmp_path / "model"
    shutil.copytree(directory, broken)
    os.truncate(broken / "weights.bin", 10)
    with pytest.raises(FatalError) as refusal:
        load(pod, broken, lambda outcomes, record: None, lambda function, *args: function(*args))
    assert refusal.value.reason == "LoadFailed"
