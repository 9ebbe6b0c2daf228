"""The serving pod as users and the operator meet it: a real process, a real exported program, real sockets."""

import asyncio
import contextlib
import json
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import torch
from headway_api.podconfig import Termination
from headway_runtime.termination import TerminationLog

from tests.ports import free_port
from tests.unit.pod_process import MODEL, REVISION, PodProcess, command, pod, question, tensor, until
from tests.unit.small_models import WORDS, Encoder, Summed, export, prepare

BUCKETS = {"batch": [1, 4, 8], "sequence": [4, 16]}
BATCHING = {"shapeBuckets": BUCKETS, "dimensions": {"sequence": "ids.1"}}
HEAD_WITHOUT_END = 64 << 20  # bytes: more than the kernel keeps for a reader that does not come


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("encoder")
    return prepare(export(Encoder, folder / "model.pt2"), folder / "model")


@pytest.fixture(scope="module")
def running(prepared: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PodProcess]:
    with pod(tmp_path_factory.mktemp("pod"), prepared, batching=BATCHING) as started:
        started.wait_for_phase()
        yield started


@pytest.fixture
def server(running: PodProcess) -> PodProcess:
    running.apply_knobs({"maxWait": "0ms"})
    return running


def eager(ids: list[list[int]], mask: list[list[int]] | None = None) -> dict[str, Any]:
    with torch.no_grad():
        given = torch.tensor(ids)
        answers = Encoder().eval()(given, torch.ones_like(given) if mask is None else torch.tensor(mask))
    return {name: value.numpy() for name, value in answers.items()}


def outputs(answer: httpx.Response) -> dict[str, Any]:
    assert answer.status_code == 200, answer.text
    found = answer.json()["outputs"]
    return {o["name"]: np.array(o["data"], dtype=np.float32).reshape(o["shape"]) for o in found}


def test_an_answer_is_what_the_model_computes_and_names_who_answered(server: PodProcess) -> None:
    ids, mask = [[1, 2, 3], [4, 5, 6]], [[1, 1, 0], [1, 1, 1]]
    answer = server.client.post(server.infer, json={"id": "q-1", "parameters": {"x": 1}, **question(ids, mask)})
    for name, expected in eager(ids, mask).items():
        np.testing.assert_allclose(outputs(answer)[name], expected, rtol=1e-5, atol=1e-6)
    document = answer.json()
    assert (document["model_name"], document["model_version"], document["id"]) == (MODEL, REVISION, "q-1")
    assert answer.headers["x-headway-revision"] == REVISION
    assert answer.headers["x-headway-batch-size"] == "2"
    assert float(answer.headers["x-headway-queue-ms"]) >= 0


def test_data_may_be_flat_and_only_asked_for_outputs_are_answered(server: PodProcess) -> None:
    flat = {"inputs": [tensor(n, "INT64", [1, 3], [1, 1, 1]) for n in ("ids", "mask")], "outputs": [{"name": "pooled"}]}
    answer = server.client.post(f"{server.url}/v2/models/{MODEL}/versions/{REVISION}/infer", json=flat)
    assert list(outputs(answer)) == ["pooled"]


def test_metadata_shows_names_datatypes_and_shapes_with_minus_one_where_symbolic(server: PodProcess) -> None:
    metadata = server.client.get(f"{server.url}/v2/models/{MODEL}").json()
    assert metadata["inputs"] == [{"name": n, "datatype": "INT64", "shape": [-1, -1]} for n in ("ids", "mask")]
    assert metadata["outputs"] == [
        {"name": "pooled", "datatype": "FP32", "shape": [-1, 8]},
        {"name": "tokens", "datatype": "FP32", "shape": [-1, -1, 8]},
    ]
    assert (metadata["name"], metadata["versions"]) == (MODEL, [REVISION])
    assert server.client.get(f"{server.url}/v2").json()["name"] == "headway"


