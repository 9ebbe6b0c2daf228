"""One connection of the inference port: keep-alive, pipelining, halves, expectations, other versions and methods."""

import json
from collections.abc import Iterator

import pytest
from headway_runtime.program import Program, load_program
from headway_runtime.protocols.http.connection import Connection

from tests.unit.http_server import INFER, HttpServer, Stream, http_server, post
from tests.unit.pod_process import question, until
from tests.unit.small_models import Encoder, export, prepare


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Program:
    folder = tmp_path_factory.mktemp("http")
    prepared = prepare(export(Encoder, folder / "model.pt2"), folder / "model")
    return load_program(prepared, dimension_names={"sequence": "ids.1"})


@pytest.fixture(scope="module")
def running(program: Program) -> Iterator[HttpServer]:
    with http_server(program, batch=[1, 8], sequence=[8]) as started:
        yield started


@pytest.fixture
def server(running: HttpServer) -> Iterator[HttpServer]:
    running.knobs()
    yield running
    running.quiet()


def test_a_connection_serves_many_requests_hot_and_not_hot_in_turn(server: HttpServer) -> None:
    with server.ask(b"") as stream:
        for number in range(5):
            stream.socket.sendall(post({"id": f"n{number}", **question([[number]])}))
            answer = stream.answer()
            assert (answer.status, answer.json()["id"]) == (200, f"n{number}")
            stream.socket.sendall(b"GET /v2 HTTP/1.1\r\nhost: x\r\n\r\n")
            assert stream.answer().status == 200
            stream.socket.sendall(b"GET /v2/health/ready HTTP/1.1\r\nhost: x\r\n\r\n")
            assert stream.answer().json() == {"ready": True}


def test_pipelined_requests_of_every_kind_are_answered_in_order(server: HttpServer) -> None:
    wanted: list[bytes] = []
    sent: list[bytes] = []
    for number in range(30):
        kind = number % 5
        if kind == 0:
            sent.append(b"GET /v2 HTTP/1.1\r\nhost: x\r\n\r\n")
            wanted.append(b'"headway"')
        elif kind == 1:
            sent.append(post(b"{"))
            wanted.append(b"not JSON")
        elif kind == 2:
            sent.append(b"GET /v2/health/live HTTP/1.1\r\nhost: x\r\n\r\n")
            wanted.append(b'"live"')
        elif kind == 3:
            sent.append(post(path="/v2/models/other/infer"))
            wanted.append(b"not served here")
        else:
            sent.append(post({"id": f"p{number}", **question([[number]])}))
            wanted.append(b'"id":"p%d"' % number)
    with server.ask(b"".join(sent)) as stream:
        for text in wanted:
            answer = stream.answer()
            assert text in answer.body, (text, answer)


def test_a_thousand_pipelined_requests_need_no_deep_stack(server: HttpServer) -> None:
    with server.ask(post(b"{}") * 3000) as stream:
        assert {stream.answer().status for _ in range(3000)} == {400}
    with server.ask(b"GET /v2/health/live HTTP/1.1\r\nhost: x\r\n\r\n" * 3000) as stream:
        assert {stream.answer().status for _ in range(3000)} == {200}


def test_a_request_that_comes_byte_by_byte_is_answered(server: HttpServer) -> None:
    with server.ask(b"") as stream:
        for byte in post():
            stream.socket.sendall(bytes([byte]))
        assert stream.answer().status == 200


def test_a_chunked_body_is_read_and_its_trailers_are_not(server: HttpServer) -> None:
    body = json.dumps(question([[1, 2, 3]])).encode()
    chunks = b"".join(b"%x;extension=1\r\n%b\r\n" % (len(c), c) for c in (body[:7], body[7:50], body[50:]))
    head = f"POST {INFER} HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n".encode()
    with server.ask(head + chunks + b"0\r\nx-headway-timeout: nonsense\r\n\r\n" + post()) as stream:
        assert [stream.answer().status for _ in range(2)] == [200, 200]


def test_trailers_without_end_are_refused(server: HttpServer) -> None:
    head = f"POST {INFER} HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n0\r\n".encode()
    with server.ask(head + b"a: b\r\n" * 40_000) as stream:
        assert (stream.answer().status, stream.ended()) == (400, True)


