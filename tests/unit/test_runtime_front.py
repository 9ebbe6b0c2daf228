"""The HTTP front and the admin port without a process: phases that pass quickly, and bodies from anywhere."""

import asyncio
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
from headway_api.names import CHECK_HEADER, TIMEOUT_HEADER
from headway_api.podconfig import BucketCost, ColdConfig, Phase, Termination
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
from headway_runtime.protocols.documents import documents
from headway_runtime.protocols.front import Front
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


async def test_before_it_is_ready_inference_is_not_admitted_and_says_what_the_pod_does(pod: Pod) -> None:
    async with client(Front(pod, documents(pod))) as http:
        for describe in ("this pod is loading", "this pod is warming: 1 of 3 buckets"):
            answer = await http.post("/v2/models/encoder/infer", json=question([[1]]))
            assert (answer.status_code, answer.headers["x-headway-not-admitted"]) == (503, "1")
            assert answer.json()["error"] == describe
            assert (await http.get("/v2/models/encoder")).status_code == 503
            ready = await http.get("/v2/health/ready")
            assert (ready.status_code, ready.json()) == (503, {"ready": False, "error": describe})
            assert (await http.get("/v2/health/live")).status_code == 200
            pod.warming(3)
            pod.warmed(BucketCost(sizes={"batch": 1}, seconds=0.1))
        pod.phase, pod.failure = Phase.FAILED, Termination(reason="OutOfMemory", message="too big")
        assert "OutOfMemory: too big" in (await http.get("/v2/health/ready")).text


async def test_while_draining_every_answer_closes_its_connection_and_health_says_503(pod: Pod) -> None:
    pod.phase, pod.closing = Phase.DRAINING, True
    async with client(Front(pod, documents(pod))) as http:
        for path in ("/v2/health/ready", "/v2", "/nowhere"):
            assert (await http.get(path)).headers["connection"] == "close"
        assert (await http.get("/v2/health/ready")).status_code == 503


async def test_to_a_routers_check_a_draining_pod_is_degraded_and_a_loading_or_ready_one_is_not(
    pod: Pod, program: Program
) -> None:
    async with client(Front(pod, documents(pod))) as http:

        async def check() -> tuple[int, str | None]:
            answer = await http.get("/v2/health/ready", headers={CHECK_HEADER: "1"})
            return answer.status_code, answer.headers.get("x-envoy-degraded")

        assert await check() == (503, None)
        pod.model, pod.phase = serving(program), Phase.READY
        assert await check() == (200, None)
        pod.phase, pod.closing = Phase.DRAINING, True
        assert await check() == (200, "true")
        assert (await http.get("/v2/health/ready")).status_code == 503, "the kubelet's"
        pod.refusing = True
        assert await check() == (503, None)
        pod.model, pod.refusing = None, False  # it was told to end while it loaded
        assert await check() == (503, None)


async def test_inference_with_another_method_says_which(pod: Pod) -> None:
    async with client(Front(pod, documents(pod))) as http:
        for path in ("/v2/models/encoder/infer", "/v2/models/encoder/versions/0a1b2c3d/infer"):
            answer = await http.get(path)
            assert (answer.status_code, answer.headers["allow"]) == (405, "POST")
            assert "use POST" in answer.json()["error"]


class Upload:
    """A request whose body comes in parts: `receive` and `send` of ASGI. After the parts it hangs."""

    def __init__(self, *parts: bytes) -> None:
        self.parts = list(parts)
        self.sent: list[Any] = []

    async def receive(self) -> dict[str, Any]:
        if not self.parts:
            await asyncio.Event().wait()
        return {"type": "http.request", "body": self.parts.pop(0), "more_body": True}

    async def send(self, message: Any) -> None:
        self.sent.append(message)

    async def run(self, front: Front, timeout: str) -> tuple[int, dict[bytes, bytes], str]:
        headers = [(TIMEOUT_HEADER.encode(), timeout.encode())]
        scope = {"type": "http", "method": "POST", "path": "/v2/models/encoder/infer", "headers": headers}
        await front(scope, self.receive, self.send)
        return self.sent[0]["status"], dict(self.sent[0]["headers"]), json.loads(self.sent[1]["body"])["error"]


@pytest.fixture
def ready(pod: Pod, program: Program) -> Pod:
    pod.install(serving(program))
    return pod


async def test_a_body_that_does_not_arrive_is_not_waited_for_beyond_the_deadline(ready: Pod) -> None:
    async with asyncio.timeout(10):
        status, headers, error = await Upload(b"{", b'"in').run(Front(ready, documents(ready)), "50ms")
    assert (status, headers[b"connection"]) == (504, b"close")
    assert "before the body had arrived (4 bytes in 0.05 s)" in error
    assert ready.in_flight == 0


async def test_what_all_unfinished_bodies_hold_is_bounded(ready: Pod, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headway_runtime.protocols.front.MAX_BODIES", 250)
    front = Front(ready, documents(ready))
    held = [asyncio.create_task(Upload(b"x" * 100).run(front, "1s")) for _ in range(2)]
    await asyncio.sleep(0)
    status, headers, error = await Upload(b"x" * 100).run(front, "1s")
    assert (status, headers[b"connection"], headers[b"retry-after"]) == (429, b"close", b"1")
    assert headers[b"x-headway-not-admitted"] == b"1"
    assert "250 bytes of requests are being read" in error
    assert [status for status, _, _ in await asyncio.gather(*held)] == [504, 504]
    status, _, error = await Upload(b"x" * 200).run(front, "10ms")
    assert status == 504, "what the others held is free again"


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
        request = intake.request(oip.decode(body)[1])
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