@pytest.mark.parametrize("path", ["/v2/health/ready", f"/v2/models/{MODEL}/ready", "/v2/health/live"])
def test_health_answers_name_the_revision(server: PodProcess, path: str) -> None:
    answer = server.client.get(server.url + path)
    assert (answer.status_code, answer.headers["x-headway-revision"]) == (200, REVISION)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("POST", "/v2/models/other/infer", 404),
        ("POST", f"/v2/models/{MODEL}/versions/ffffffff/infer", 404),
        ("GET", "/v2/models/other", 404),
        ("GET", f"/v2/models/{MODEL}/versions/ffffffff", 404),
        ("GET", "/nowhere", 404),
        ("GET", f"/v2/models/{MODEL}/infer", 405),
    ],
)
def test_other_models_versions_paths_and_methods_are_answered_in_the_protocols_error_form(
    server: PodProcess, method: str, path: str, status: int
) -> None:
    answer = server.client.request(method, server.url + path)
    assert answer.status_code == status
    assert isinstance(answer.json()["error"], str)


@pytest.mark.parametrize(("path", "says"), [("/metrics", True), ("/report", True), ("/nowhere", False)])
def test_what_is_on_the_admin_port_is_said_to_be_there(server: PodProcess, path: str, says: bool) -> None:
    answer = server.client.get(server.url + path)
    assert answer.status_code == 404
    assert ("on the admin port" in answer.json()["error"]) is says


GOOD = question([[1, 2, 3]])["inputs"]


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"{", "not JSON"),
        (b"[]", "JSON object"),
        (b"{}", "'inputs' must be an array"),
        ({"inputs": [1]}, "object with a 'name'"),
        ({"inputs": GOOD[:1]}, "input 'mask' is missing"),
        ({"inputs": [*GOOD, {**GOOD[0], "name": "extra"}]}, "'extra' is not one of this model's: 'ids', 'mask'"),
        ({"inputs": [*GOOD, GOOD[0]]}, "'ids' is given twice"),
        ({"inputs": [{**GOOD[0], "datatype": "FP32"}, GOOD[1]]}, "'datatype' must be INT64"),
        ({"inputs": [{**GOOD[0], "shape": [1, -3]}, GOOD[1]]}, "'shape' must be an array of whole numbers"),
        ({"inputs": [{**GOOD[0], "shape": [1, 4]}, GOOD[1]]}, "needs 4"),
        ({"inputs": [{**GOOD[0], "data": [[1, 2], [3]]}, GOOD[1]]}, "not a regular array"),
        ({"inputs": [{**GOOD[0], "data": [[1, 2, None]]}, GOOD[1]]}, "whole numbers"),
        ({"inputs": [{**GOOD[0], "data": [[1, 2, 0.5]]}, GOOD[1]]}, "whole numbers"),
        ({"inputs": [{**GOOD[0], "data": "abc"}, GOOD[1]]}, "'data' must be an array"),
        (question([[1] * 200]), "sequence) is 200; allowed is 1 to 128"),
        (question([[1] * 17]), "sequence is 17; at most 16 is admitted"),
        ({**question([[1]]), "outputs": [{"name": "nope"}]}, "output 'nope' is not one of this model's"),
        ({**question([[1]]), "id": 3}, "'id' must be a string"),
    ],
)
def test_a_bad_request_is_answered_400_with_what_is_wrong_and_where(server: PodProcess, body: Any, says: str) -> None:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    answer = server.client.post(server.infer, content=content)
    assert (answer.status_code, says in answer.json()["error"]) == (400, True), answer.text


def test_a_request_without_rows_is_answered_without_running(server: PodProcess) -> None:
    empty = {"inputs": [tensor(n, "INT64", [0, 3], []) for n in ("ids", "mask")]}
    answer = server.client.post(server.infer, json=empty)
    assert {name: value.shape for name, value in outputs(answer).items()} == {"pooled": (0, 8), "tokens": (0, 3, 8)}


async def ask(url: str, questions: list[dict[str, Any]], timeout: httpx.Timeout | float = 30) -> list[httpx.Response]:
    """Send all at once, each on a connection of its own."""
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    async with httpx.AsyncClient(limits=limits, timeout=timeout) as client:
        return list(await asyncio.gather(*(client.post(url, json=q) for q in questions)))


