"""What the inference port says in every phase of a pod, and what bodies and deadlines are bounded by."""

import json
import threading
from collections.abc import Iterator, Sequence

import pytest
import torch
from headway_api.names import CHECK_HEADER
from headway_api.podconfig import BucketCost, Phase, Termination
from headway_runtime.program import Program, load_program

from tests.unit.http_server import INFER, HttpServer, http_server, post
from tests.unit.pod_process import question, until
from tests.unit.small_models import Encoder, export, prepare


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Program:
    folder = tmp_path_factory.mktemp("front")
    prepared = prepare(export(Encoder, folder / "model.pt2"), folder / "model")
    return load_program(prepared, dimension_names={"sequence": "ids.1"})


@pytest.fixture
def server(program: Program) -> Iterator[HttpServer]:
    with http_server(program, batch=[1, 8], sequence=[8]) as started:
        yield started


def test_before_it_is_ready_inference_is_not_admitted_and_says_what_the_pod_does() -> None:
    with http_server(None) as server:
        for describe in ("this pod is loading", "this pod is warming: 1 of 3 buckets"):
            answer = server.client.post(server.infer, json=question([[1]]))
            assert (answer.status_code, answer.headers["x-headway-not-admitted"]) == (503, "1")
            assert answer.headers["connection"] == "close"
            assert answer.json()["error"] == describe
            assert server.client.get(f"{server.url}/v2/models/encoder").status_code == 503
            ready = server.client.get(f"{server.url}/v2/health/ready")
            assert (ready.status_code, ready.json()) == (503, {"ready": False, "error": describe})
            assert server.client.get(f"{server.url}/v2/health/live").status_code == 200
            server.on_loop(lambda: server.pod.warming(3))
            server.on_loop(lambda: server.pod.warmed(BucketCost(sizes={"batch": 1}, seconds=0.1)))
        server.pod.phase, server.pod.failure = Phase.FAILED, Termination(reason="OutOfMemory", message="too big")
        assert "OutOfMemory: too big" in server.client.get(f"{server.url}/v2/health/ready").text


def test_what_comes_behind_another_request_before_there_are_knobs_is_not_admitted_whatever_its_size() -> None:
    with http_server(None) as server, server.ask(b"GET /v2 HTTP/1.1\r\nhost: pod\r\n\r\n" + post()) as stream:
        assert stream.answer().status == 200
        answer = stream.answer()
        assert (answer.status, answer.headers["x-headway-not-admitted"]) == (503, "1")
        assert answer.json()["error"] == "this pod is loading"


def test_while_draining_every_answer_closes_its_connection_and_health_says_503(server: HttpServer) -> None:
    server.pod.phase, server.pod.closing = Phase.DRAINING, True
    for path in ("/v2/health/ready", "/v2", "/nowhere"):
        assert server.client.get(server.url + path).headers["connection"] == "close"
    answer = server.client.post(server.infer, json=question([[1]]))
    assert (answer.status_code, answer.headers["connection"]) == (200, "close")
    assert server.client.get(f"{server.url}/v2/health/ready").status_code == 503
    with server.ask(post() * 3) as stream:
        assert (stream.answer().status, stream.ended()) == (200, True), "what follows is not answered any more"


def test_to_a_routers_check_a_draining_pod_is_degraded_and_a_loading_or_ready_one_is_not(server: HttpServer) -> None:
    pod = server.pod

    def check() -> tuple[int, str | None]:
        answer = server.client.get(f"{server.url}/v2/health/ready", headers={CHECK_HEADER: "1"})
        return answer.status_code, answer.headers.get("x-envoy-degraded")

    assert check() == (200, None)
    pod.phase, pod.closing = Phase.DRAINING, True
    assert check() == (200, "true")
    assert server.client.get(f"{server.url}/v2/health/ready").status_code == 503, "the kubelet's"
    pod.refusing = True
    assert check() == (503, None)
    model, pod.model, pod.refusing = pod.model, None, False  # it was told to end while it loaded
    assert check() == (503, None)
    pod.model = model


def test_inference_with_another_method_says_which(server: HttpServer) -> None:
    for path in (INFER, "/v2/models/encoder/versions/0a1b2c3d/infer"):
        answer = server.client.get(server.url + path)
        assert (answer.status_code, answer.headers["allow"]) == (405, "POST")
        assert "use POST" in answer.json()["error"]


def test_a_body_that_does_not_arrive_is_not_waited_for_beyond_the_deadline(server: HttpServer) -> None:
    with server.ask(post(None, "x-headway-timeout: 50ms")[:-40]) as stream:
        answer = stream.answer()
        assert (answer.status, answer.headers["connection"]) == (504, "close")
        assert "before the body had arrived" in answer.json()["error"]
        assert stream.ended()
    server.quiet()