def test_a_half_closed_client_gets_its_answers_and_then_the_end(server: HttpServer) -> None:
    server.knobs(maxWait="200ms")
    with server.ask(post({"id": "h", **question([[1]])}), half_close=True) as stream:
        answer = stream.answer()
        assert (answer.status, answer.json()["id"]) == (200, "h")
        assert stream.ended()
    with server.ask(post() * 3, half_close=True) as stream:
        assert [stream.answer().status for _ in range(3)] == [200] * 3
        assert stream.ended()
    with server.ask(post(version="1.0"), half_close=True) as stream:
        assert stream.answer().status == 200
        assert stream.ended()
    with server.ask(b"GET /v2 HTTP/1.1\r\nhost: x\r\n\r\n", half_close=True) as stream:
        assert stream.answer().status == 200


def test_a_client_that_is_gone_costs_no_run_though_it_looks_half_closed(server: HttpServer) -> None:
    server.knobs(maxWait="20s", queue={"timeout": "30s"})  # longer than it takes to see that nobody is there
    before = len(server.runs)
    for _ in range(3):
        server.ask(post()).socket.close()
    counted = {"reason": "client_gone"}
    until(lambda: server.pod.metrics.registry.get_sample_value("headway_rejections_total", counted) == 3, "the count")
    server.quiet()
    assert len(server.runs) == before