async def test_batched_answers_equal_single_ones_whatever_shares_the_run(server: PodProcess) -> None:
    server.apply_knobs({"maxWait": "20ms", "maxBatch": 8})
    random = np.random.default_rng(3)
    asked = [
        random.integers(0, WORDS, size=(int(random.integers(1, 4)), int(random.choice([3, 4, 7])))).tolist()
        for _ in range(60)
    ]
    answers = await ask(server.infer, [question(ids) for ids in asked])
    for ids, answer in zip(asked, answers, strict=True):
        for name, expected in eager(ids).items():
            np.testing.assert_allclose(outputs(answer)[name], expected, rtol=1e-4, atol=1e-5)
    sizes = [int(a.headers["x-headway-batch-size"]) for a in answers]
    assert max(sizes) > 3, "some requests shared a run"
    assert max(sizes) <= 8


async def test_a_request_that_makes_the_program_raise_fails_alone(server: PodProcess) -> None:
    server.apply_knobs(
        {"maxWait": "10s", "maxBatch": 4}
    )  # so that all four share a run, which begins when they are there
    before = server.report()["failures"]
    asked = [[[1, 2]], [[3, 4]], [[WORDS + 5, 1]], [[5, 6]]]
    answers = await ask(server.infer, [question(ids) for ids in asked])
    assert [a.status_code for a in answers] == [200, 200, 400, 200]
    assert answers[2].json()["error"] == f"input 'ids' holds {WORDS + 5}; the model knows 0 to {WORDS - 1}"
    assert server.report()["failures"] == before, "it is not the model that failed"
    np.testing.assert_allclose(outputs(answers[3])["pooled"], eager(asked[3])["pooled"], rtol=1e-4, atol=1e-5)
    assert answers[0].headers["x-headway-batch-size"] in "12", "the shared run failed and was repeated in halves"


async def test_a_full_queue_answers_429_with_a_time_to_come_back(server: PodProcess) -> None:
    server.apply_knobs({"maxWait": "10s", "maxBatch": 8, "queue": {"capacity": 2, "timeout": "30s"}})
    asked = [asyncio.create_task(ask(server.infer, [question([[1, 2]])])) for _ in range(5)]
    waiting = set(asked)
    while len(waiting) > 2:
        _, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    await asyncio.to_thread(server.apply_knobs, {"maxWait": "0ms"})  # what waits need not wait longer
    answers = [answer for answers in await asyncio.gather(*asked) for answer in answers]
    assert sorted(a.status_code for a in answers) == [200, 200, 429, 429, 429]
    refused = next(a for a in answers if a.status_code == 429)
    assert int(refused.headers["retry-after"]) >= 1
    assert refused.headers["x-headway-not-admitted"] == "1"
    assert "spec.batching.queue.capacity" in refused.json()["error"]


def test_a_request_that_is_larger_than_the_queue_ever_admits_is_answered_413(server: PodProcess) -> None:
    server.apply_knobs({"queue": {"capacity": 512, "bytes": "100"}})
    answer = server.client.post(server.infer, json=question([[1] * 16]))
    assert (answer.status_code, "spec.batching.queue.bytes" in answer.text) == (413, True)


def test_a_request_is_not_kept_for_company_until_its_deadline_and_never_runs_after_it(server: PodProcess) -> None:
    server.apply_knobs({"maxWait": "30s"})  # longer than the client waits
    before = metric(server, "headway_run_seconds_count")
    answer = server.client.post(server.infer, json=question([[1, 2]]), headers={"x-headway-timeout": "4s"})
    assert answer.status_code == 200
    assert metric(server, "headway_run_seconds_count") == before + 1
    answer = server.client.post(server.infer, json=question([[1, 2]]), headers={"x-headway-timeout": "1us"})
    assert (answer.status_code, "the deadline passed" in answer.text) == (504, True)
    assert metric(server, "headway_run_seconds_count") == before + 1
    bad = server.client.post(server.infer, json=question([[1, 2]]), headers={"x-headway-timeout": "soon"})
    assert (bad.status_code, "x-headway-timeout" in bad.text) == (400, True)


def metric(server: PodProcess, name: str) -> float:
    lines = server.admin("/metrics").text.splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name))