def test_a_deadline_that_passes_in_line_is_answered_once_though_the_body_was_waited_for(
    server: HttpServer, program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, leave = threading.Event(), threading.Event()

    def hang(inputs: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        begun.set()
        leave.wait(60)
        return Program.run(program, inputs)

    monkeypatch.setattr(program, "run", hang)
    first = server.ask(post())
    assert begun.wait(60)
    request = post(None, "x-headway-timeout: 1500ms")
    with server.ask(request[:-40]) as stream:
        until(lambda: server.front._held, "the first part of the body")
        stream.socket.sendall(request[-40:])
        answer = stream.answer()
        assert (answer.status, "no model has seen it" in answer.json()["error"]) == (504, True)
        assert "connection" not in answer.headers, "all of it has come"
        stream.socket.sendall(b"GET /v2/health/live HTTP/1.1\r\nhost: x\r\n\r\n")
        assert stream.answer().status == 200
    leave.set()
    with first:
        assert first.answer().status == 200
    server.quiet()


def test_a_pipelined_body_that_does_not_arrive_is_given_up_at_its_own_deadline(server: HttpServer) -> None:
    with server.ask(post() + post(None, "x-headway-timeout: 100ms")[:-40]) as stream:
        assert [stream.answer().status for _ in range(2)] == [200, 504]
    server.quiet()


def test_a_body_beyond_the_limit_is_refused_announced_or_not_and_the_limit_is_hot(server: HttpServer) -> None:
    body = json.dumps({**question([[1]]), "parameters": {"note": "x" * 5000}}).encode()
    chunked = f"POST {INFER} HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n".encode()
    for limit, status in (("4Ki", 413), ("64Ki", 200), ("4Ki", 413)):
        server.knobs(requestBytes=limit)
        for request in (post(body), chunked + b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)):
            with server.ask(request) as stream:
                answer = stream.answer()
                assert answer.status == status
                assert status == 200 or "4096" in answer.json()["error"]
                assert status == 200 or "spec.limits.requestBytes" in answer.json()["error"]
    server.quiet()


def test_what_all_unfinished_bodies_hold_is_bounded(server: HttpServer) -> None:
    server.knobs(requestBytes="1Ki", queue={"timeout": "2s"})
    head = f"POST {INFER} HTTP/1.1\r\nhost: x\r\ncontent-length: 1024\r\n\r\n".encode()
    held = [server.ask(head + b"x" * 1000) for _ in range(4)]
    until(lambda: server.front._held >= 4 * 1000, "what four of them hold")
    with server.ask(head + b"x" * 1000) as stream:
        answer = stream.answer()
        assert (answer.status, answer.headers["connection"], answer.headers["retry-after"]) == (429, "close", "1")
        assert answer.headers["x-headway-not-admitted"] == "1"
        assert "4096 bytes of requests are being read" in answer.json()["error"]
    assert [stream.answer().status for stream in held] == [504] * 4
    for stream in held:
        stream.socket.close()
    server.quiet()
    with server.ask(post(None, "x-headway-timeout: 50ms")[:-1]) as stream:
        assert stream.answer().status == 504, "what the others held is free again"


def test_a_full_line_refuses_before_it_reads_and_the_connection_goes_on(server: HttpServer) -> None:
    server.knobs(maxWait="60s", queue={"capacity": 1})
    unreadable = post(b"{")
    with server.ask(post()) as first:
        until(lambda: server.pod.model is not None and server.pod.model.waiting, "the line is full")
        with server.ask(unreadable) as second:
            refused = second.answer()
            assert (refused.status, refused.headers["x-headway-not-admitted"]) == (429, "1")
            assert int(refused.headers["retry-after"]) >= 1
            assert "connection" not in refused.headers
            assert "spec.batching.queue.capacity" in refused.json()["error"]
            server.knobs(queue={"capacity": 512})
            assert first.answer().status == 200
            second.socket.sendall(unreadable)
            assert second.answer().status == 400, "there is room, and it is read"
    text = server.pod.metrics.render().decode()
    assert 'headway_rejections_total{reason="queue_full"} 1.0' in text
    assert 'headway_requests_total{code="429"} 1.0' in text


def test_what_is_remembered_is_answered_though_the_line_is_full(server: HttpServer) -> None:
    knobs = {"queue": {"capacity": 1}, "cacheBytes": "1Mi"}
    server.knobs(**knobs)
    known = question([[1, 2]])
    assert server.client.post(server.infer, json=known).status_code == 200
    server.knobs(maxWait="60s", **knobs)
    with server.ask(post(question([[3]]))):
        until(lambda: server.pod.model is not None and server.pod.model.waiting, "the line is full")
        assert server.client.post(server.infer, json=question([[4]])).status_code == 429
        answer = server.client.post(server.infer, json=known)
        assert (answer.status_code, answer.headers["x-headway-cache"]) == (200, "hit")


@pytest.mark.parametrize("value", ["low", "Normal", "HIGH"])
def test_a_priority_is_taken_from_its_header(server: HttpServer, value: str) -> None:
    answer = server.client.post(server.infer, json=question([[1]]), headers={"x-headway-priority": value})
    assert answer.status_code == 200
    counted = {"priority": value.lower()}
    assert server.pod.metrics.registry.get_sample_value("headway_queue_seconds_count", counted) == 1


@pytest.mark.parametrize(
    ("header", "value"),
    [("x-headway-priority", "urgent"), ("x-headway-timeout", "soon"), ("inference-header-content-length", "-1")],
)
def test_a_header_that_says_nonsense_is_named(server: HttpServer, header: str, value: str) -> None:
    answer = server.client.post(server.infer, json=question([[1]]), headers={header: value})
    assert (answer.status_code, header in answer.json()["error"]) == (400, True)
    assert value in answer.json()["error"]


def test_trace_context_is_passed_over(server: HttpServer) -> None:
    headers = {"traceparent": "garbage", "tracestate": "x" * 500}
    assert server.client.post(server.infer, json=question([[1]]), headers=headers).status_code == 200