def test_who_sees_that_a_client_is_half_closed_can_ask_whether_it_has_hung_up(
    server: HttpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    known: list[bool] = []

    def watched(connection: Connection, name: str, value: object) -> None:
        object.__setattr__(connection, name, value)
        if name == "half_closed" and value:
            known.append(not connection.hung_up())  # as an engine thread does, at any moment

    monkeypatch.setattr(Connection, "__setattr__", watched, raising=False)
    server.knobs(maxWait="20s")  # so that the end of the stream is seen while the request waits
    with server.ask(post(), half_close=True) as stream:
        until(lambda: known, "the end of the stream")
        server.knobs()
        assert stream.answer().status == 200
    assert known == [True]


def test_a_client_that_leaves_in_the_middle_of_a_request_is_forgotten(server: HttpServer) -> None:
    whole = post()
    for cut in (3, 60, len(whole) - 1):
        with server.ask(whole[:cut], half_close=True) as stream:
            assert stream.ended()
    with server.ask(whole + whole[: len(whole) - 5], half_close=True) as stream:
        assert stream.answer().status == 200, "the whole one before it"
        assert stream.ended()


def test_a_client_that_expects_to_be_told_is_told_to_send_its_body_or_why_not(server: HttpServer) -> None:
    body = json.dumps(question([[1]])).encode()
    head = f"POST {INFER} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\nexpect: 100-continue\r\n"
    with server.ask(head.encode() + b"\r\n") as stream:
        assert stream.socket.recv(1000) == b"HTTP/1.1 100 Continue\r\n\r\n"
        stream.socket.sendall(body)
        assert stream.answer().status == 200
    with server.ask(head.encode() + b"content-encoding: br\r\n\r\n") as stream:
        answer = stream.answer()
        assert (answer.status, answer.headers["connection"]) == (415, "close"), "the body may come, or never"
        assert stream.ended()


def test_a_client_of_http_1_0_gets_its_answer_and_the_end(server: HttpServer) -> None:
    with server.ask(post(version="1.0")) as stream:
        answer = stream.answer()
        assert (answer.status, answer.headers["connection"]) == (200, "close")
        assert stream.ended()


def test_a_client_that_wants_to_close_is_let_go(server: HttpServer) -> None:
    with server.ask(post(None, "connection: close")) as stream:
        assert stream.answer().headers["connection"] == "close"
        assert stream.ended()


def test_health_has_get_and_head_and_inference_has_post(server: HttpServer) -> None:
    with server.ask(b"") as stream:

        def ask(method: str, path: str) -> tuple[int, str | None]:
            stream.socket.sendall(f"{method} {path} HTTP/1.1\r\nhost: x\r\n\r\n".encode())
            answer = stream.answer(bodiless=method == "HEAD")
            return answer.status, answer.headers.get("allow")

        assert ask("HEAD", "/v2/health/ready") == (200, None)
        assert ask("GET", "/v2/health/live?verbose=1") == (200, None)
        assert ask("POST", "/v2/health/live") == (405, "GET, HEAD")
        assert ask("OPTIONS", INFER) == (405, "POST")
        assert ask("HEAD", INFER) == (405, "POST")
        assert ask("DELETE", INFER) == (405, "POST")
        assert ask("GET", "/v2/health/live") == (200, None), "and the connection is in step"


@pytest.mark.parametrize("path", [f"{INFER}?a=b", "/v2/models/%65ncoder/infer", f"http://pod{INFER}"])
def test_a_path_may_be_spelled_in_other_ways(server: HttpServer, path: str) -> None:
    with server.ask(post(path=path)) as stream:
        assert stream.answer().status == 200


def test_an_upgrade_is_not_taken_and_the_request_is_answered(server: HttpServer) -> None:
    upgrade = ("connection: upgrade, http2-settings", "upgrade: h2c", "http2-settings: AAMAAABkAAQAAP__")
    with server.ask(post(None, *upgrade) * 2 + post()) as stream:
        assert [stream.answer().status for _ in range(3)] == [200] * 3
    with server.ask(post(None, "connection: upgrade, close", "upgrade: h2c")) as stream:
        assert (stream.answer().status, stream.ended()) == (200, True)
    with server.ask(b"CONNECT pod:80 HTTP/1.1\r\nhost: x\r\n\r\n") as stream:
        assert (stream.answer().status, stream.ended()) == (400, True)
    with server.ask(b"GET /v2/health/live HTTP/1.1\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n") as stream:
        assert stream.answer().status == 200
    with server.ask(b"GET /v2 HTTP/1.1\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n") as stream:
        assert stream.answer().status == 200


def test_what_is_not_http_is_said_after_the_answers_to_what_was(server: HttpServer) -> None:
    server.knobs(maxWait="100ms")
    with server.ask(post() + post() + b"\x00garbage\r\n\r\n" + post()) as stream:
        assert [stream.answer().status for _ in range(3)] == [200, 200, 400]
        assert stream.ended()
    bad = f"POST {INFER} HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n".encode()
    for before in (b"", post()):
        with server.ask(before + bad) as stream:
            if before:
                assert stream.answer().status == 200
            answer = stream.answer()
            assert (answer.status, "not framed" in answer.json()["error"]) == (400, True)
            assert stream.ended()
    with server.ask(b"POST /v2 HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n") as stream:
        assert stream.answer().status in (400, 405)
        assert stream.ended()


def test_an_early_refusal_reaches_a_client_that_is_still_sending(server: HttpServer) -> None:
    head = f"POST {INFER} HTTP/1.1\r\nhost: x\r\ncontent-length: {2**40}\r\n\r\n".encode()
    with server.ask(head + b" " * 2**20) as stream:
        stream.socket.sendall(b" " * 2**20)
        answer = stream.answer()
        assert (answer.status, answer.headers["connection"]) == (413, "close")
        assert stream.ended()


@pytest.mark.parametrize(
    "behind", [post() * 2, b"GET /v2 HTTP/1.1\r\nhost: x\r\n\r\n" + post(), post() + b"no HTTP\r\n\r\n"]
)
def test_behind_an_answer_that_ends_the_connection_nothing_is_done(
    server: HttpServer, behind: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    server.knobs(requestBytes="1Ki")
    before = len(server.runs)
    with server.ask(post() + post(b" " * 2000) + behind) as stream:
        assert [stream.answer().status, stream.answer().status] == [200, 413]
        assert stream.ended()
        server.quiet()
    assert len(server.runs) == before + 1
    assert not [record.message for record in caplog.records if record.levelname == "ERROR"]


def test_a_client_that_does_not_read_holds_one_answer_and_no_more(server: HttpServer) -> None:
    one = b"GET /v2/health/live HTTP/1.1\r\n\r\n"
    with server.connect() as sock:
        sock.settimeout(0.5)
        sent = 0
        with pytest.raises(TimeoutError):  # noqa: PT012
            while sent < 256 << 20:
                sent += sock.send(one * 5000)
        assert sent < 256 << 20
        connection = next(iter(server.server.server_state.connections))
        assert connection.transport.get_write_buffer_size() < 2**18
        assert len(connection.pipeline) < 10_000
        sock.settimeout(10)
        stream = Stream(sock)
        assert {stream.answer().status for _ in range(5000)} == {200}, "and goes on when it reads"


def test_many_connections_at_once_are_all_answered(server: HttpServer) -> None:
    server.knobs(queue={"timeout": "60s"})  # a slow machine refuses nobody for being late
    streams = [server.ask(b"") for _ in range(800)]
    for stream in streams:
        stream.socket.sendall(post())
    assert [stream.answer().status for stream in streams].count(200) >= 500, "512 rows fit in line, at least"
    for stream in streams:
        stream.socket.sendall(b"GET /v2/health/live HTTP/1.1\r\nhost: x\r\n\r\n")
        assert stream.answer().status == 200
        stream.socket.close()