async def test_a_client_that_leaves_costs_no_run(server: PodProcess) -> None:
    server.apply_knobs({"maxWait": "20s", "queue": {"timeout": "30s"}})  # longer than it takes to see that it has left
    before = metric(server, "headway_run_seconds_count")
    gone = metric(server, 'headway_rejections_total{reason="client_gone"}')
    with pytest.raises(httpx.ReadTimeout):
        await ask(server.infer, [question([[1, 2]])], timeout=httpx.Timeout(30, read=0.1))
    await asyncio.to_thread(
        until, lambda: metric(server, 'headway_rejections_total{reason="client_gone"}') == gone + 1, "that it is gone"
    )
    assert metric(server, "headway_queue_rows") == 0
    assert metric(server, "headway_run_seconds_count") == before


async def test_knobs_change_under_load_without_a_failed_request(server: PodProcess) -> None:
    done = asyncio.Event()
    statuses: list[int] = []

    async def client(number: int) -> None:
        async with httpx.AsyncClient(timeout=30) as http:
            while not done.is_set():
                statuses.append((await http.post(server.infer, json=question([[number, 2, 3]]))).status_code)

    clients = [asyncio.create_task(client(number)) for number in range(6)]
    for step in range(6):
        knobs = {"maxWait": f"{step}ms", "maxBatch": 1 + step}
        applied = await asyncio.to_thread(server.apply_knobs, knobs)
        assert applied["effective"]["maxBatch"] == knobs["maxBatch"]
    done.set()
    await asyncio.gather(*clients)
    assert len(statuses) > 6
    assert set(statuses) == {200}


def test_a_knob_that_cannot_be_honoured_is_clamped_and_said(server: PodProcess) -> None:
    knobs = server.apply_knobs({"maxBatch": 100, "maxWait": "2m"})
    assert knobs["effective"]["maxBatch"] == 8
    assert {c["field"]: (c["asked"], c["effective"]) for c in knobs["clamped"]} == {
        "spec.batching.maxBatch": ("100", "8"),
        "spec.batching.maxWait": ("2m", "30s"),
    }


@pytest.mark.parametrize("text", ["{", '{"maxBatch": 0}', '{"maxWait": "2 parsecs"}', '{"queue": {"bytes": "many"}}'])
def test_a_bad_knobs_file_changes_nothing_and_is_reported(server: PodProcess, text: str) -> None:
    before = server.apply_knobs({"maxBatch": 3})
    server.set_knobs(text)
    knobs = until(lambda: (now := server.report()["knobs"]).get("error") and now, "that it is bad")
    assert (knobs["hash"], knobs["effective"]) == (before["hash"], before["effective"])


def test_the_report_says_what_was_prepared_warmed_and_applied(server: PodProcess) -> None:
    report = server.report()
    assert (report["model"], report["revision"], report["phase"]) == (MODEL, REVISION, "Ready")
    assert report["artifactDigest"].startswith("sha256:")
    assert report["torch"] == torch.__version__.partition("+")[0]
    assert (report["buckets"]["warm"], report["buckets"]["total"]) == (6, 6)
    assert {tuple(cost["sizes"].items()) for cost in report["buckets"]["costs"]} == {
        (("batch", batch), ("sequence", sequence)) for batch in BUCKETS["batch"] for sequence in BUCKETS["sequence"]
    }
    assert len(report["signature"]) == 16


def test_the_admin_port_is_read_only_and_knows_health_and_metrics(server: PodProcess) -> None:
    assert server.admin("/healthz").status_code == 200
    assert metric(server, "headway_requests_total") > 0
    assert 'headway_bucket_seconds{bucket="batch=8,sequence=16"}' in server.admin("/metrics").text
    assert server.client.post(f"http://127.0.0.1:{server.admin_port}/report").status_code == 405
    assert server.admin("/other").status_code == 404


def test_docs_describe_the_hot_routes_too(server: PodProcess) -> None:
    assert server.client.get(f"{server.url}/docs").status_code == 200
    assert f"/v2/models/{MODEL}/infer" in server.client.get(f"{server.url}/openapi.json").json()["paths"]


def test_forms_of_a_body_that_are_not_read_are_said_so(server: PodProcess) -> None:
    for coding in ("zstd", "br", "gzip, deflate"):
        answer = server.client.post(server.infer, content=b"x", headers={"content-encoding": coding})
        assert (answer.status_code, "not read here" in answer.text) == (415, True)


