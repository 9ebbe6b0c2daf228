"""`headway bench` of a model that generates text: real pods, and servers that break their streams."""

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from socket import create_server
from typing import Any

import pytest
from headway_api.types import Precision
from headway_runtime.bench import target, text_session
from headway_runtime.bench.connection import Address
from headway_runtime.bench.errors import BenchError
from headway_runtime.bench.model import ModelInfo
from headway_runtime.bench.plan import Plan
from headway_runtime.bench.streamed import Connection
from headway_runtime.bench.streams import closed_streams
from headway_runtime.bench.target import Target
from headway_runtime.bench.text_report import COLUMNS
from headway_runtime.bench.text_results import TextMeasurement
from headway_runtime.bench.text_session import TextSession
from headway_runtime.cli import app
from typer.testing import CliRunner

from tests.decoders import tiny
from tests.ports import free_port
from tests.unit.generator_desk import prepared
from tests.unit.pod_process import MODEL, PodProcess, pod

QUICK = ["--seconds", "1", "--sizes", "answer=8..16", "--sizes", "prompt.words=2..10~4"]
LEVELS = ["--connections", "1", "--connections", "4"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PodProcess]:
    directory = prepared(tmp_path_factory.mktemp("decoder"))
    generation = {"cacheBytes": "1Mi", "maxLength": 400}
    with pod(tmp_path_factory.mktemp("pod"), directory, generation=generation) as started:
        started.wait_for_phase(seconds=120)
        yield started


def bench(*arguments: str) -> str:
    """What the command prints; progress goes elsewhere."""
    result = CliRunner().invoke(app, ["bench", *arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


def admin(server: PodProcess) -> str:
    return f"http://127.0.0.1:{server.admin_port}"


def counted(server: PodProcess, name: str) -> float:
    found = re.search(rf"^{name}(?:_total)? ([0-9.e+]+)$", server.admin("/metrics").text, flags=re.MULTILINE)
    assert found, name
    return float(found[1])


def test_a_url_alone_is_measured_by_clients_in_json_for_programs(server: PodProcess) -> None:
    before = counted(server, "headway_generation_tokens")
    found = json.loads(bench(server.url, "--admin-url", admin(server), *QUICK, *LEVELS, "--json"))
    assert (found["model"], found["task"]) == (MODEL, "generate")
    assert found["requests"]["sizes"] == {"prompt.words": "2..10~4", "answer": "8..16"}
    assert found["room"]["maxLength"] == 400
    assert found["precision"] == Precision.EXPORTED.value
    assert [each["connections"] for each in found["measurements"]] == [1, 4]
    for each in found["measurements"]:
        assert (each["errors"], each["rejected"]) == ({}, 0)
        assert each["answered"] == each["offered"] >= each["connections"]
        assert 8 <= each["tokens"] / each["answered"] <= 16
        assert each["promptTokens"] > each["answered"]
        assert 0 <= each["tokensPerSecond"] <= each["tokens"] / each["seconds"]
        for times in (each["firstToken"], each["betweenTokens"], each["latency"]):
            assert 0 <= times["p50"] <= times["p90"] <= times["p99"] <= times["max"]
        assert each["firstToken"]["p50"] < each["latency"]["p50"]
        assert each["cpuPerToken"] is None
    made = counted(server, "headway_generation_tokens") - before
    longest = 16  # the first request, which no measurement counts
    assert made == sum(each["tokens"] for each in found["measurements"]) + longest


def test_without_an_admin_port_the_only_model_that_is_listed_is_measured(
    server: PodProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    nobody = free_port()
    monkeypatch.setattr(target, "ADMIN_PORT", nobody)
    refused = CliRunner().invoke(app, ["bench", server.url, "--admin-url", f"http://127.0.0.1:{nobody}"])
    assert refused.exit_code == 1
    said = bench("--url", server.url, *QUICK, "--connections", "2")
    assert said.startswith(f"{MODEL} at {server.url}, which generates text; prompt.words 2..10~4, answer 8..16\n")
    assert "tokens/s" in said
    assert "--admin-url" in said


def test_who_is_turned_away_is_counted(server: PodProcess) -> None:
    server.apply_knobs({"maxBatch": 1, "queue": {"capacity": 1}})
    try:
        options = ["--seconds", "1", "--sizes", "answer=60", "--sizes", "prompt.words=2", "--connections", "8"]
        (found,) = json.loads(bench(server.url, "--admin-url", admin(server), *options, "--json"))["measurements"]
    finally:
        server.apply_knobs({"maxBatch": 16})
    assert found["rejected"] == found["errors"]["429"] > 0
    assert found["answered"] + found["rejected"] == found["offered"]


def test_a_file_is_served_and_measured_with_its_cpu(tmp_path: Path) -> None:
    (tmp_path / "md.yaml").write_text(
        "kind: ModelDeployment\nmetadata: {name: writer}\nspec:\n  artifact: {uri: s3://elsewhere/model.pt2}\n"
        "  device: {kind: cpu}\n  generation: {maxLength: 128, cacheBytes: 1Mi}\n"
    )
    said = bench(str(tiny(tmp_path)), "--manifest", str(tmp_path / "md.yaml"), "--seconds", "0.5", "--connections", "2")
    assert said.startswith("writer at http://127.0.0.1:")
    assert "prompt.words 1..16~4, answer 32; weights Exported" in said
    row = next(line for line in said.splitlines() if line.startswith("clients, 2"))
    assert float(row.split()[8]) > 0, "CPU ms/token"
    assert "room for 15 sequences of 128 tokens at a time" in said


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--rate", "3"], "--rate is for models that compute tensors"),
        (["--latency-target", "1s"], "--latency-target is for models that compute tensors"),
        (["--binary"], "--binary is for models that compute tensors"),
        (["--sizes", "batch=1"], "the sizes of a model that generates text are prompt.words and answer"),
        (["--sizes", "answer=0..3"], "--sizes answer=0..3: at least 1"),
        (
            ["--sizes", "prompt.words=500"],
            "the longest request (500 words, and an answer of 64 tokens) is answered 400",
        ),
    ],
)
def test_what_does_not_fit_a_text_model_is_said(server: PodProcess, arguments: list[str], says: str) -> None:
    result = CliRunner().invoke(app, ["bench", server.url, "--admin-url", admin(server), *arguments])
    assert result.exit_code == 1
    assert says in " ".join(result.output.split())


def test_the_page_names_every_key_and_column(server: PodProcess) -> None:
    page = (Path(__file__).resolve().parents[2] / "docs/bench.md").read_text().partition("## A model that generates")[2]
    found = json.loads(bench(server.url, "--admin-url", admin(server), *QUICK, "--connections", "1", "--json"))
    assert {key for key in (*found, *found["measurements"][0]) if f"`{key}`" not in page} == set()
    assert all(column in page for column in COLUMNS)


PIECE = b'data: {"choices":[{"index":0,"text":"a"}],"usage":null}\n\n'
LAST = b'data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2}}\n\ndata: [DONE]\n\n'
HEAD = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"


def chunks(*parts: bytes) -> bytes:
    return b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts)


