"""Streams of text on real sockets: as they are made, to who reads slowly, leaves, or shuts down its sending half."""

import gzip
import json
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from headway_runtime.batching.tickets import Priority
from headway_runtime.errors import DeadlineExceededError, NotServingError, ProgramFailedError, QueueFullError
from headway_runtime.generation.values import FinishReason
from headway_runtime.program import load_program
from headway_runtime.protocols.openai import answering, prompts

from tests.unit.http_server import Stream, http_server, post
from tests.unit.pod_process import MODEL, REVISION, until
from tests.unit.small_models import Encoder, export, prepare
from tests.unit.text_server import Asked, TextServer, end, say, saying, text_server

PATH = "/v1/completions"
CHAT = "/v1/chat/completions"


@pytest.fixture(scope="module")
def running() -> Iterator[TextServer]:
    with text_server() as served:
        yield served


@pytest.fixture
def server(running: TextServer) -> Iterator[TextServer]:
    with running.fresh() as served:
        yield served


@pytest.fixture
def client(server: TextServer) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=20) as client:
        yield client


def body(**changes: Any) -> dict[str, Any]:
    return {"model": MODEL, "prompt": [5, 6, 7], "stream": True, "max_tokens": 50, **changes}


def begin(server: TextServer, *headers: str, version: str = "1.1", path: str = PATH, **changes: Any) -> Stream:
    return server.ask(post(body(**changes), *headers, path=path, version=version))