def test_malformed_requests_are_answered_400_and_do_not_fill_the_log(server: PodProcess) -> None:
    before = (server.folder / "log").read_bytes()
    for garbage in (b"garbage\r\n\r\n", b"GET /v2 HTTP/1.1\r\nContent-Length: x\r\n\r\n"):
        with socket.create_connection(("127.0.0.1", server.port), timeout=60) as connection:
            connection.sendall(garbage)
            assert connection.recv(1000).startswith(b"HTTP/1.1 400 ")
    assert (server.folder / "log").read_bytes() == before


def test_a_head_without_end_is_refused_and_a_long_body_is_no_head(server: PodProcess) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
        connection.sendall(b"GET /v2 HTTP/1.1\r\nHost: x\r\n")
        sent = 0
        with contextlib.suppress(ConnectionError):
            while sent < HEAD_WITHOUT_END:
                sent += connection.send(b"a: b\r\n" * 1000)
        assert sent < HEAD_WITHOUT_END
    long = {**question([[1, 2]]), "parameters": {"note": "x" * 500_000}}
    for _ in range(2):  # on one connection
        assert server.client.post(server.infer, json=long).status_code == 200
    body = json.dumps(long).encode()
    request = b"POST /v2/models/%s/infer HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % (MODEL.encode(), len(body)) + body
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
        connection.sendall(request + request[:10])  # the second head begins in the part that ends the first body
        time.sleep(0.2)
        connection.sendall(request[10:])
        received = b""
        while received.count(b"HTTP/1.1 200 OK") < 2 and (part := connection.recv(65536)):
            received += part
        assert received.count(b"HTTP/1.1 200 OK") == 2


def test_pipelined_requests_are_answered_in_order(server: PodProcess) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as client:
        for number in range(3):
            body = json.dumps({"id": f"p{number}", **question([[number, 1]])}).encode()
            head = f"POST /v2/models/{MODEL}/infer HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n"
            client.sendall(head.encode() + body)
        received = b""
        while received.count(b'"id":"p') < 3:
            received += client.recv(65536)
    assert [received.index(f'"id":"p{number}"'.encode()) for number in range(3)] == sorted(
        received.index(f'"id":"p{number}"'.encode()) for number in range(3)
    )


async def test_a_drain_under_load_loses_no_request(prepared: Path, tmp_path: Path) -> None:
    with pod(tmp_path, prepared, batching=BATCHING, drainTimeout="20s") as server:
        server.wait_for_phase()
        outcomes: list[str] = []
        enough = asyncio.Event()
        clients = [asyncio.create_task(persistent_client(server, outcomes, enough)) for _ in range(6)]
        await asyncio.to_thread(until, lambda: len(outcomes) > len(clients), "answers")
        server.process.terminate()
        found = await asyncio.to_thread(until, lambda: draining(server), "that it says so")
        assert found.headers["connection"] == "close"
        before = len(outcomes)
        await asyncio.to_thread(until, lambda: len(outcomes) > before, "an answer while it drains")
        enough.set()
        await asyncio.gather(*clients)
        assert await asyncio.to_thread(server.process.wait, 20) == 0
    assert set(outcomes) == {"200"}, {o: outcomes.count(o) for o in set(outcomes)}


async def test_a_drain_ends_in_time_under_load_that_never_ceases_and_then_refuses_cleanly(
    prepared: Path, tmp_path: Path
) -> None:
    with pod(tmp_path, prepared, batching=BATCHING, drainTimeout="4s") as server:
        server.wait_for_phase()
        outcomes: list[str] = []
        never = asyncio.Event()
        clients = [asyncio.create_task(persistent_client(server, outcomes, never)) for _ in range(3)]
        await asyncio.to_thread(until, lambda: outcomes, "an answer")
        server.process.terminate()
        began = asyncio.get_running_loop().time()
        await asyncio.gather(*clients)
        assert await asyncio.to_thread(server.process.wait, 20) == 0
        assert asyncio.get_running_loop().time() - began < 20
    assert set(outcomes) == {"200", "refused before admission"}, {o: outcomes.count(o) for o in set(outcomes)}


def draining(server: PodProcess) -> httpx.Response | None:
    """What it says to the kubelet, once that is no."""
    found = server.client.get(f"{server.url}/v2/health/ready")
    return found if found.status_code == 503 else None