@contextmanager
def answering(answer: bytes) -> Iterator[Address]:
    """A server that sends this to whoever asks, and closes the connection."""
    with create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            while True:
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return
                with connection:
                    if connection.recv(65536):
                        connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield Address("127.0.0.1", listening.getsockname()[1])
        finally:
            listening.shutdown(2)
            thread.join()


@pytest.mark.parametrize(
    ("answer", "errors"),
    [
        (HEAD + chunks(PIECE + PIECE[:20], PIECE[20:] + LAST) + b"0\r\n\r\n", {}),
        (HEAD + chunks(PIECE) + b"0\r\n\r\n", {"cut_short"}),
        (HEAD + chunks(PIECE)[:-9], {"connection_lost"}),
        (HEAD + chunks(PIECE, b'data: {"error":{"message":"no"}}\n\n') + b"0\r\n\r\n", {"error_in_stream"}),
        (HEAD + chunks(b"data: {\n\n"), {"malformed"}),
        (HEAD + chunks((2 * PIECE + LAST).replace(b"\n", b"\r\n").replace(b": ", b":")) + b"0\r\n\r\n", {}),
        (HEAD + chunks(PIECE, b"id: 1\n" + PIECE + LAST) + b"0\r\n\r\n", {}),
        (HEAD + chunks(b"data: 5\n\n"), {"malformed"}),
        (HEAD + chunks(b'data: {"choices":["a"]}\n\n'), {"malformed"}),
        (HEAD + chunks(b'data: {"usage":{"completion_tokens":null}}\n\n'), {"malformed"}),
        (HEAD + chunks(b'data: {"usage":{"prompt_tokens":1}}\n\n'), {"malformed"}),
        (HEAD + b"zz\r\n", {"malformed"}),
        (b"no HTTP\r\n\r\n", {"malformed"}),
        (b"nothing\r\n\r\n", {"malformed"}),
        (b"HTTP/1.1 429 No\r\nconnection: close\r\nretry-after: Mon, 30 Nov 2026 10:00:00 GMT\r\n\r\n", {"429"}),
        (b"HTTP/1.1 503 No\r\ncontent-length: 2\r\nretry-after: 9\r\n\r\n{}", {"503"}),
        (b"", {"connection_lost"}),
    ],
)
def test_an_answer_is_good_only_if_it_is_whole(answer: bytes, errors: Any) -> None:
    with answering(answer) as address:
        requests = iter(lambda: b"POST / HTTP/1.1\r\n\r\n", None)
        found = TextMeasurement.of(1, closed_streams(address, requests, connections=1, seconds=0.3), None)
    cut = {"connection_lost"}  # a next request may meet the end of its connection
    assert set(errors) <= set(found.errors) <= set(errors) | cut
    if not errors:
        assert found.tokens == 2 * found.whole.count > 0
        assert found.between.count == found.whole.count


async def test_a_connection_that_the_server_closed_meanwhile_is_opened_again() -> None:
    with answering(b"HTTP/1.1 503 No\r\ncontent-length: 2\r\n\r\n{}") as address:
        connection = Connection(address)
        for _ in range(3):
            assert (await connection.ask(b"POST / HTTP/1.1\r\n\r\n")).status == 503
            assert connection._reader is not None
            await connection._reader.read()  # until it is closed
        connection.close()


def test_a_server_that_never_answers_is_not_waited_for_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_session, "LONGEST", 0.2)
    with create_server(("127.0.0.1", 0)) as listening:
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        session = TextSession(
            Target(url, None, ModelInfo("writer", "", (), None), generates=True), Plan(seconds=1), lambda _: None
        )
        with pytest.raises(BenchError, match="was not answered in"):
            session.run()