class Events:
    """Reads the head and then one event after another, as bytes of chunks."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.head, self.stream.rest = stream._until(b"\r\n\r\n")

    def chunk(self) -> bytes:
        size, self.stream.rest = self.stream._until(b"\r\n")
        length = int(size, 16)
        while len(self.stream.rest) < length + 2:
            self.stream._more()
        found, self.stream.rest = self.stream.rest[:length], self.stream.rest[length + 2 :]
        return found

    def all(self) -> bytes:
        return b"".join(iter(self.chunk, b""))


def texts(events: bytes) -> str:
    lines = [line[6:] for line in events.split(b"\n\n") if line.startswith(b"data: {")]
    return "".join(choice["text"] for line in lines for choice in json.loads(line).get("choices", []))


def finish(server: TextServer, asked: Asked, text: str = "", **named: Any) -> None:
    server.on_loop(lambda: (say(asked, text, finish=FinishReason.STOP, **named), end(asked)))


def test_a_piece_is_read_before_the_next_is_made(server: TextServer) -> None:
    with begin(server) as stream:
        asked = server.wait()
        server.on_loop(lambda: say(asked, "first"))
        events = Events(stream)
        assert texts(events.chunk()) == "first"
        server.on_loop(lambda: say(asked, " second"))
        assert texts(events.chunk()) == " second"
        finish(server, asked)
        assert events.all().endswith(b"data: [DONE]\n\n")


def test_a_stream_says_that_nobody_shall_keep_it_and_who_answers(server: TextServer) -> None:
    server.engine.script = saying("a")
    with begin(server) as stream:
        head = Events(stream).head.decode().lower()
    assert head.startswith("http/1.1 200 ok")
    for line in (
        "content-type: text/event-stream; charset=utf-8",
        "cache-control: no-cache",
        "x-accel-buffering: no",
        f"x-headway-revision: {REVISION}",
        "transfer-encoding: chunked",
    ):
        assert line in head


def test_pieces_of_one_step_are_one_chunk(server: TextServer) -> None:
    with begin(server, n=3) as stream:
        asked = server.wait()

        def step() -> None:
            pieces: list[Any] = []
            original = asked.stream.pieces
            for index in range(3):
                object.__setattr__(asked.stream, "pieces", lambda found: pieces.extend(found))
                say(asked, f"<{index}>", index=index)
            object.__setattr__(asked.stream, "pieces", original)
            original(tuple(pieces))

        server.on_loop(step)
        assert texts(Events(stream).chunk()) == "<0><1><2>"
    until(lambda: asked.cancelled)


@pytest.mark.parametrize("stream_it", [True, False])
@pytest.mark.parametrize("reset", [True, False])
def test_a_client_that_leaves_frees_its_sequence_at_once(server: TextServer, stream_it: bool, reset: bool) -> None:
    stream = begin(server, stream=stream_it)
    asked = server.wait()
    if stream_it:
        server.on_loop(lambda: say(asked, "first"))
        Events(stream).chunk()
    if reset:
        stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    stream.socket.close()
    until(lambda: asked.cancelled, seconds=10)  # "at once": nothing else ends it
    server.quiet()


def test_pings_come_only_in_silence_and_clients_pass_over_them(
    server: TextServer, client: openai.OpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answering, "PING_SECONDS", 0.05)
    chunks = iter(client.completions.create(model=MODEL, prompt=[5], stream=True))
    asked = server.wait()
    time.sleep(0.2)
    server.on_loop(lambda: say(asked, "late"))
    assert next(chunks).choices[0].text == "late"
    finish(server, asked, "!")
    assert [chunk.choices[0].text for chunk in chunks] == ["!"]


@pytest.mark.parametrize("pause", [0.2, 0.2004])  # the second leaves less of a millisecond than a timer knows
def test_a_whole_answer_that_takes_long_keeps_nobody_busy(
    server: TextServer, monkeypatch: pytest.MonkeyPatch, pause: float
) -> None:
    ticks: list[float] = []
    tick = answering.Answering._tick
    monkeypatch.setattr(answering, "PING_SECONDS", pause)
    monkeypatch.setattr(answering.Answering, "_tick", lambda self: (ticks.append(time.monotonic()), tick(self))[1])
    stream = begin(server, stream=False)
    asked = server.wait()
    until(lambda: ticks and ticks[-1] > ticks[0] + 0.4)
    assert len(ticks) < 20, len(ticks)  # one may be early by a millisecond, and the next makes up for it
    finish(server, asked, "late")
    assert stream.answer().status == 200
    stream.socket.close()


def test_who_has_shut_down_its_sending_half_gets_the_whole_stream(server: TextServer) -> None:
    stream = begin(server)
    asked = server.wait()
    server.on_loop(lambda: say(asked, "a"))
    events = Events(stream)
    found = events.chunk()
    stream.socket.shutdown(socket.SHUT_WR)
    time.sleep(0.3)  # it is looked after meanwhile
    server.on_loop(lambda: say(asked, "b"))
    finish(server, asked, "c")
    found += events.all()
    assert texts(found) == "abc"
    assert b"100 Continue" not in found
    assert stream.ended()
    stream.socket.close()


def test_who_shuts_down_before_the_first_piece_gets_it_too(server: TextServer) -> None:
    server.engine.script = None
    stream = server.ask(post(body(stream=False), path=PATH), half_close=True)
    finish(server, server.wait(), "whole")
    answer = stream.answer()
    assert (answer.status, answer.json()["choices"][0]["text"]) == (200, "whole")
    stream.socket.close()


def test_a_reader_that_is_too_slow_loses_its_stream_and_nobody_else_does(
    server: TextServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answering, "MAX_UNREAD", 1 << 16)
    slow = Stream(server.connect())
    slow.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 14)
    slow.socket.sendall(post(body(), path=PATH))
    first = server.wait()
    quick = begin(server)
    second = server.wait(2)
    text, made = "x" * 10_000, 0
    while not first.cancelled and made < 2000:
        server.on_loop(lambda: say(first, text))
        made += 1
    assert first.cancelled
    server.on_loop(lambda: say(second, "on"))
    finish(server, second, " and on")
    assert texts(Events(quick).all()) == "on and on"
    slow.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
    events = Events(slow).all()  # what it has not read yet is still there, and why there is no more
    assert events.count(text.encode()) == made
    assert b'"error":{"message":"65536 bytes of the answer wait to be read' in events
    assert b"[DONE]" not in events
    assert slow.ended()
    slow.socket.close()
    quick.socket.close()


def test_an_error_in_the_midst_is_an_event_and_the_connection_goes_on(server: TextServer) -> None:
    stream = begin(server)
    asked = server.wait()
    server.on_loop(lambda: say(asked, "half"))
    server.on_loop(lambda: end(asked, ProgramFailedError("the program raised")))
    events = Events(stream).all()
    assert texts(events) == "half"
    last = json.loads(events.split(b"\n\n")[-2][6:])
    assert last == {"error": {"message": "the program raised", "type": "server_error", "param": None, "code": None}}
    stream.socket.sendall(post(body(), path=PATH))
    finish(server, server.wait(2), "again")
    assert texts(Events(stream).all()) == "again"
    stream.socket.close()


def test_openais_client_raises_an_error_in_the_midst(server: TextServer, client: openai.OpenAI) -> None:
    def script(asked: Asked) -> None:
        say(asked, "half")
        end(asked, DeadlineExceededError("too late"))

    server.engine.script = script
    chunks = client.completions.create(model=MODEL, prompt=[5], stream=True)
    assert next(chunks).choices[0].text == "half"
    with pytest.raises(openai.APIError, match="too late"):
        next(chunks)


def test_an_error_before_the_first_piece_has_a_status(server: TextServer, client: openai.OpenAI) -> None:
    server.engine.script = lambda asked: end(asked, DeadlineExceededError("it did not begin in time"))
    with pytest.raises(openai.APIStatusError, match="it did not begin in time") as late:
        client.completions.create(model=MODEL, prompt=[5], stream=True)
    assert late.value.status_code == 504


def test_a_full_queue_is_a_rate_limit(server: TextServer, client: openai.OpenAI) -> None:
    server.engine.refusal = QueueFullError("512 answers wait; try again in 3 s", retry_after=3)
    with pytest.raises(openai.RateLimitError) as refused:
        client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "x"}], stream=True)
    assert (refused.value.code, refused.value.response.headers["retry-after"]) == ("rate_limit_exceeded", "3")
    assert refused.value.response.headers["x-headway-not-admitted"] == "1"


def test_one_prompt_that_is_refused_cancels_those_before_it(server: TextServer) -> None:
    def script(_: Asked) -> None:
        pass

    server.engine.script = script
    original = server.engine.submit

    def submit(generate: Any, stream: Any) -> int:
        if len(server.engine.asked) == 2:
            raise QueueFullError("full", retry_after=1)
        return original(generate, stream)

    server.engine.submit = submit  # type: ignore[method-assign]
    try:
        answer = server.client.post(server.url + PATH, json=body(prompt=[[5], [6], [7]]))
    finally:
        server.engine.submit = original  # type: ignore[method-assign]
    assert answer.status_code == 429
    assert "x-headway-not-admitted" not in answer.headers, "the model may have seen the first"
    assert [asked.cancelled for asked in server.engine.asked] == [True, True]


@pytest.mark.parametrize("prompts", [1, 2])
def test_what_waited_in_a_pod_that_ends_may_be_asked_elsewhere_unless_a_part_of_it_was_seen(
    server: TextServer, prompts: int
) -> None:
    def give_up(asked: Asked) -> None:
        if asked.number == len(server.engine.asked) - 1:
            end(asked, NotServingError("the pod is ending; send the request again"))

    server.engine.script = give_up
    answer = server.client.post(server.url + PATH, json=body(prompt=[[5]] * prompts, stream=False))
    assert (answer.status_code, "x-headway-not-admitted" in answer.headers) == (503, prompts == 1)


def test_headers_rule_deadline_and_priority(server: TextServer) -> None:
    before = time.monotonic()
    with begin(server, "x-headway-timeout: 700ms", "x-headway-priority: high"):
        stream = server.wait().stream
    assert stream.priority is Priority.HIGH
    assert before + 0.7 <= stream.deadline <= time.monotonic() + 0.7
    assert stream.first_by == stream.deadline
    with begin(server):
        stream = server.wait(2).stream
    assert (stream.deadline, stream.priority) == (float("inf"), Priority.NORMAL)
    assert stream.first_by < time.monotonic() + 60


def test_http_1_0_gets_no_chunks_and_the_end_of_its_connection(server: TextServer) -> None:
    server.engine.script = saying("a", "b")
    with begin(server, version="1.0") as stream:
        head, rest = stream._until(b"\r\n\r\n")
        while not rest.endswith(b"[DONE]\n\n"):
            rest += stream.socket.recv(65536)
        assert b"transfer-encoding" not in head.lower()
        assert b"connection: close" in head.lower()
        assert texts(rest) == "ab"
        assert stream.socket.recv(1) == b""


def test_requests_behind_a_stream_wait_for_its_end(server: TextServer) -> None:
    stream = server.ask(post(body(), path=PATH) + post(body(stream=False), path=PATH))
    first = server.wait()
    finish(server, first, "one")
    events = Events(stream)
    assert texts(events.all()) == "one"
    finish(server, server.wait(2), "two")
    assert stream.answer().json()["choices"][0]["text"] == "two"
    stream.socket.close()


def test_a_pod_that_ends_closes_after_the_stream(server: TextServer) -> None:
    stream = begin(server)
    asked = server.wait()
    server.on_loop(lambda: say(asked, "a"))
    events = Events(stream)
    server.pod.closing = True
    try:
        finish(server, asked, "b")
        assert texts(events.all()) == "ab"
        assert stream.ended()
    finally:
        server.pod.closing = False
    stream.socket.close()


def test_a_body_may_be_compressed(server: TextServer) -> None:
    server.engine.script = saying("a")
    content = gzip.compress(json.dumps(body(stream=False)).encode())
    answer = server.client.post(server.url + PATH, content=content, headers={"content-encoding": "gzip"})
    assert answer.json()["choices"][0]["text"] == "a"


def test_bodies_that_are_malformed_late_or_too_large_are_refused_in_openais_shape(server: TextServer) -> None:
    head = f"POST {PATH} HTTP/1.1\r\nhost: pod\r\n"
    cases = [
        (f"{head}transfer-encoding: chunked\r\n\r\nZZ\r\n", 400, "not framed"),
        (f"{head}content-length: 9\r\nx-headway-timeout: 50ms\r\n\r\n{{", 504, "deadline"),
        (f"{head}content-length: 9999999999\r\n\r\n", 413, "at most"),
        (f"{head}content-length: 2\r\nx-headway-priority: top\r\n\r\n{{}}", 400, "not one of low"),
        (f"{head}content-length: 2\r\n\r\n[]", 400, "must be a JSON object"),
        (f'{head}content-length: 8\r\n\r\n"\\ud800"', 400, "not JSON"),
        (f"{head}content-length: 2\r\n\r\n{{}}", 400, "model: is not given"),
    ]
    for data, status, words in cases:
        with server.ask(data.encode()) as stream:
            answer = stream.answer()
        error = answer.json()["error"]
        assert (answer.status, set(error)) == (status, {"message", "type", "param", "code"}), data
        assert words in error["message"]


def test_prompts_that_wait_for_a_thread_are_bounded(server: TextServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prompts, "MAX_WAITING", 0)
    answer = server.client.post(server.url + PATH, json=body(prompt="text"))
    assert answer.status_code == 429
    assert "prompts of 0 requests are being read" in answer.json()["error"]["message"]


def test_a_prompt_whose_reading_takes_too_long_is_told_so(server: TextServer, monkeypatch: pytest.MonkeyPatch) -> None:
    leave, left = threading.Event(), threading.Event()

    def forever(*_: Any, **__: Any) -> Any:
        leave.wait(60)
        left.set()
        return ()

    monkeypatch.setattr(prompts, "_encoded", forever)
    answer = server.client.post(server.url + PATH, json=body(prompt="text"), headers={"x-headway-timeout": "100ms"})
    assert (answer.status_code, answer.json()["error"]["type"]) == (504, "server_error")
    assert not left.is_set()
    leave.set()
    assert left.wait(60)
    for _ in range(3):  # what the thread has found reaches the loop, and nothing comes of it
        server.on_loop(lambda: None)
    assert server.engine.asked == []


def test_a_pod_that_is_not_ready_says_what_it_does() -> None:
    with http_server(None) as loading:
        for path in (PATH, CHAT):
            answer = loading.client.post(loading.url + path, json=body())
            assert (answer.status_code, answer.json()["error"]["type"]) == (503, "server_error")
            assert "loading" in answer.json()["error"]["message"]


def test_a_model_that_computes_tensors_says_what_to_use(tmp_path: Path) -> None:
    program = load_program(prepare(export(Encoder, tmp_path / "m.pt2"), tmp_path / "model"), dimension_names={})
    with http_server(program, batch=[1]) as other:
        answer = other.client.post(other.url + CHAT, json=body())
        assert answer.status_code == 400
        assert f"generates no text: ask it by POST /v2/models/{MODEL}/infer" in answer.json()["error"]["message"]


def test_tensors_are_refused_with_what_to_use(server: TextServer) -> None:
    answer = server.client.post(server.infer, json={"inputs": []})
    assert answer.status_code == 400
    assert "POST /v1/completions or /v1/chat/completions" in answer.json()["error"]