async def persistent_client(server: PodProcess, outcomes: list[str], enough: asyncio.Event) -> None:
    """Ask until it is enough or the pod does not listen any more, as clients do that nobody turns elsewhere."""
    async with httpx.AsyncClient(timeout=30) as http:
        while not enough.is_set():
            try:
                answer = await http.post(server.infer, json=question([[1, 2, 3]]))
            except httpx.ConnectError:
                return
            clean = answer.status_code == 503 and answer.headers.get("x-headway-not-admitted") == "1"
            outcomes.append("refused before admission" if clean else str(answer.status_code))
            if clean:
                await asyncio.sleep(0.05)


def test_a_program_that_cannot_be_batched_runs_one_request_at_a_time(tmp_path: Path) -> None:
    model = prepare(export(Summed, tmp_path / "model.pt2"), tmp_path / "model")
    with pod(tmp_path, model) as server:
        server.wait_for_phase()
        knobs = server.apply_knobs({"maxBatch": 4})
        assert knobs["effective"]["maxBatch"] == 1
        assert "one request at a time" in knobs["clamped"][0]["message"]
        body = {"inputs": [tensor("x", "FP32", [2, 3], [1, 2, 3, 4, 5, 6])]}
        assert next(iter(outputs(server.client.post(server.infer, json=body)).values())).tolist() == [5, 7, 9]


def test_what_cannot_be_honoured_ends_the_pod_with_a_termination_message_that_names_the_field(
    prepared: Path, tmp_path: Path
) -> None:
    with pod(tmp_path, prepared, batching={"shapeBuckets": {"batch": [1, 100]}}) as server:
        assert server.process.wait(60) == 1
    message = json.loads((tmp_path / "termination-log").read_text())
    assert (message["condition"], message["reason"]) == ("Accepted", "BucketOutOfRange")
    assert message["field"] == "spec.batching.shapeBuckets.batch"
    assert "100 is outside the program's range, 1 to 64" in message["message"]


@pytest.mark.parametrize("letter", ["x", "é", "\U0001f600", '"', "\n"])
def test_a_termination_message_is_whole_json_in_what_the_kubelet_keeps(letter: str, tmp_path: Path) -> None:
    file = tmp_path / "termination-log"
    TerminationLog(file).write(Termination(reason="LoadFailed", message=letter * 9000, condition="Ready"))
    assert len(file.read_bytes()) <= 4096
    message = json.loads(file.read_text())["message"]
    assert message == letter * len(message)
    assert len(json.dumps(message)) > 2500


def test_sigterm_is_heard_before_torch_is_imported(prepared: Path, tmp_path: Path) -> None:
    with pod(tmp_path, prepared) as early:
        status = Path(f"/proc/{early.process.pid}/status")

        def hears() -> bool:
            """Looked at while it stands still, or it would have gone on when the signal comes."""
            early.process.send_signal(signal.SIGSTOP)
            caught = next(line for line in status.read_text().splitlines() if line.startswith("SigCgt"))
            if int(caught.split()[1], 16) & (1 << (signal.SIGTERM - 1)):
                return True
            early.process.send_signal(signal.SIGCONT)
            return False

        until(hears, "a handler")
        early.process.send_signal(signal.SIGTERM)
        early.process.send_signal(signal.SIGCONT)
        assert early.process.wait(60) == 0
        events = [json.loads(line)["event"] for line in (tmp_path / "log").read_text().splitlines()]
        assert events[-1] == "ended_before_loading"
        assert "starting" not in events  # which is logged once torch is there


def test_a_missing_program_a_bad_configuration_and_a_taken_port_are_said(prepared: Path, tmp_path: Path) -> None:
    def reason(model: Path, config: dict[str, Any], port: int) -> str:
        arguments = command(tmp_path, model, config, port, free_port())
        assert subprocess.run(arguments, stderr=subprocess.DEVNULL, timeout=60).returncode == 1
        return str(json.loads((tmp_path / "termination-log").read_text())["reason"])

    assert reason(tmp_path / "nothing", {}, free_port()) == "NotPrepared"
    assert reason(prepared, {"device": {"kind": "abacus"}}, free_port()) == "InvalidConfig"
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        assert reason(prepared, {}, taken.getsockname()[1]) == "PortTaken"
