"""A pod that generates text, as a real process in its sandbox: from golden prompts to the last piece of a stream."""

import json
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from headway_runtime.prepare import decoding, repack
from headway_runtime.serving.steps.tokens import open_library
from tritonclient import grpc as grpcclient
from tritonclient.utils import InferenceServerException

from tests.unit.generator_desk import prepared
from tests.unit.pod_process import MODEL, PodProcess, pod, until

GENERATION = {"cacheBytes": "1Mi", "maxLength": 500}


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepared(tmp_path_factory.mktemp("decoder"))


@pytest.fixture(scope="module")
def running(directory: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PodProcess]:
    with pod(tmp_path_factory.mktemp("pod"), directory, generation=GENERATION) as started:
        started.wait_for_phase(seconds=120)
        yield started


def document(directory: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(repack.program_file(directory, "model").read_bytes())
    return found


def complete(server: PodProcess, **body: Any) -> httpx.Response:
    asked = {"model": MODEL, "temperature": 0, "max_tokens": 16, **body}
    return server.client.post(f"{server.url}/v1/completions", json=asked, timeout=60)


def test_the_pod_says_what_it_has_room_for_and_that_its_answers_are_the_exporters(running: PodProcess) -> None:
    report = running.report()
    room = report["generation"]
    assert (room["blockTokens"], room["bytesPerToken"], room["maxLength"]) == (16, 512, 500)
    assert room["blocks"] == (1 << 20) // (16 * 512) - 1, "block 0 belongs to nobody"
    assert room["sequences"] == room["blocks"] // 32
    assert room["weightsBytes"] > 0
    assert room["kernels"]
    assert report["parity"]["agrees"]
    assert report["parity"]["samples"] > 1
    buckets = report["buckets"]
    assert buckets["warm"] == buckets["total"] == len(buckets["costs"]) > 1
    assert report["sandbox"]["missing"] == []


def test_a_golden_prompt_is_answered_over_http_as_the_exporter_recorded_it(
    running: PodProcess, directory: Path
) -> None:
    _, facts = decoding.read(document(directory))
    tokenizer = open_library(directory / repack.TOKENIZER)
    golden = facts.golden[0]
    body = complete(running, prompt=list(golden.prompt), max_tokens=len(golden.tokens)).json()
    assert body["usage"]["completion_tokens"] == len(golden.tokens)
    assert body["choices"][0]["text"] == tokenizer.decode(list(golden.tokens))


def test_knobs_change_while_it_serves_and_are_acknowledged_and_answers_stay_the_same(running: PodProcess) -> None:
    before = complete(running, prompt="The quick brown fox", n=3).json()["choices"]
    found = running.apply_knobs({"maxBatch": 2, "stepTokens": 3, "prefixCache": False, "maxWait": "20ms"})
    assert found["effective"] == {
        "maxBatch": 2,
        "stepTokens": 3,
        "prefixCache": False,
        "queue": {"capacity": 512, "bytes": "256Mi", "timeout": "2s"},
        "nonFinite": "Allow",
        "requestBytes": "64Mi",
    }
    assert [clamp["field"] for clamp in found["clamped"]] == ["spec.batching.maxWait"]
    assert complete(running, prompt="The quick brown fox", n=3).json()["choices"] == before
    running.apply_knobs({})


def test_more_answers_than_can_ever_wait_are_refused_with_the_knob(running: PodProcess) -> None:
    running.apply_knobs({"queue": {"capacity": 4}})
    refused = complete(running, prompt="The", n=5)
    assert refused.status_code == 413, refused.text
    assert "spec.batching.queue.capacity" in refused.text
    assert complete(running, prompt="The", n=4).status_code == 200
    running.apply_knobs({})


def test_a_prompt_that_is_longer_than_a_sequence_may_be_is_answered_400_with_the_limit(running: PodProcess) -> None:
    refused = complete(running, prompt=[5] * 500)
    assert (refused.status_code, "500" in refused.json()["error"]["message"]) == (400, True), refused.text


@pytest.mark.parametrize("path", ["", "/config", "/stats", "/ready"])
def test_clients_of_the_inference_protocol_are_answered(running: PodProcess, path: str) -> None:
    assert running.client.get(f"{running.url}/v2/models/{MODEL}{path}").status_code == 200


def test_tensors_are_refused_with_where_to_ask_instead(running: PodProcess) -> None:
    refused = running.client.post(running.infer, json={"inputs": []})
    assert (refused.status_code, "/v1/completions" in refused.json()["error"]) == (400, True), refused.text


def test_over_grpc_the_model_is_described_and_tensors_are_refused_likewise(running: PodProcess) -> None:
    with grpcclient.InferenceServerClient(running.grpc) as client:
        assert client.is_model_ready(MODEL)
        assert client.get_model_metadata(MODEL).name == MODEL
        assert client.get_model_config(MODEL).config.name == MODEL
        with pytest.raises(InferenceServerException, match="/v1/completions"):
            client.infer(MODEL, [])


def test_the_api_document_describes_no_route_that_is_not_served(running: PodProcess) -> None:
    paths = running.client.get(f"{running.url}/openapi.json").json()["paths"]
    assert f"/v2/models/{MODEL}/infer" not in paths
    assert "/v1/embeddings" not in paths
    assert f"/v2/models/{MODEL}/ready" in paths


def test_its_metrics_count_tokens_times_and_blocks(running: PodProcess) -> None:
    def read() -> dict[str, float]:
        lines = running.admin("/metrics").text.splitlines()
        return {name: float(value) for name, value in (line.split() for line in lines if line[0] != "#")}

    before = read()
    assert len(before) < 600, "docs/metrics.md says how many a pod has"
    made = sum(
        complete(running, prompt="The quick", max_tokens=4, n=2).json()["usage"]["completion_tokens"] for _ in "ab"
    )
    after = read()

    def grown(name: str) -> float:
        return after.get(name, 0.0) - before.get(name, 0.0)

    assert grown("headway_generation_tokens_total") == made
    assert grown("headway_time_to_first_token_seconds_count") == 2
    assert grown("headway_time_per_output_token_seconds_count") == 4
    assert grown("headway_inter_token_seconds_count") == made - 4
    assert grown('headway_answers_total{reason="length"}') + grown('headway_answers_total{reason="stop"}') == 4
    prompted = grown('headway_prefix_cache_tokens_total{kind="hit"}') + grown(
        'headway_prefix_cache_tokens_total{kind="miss"}'
    )
    assert grown("headway_prompt_tokens_total") == prompted > 0
    assert grown("headway_queue_seconds_count" + '{priority="normal"}') == 2
    assert grown("headway_run_seconds_count") == grown("headway_step_tokens_count") > 0
    assert after["headway_kv_blocks"] == running.report()["generation"]["blocks"]
    assert after["headway_kv_blocks_used"] == after["headway_sequences_running"] == after["headway_queue_rows"] == 0


def test_a_pod_that_is_told_to_end_finishes_the_streams_that_it_has(directory: Path, tmp_path: Path) -> None:
    """Which take longer than a pod without them needs to end."""
    asked = {"max_tokens": 450, "n": 32, "seed": 7}
    with pod(tmp_path, directory, generation={**GENERATION, "cacheBytes": "32Mi"}) as server:
        server.wait_for_phase(seconds=120)
        alone = complete(server, prompt="Once upon a time", temperature=1, **asked).json()
        events = stream_through_the_end(server, **asked)
        assert events[-1] == "[DONE]"
        texts = [""] * 32
        for event in events[:-1]:
            for choice in json.loads(event)["choices"]:
                texts[choice["index"]] += choice["text"]
        assert texts == [choice["text"] for choice in sorted(alone["choices"], key=lambda each: each["index"])]
        assert server.process.wait(60) == 0


def test_what_the_grace_period_does_not_suffice_for_ends_with_an_error_in_its_stream(
    directory: Path, tmp_path: Path
) -> None:
    with pod(tmp_path, directory, generation={**GENERATION, "cacheBytes": "32Mi"}, drainTimeout="1s") as server:
        server.wait_for_phase(seconds=120)
        events = stream_through_the_end(server, max_tokens=490, n=100, seed=7, logprobs=5)
        assert "error" in json.loads(events[-1]), events[-1]
        assert server.process.wait(60) == 0


def test_a_whole_answer_that_the_grace_period_does_not_suffice_for_is_503_and_may_be_asked_again(
    directory: Path, tmp_path: Path
) -> None:
    with pod(tmp_path, directory, generation={**GENERATION, "cacheBytes": "32Mi"}, drainTimeout="1s") as server:
        server.wait_for_phase(seconds=120)
        before = steps(server)
        with ThreadPoolExecutor(1) as threads:
            body = {"prompt": "Once upon a time", "temperature": 1, "max_tokens": 490, "n": 100, "logprobs": 5}
            asked = threads.submit(complete, server, **body)
            until(lambda: steps(server) > before, "its generation")
            server.process.send_signal(signal.SIGTERM)
            answer = asked.result()
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1"), answer.text[:500]
        assert "x-headway-not-admitted" not in answer.headers
        assert "before this answer was complete" in answer.json()["error"]["message"]
        assert server.process.wait(60) == 0


def steps(server: PodProcess) -> float:
    found = server.admin("/metrics").text.partition("\nheadway_run_seconds_count ")[2]
    return float(found.split()[0])


def stream_through_the_end(server: PodProcess, **body: Any) -> list[str]:
    """Tell the pod to end after the first event; all events of the stream."""
    asked = {"model": MODEL, "prompt": "Once upon a time", "temperature": 1, "stream": True, **body}
    events: list[str] = []
    with server.client.stream("POST", f"{server.url}/v1/completions", json=asked, timeout=60) as answer:
        assert answer.status_code == 200
        for line in answer.iter_lines():
            if line.startswith("data: "):
                if not events:
                    server.process.send_signal(signal.SIGTERM)
                events.append(line.removeprefix("data: "))
    return events


@pytest.mark.parametrize(
    ("parts", "reason", "field", "says"),
    [
        (
            {"generation": {"cacheBytes": "64Ki", "maxLength": 512}},
            "WillNotFit",
            "spec.generation.cacheBytes",
            "64Ki is 8 blocks of 16 tokens, and a sequence of 512 tokens needs 33 blocks",
        ),
        ({"batching": {"policy": "Dynamic"}}, "PolicyMismatch", "spec.batching.policy", "write policy: Continuous"),
    ],
    ids=["a cache that is too small", "the other batcher"],
)
def test_what_cannot_be_honoured_ends_the_pod_with_the_field_and_what_to_do(
    directory: Path, tmp_path: Path, parts: dict[str, Any], reason: str, field: str, says: str
) -> None:
    with pod(tmp_path, directory, **parts) as server:
        assert server.process.wait(120) == 1
    message = json.loads((tmp_path / "termination-log").read_text())
    assert (message["reason"], message["condition"], message["field"]) == (reason, "Accepted", field)
    assert says in message["message"]
    events = [json.loads(line)["event"] for line in (tmp_path / "log").read_text().splitlines()]
    assert "memory_shared" not in events, "no weight was touched"


def test_a_precision_that_nothing_judges_is_refused_before_a_step_is_warmed(directory: Path, tmp_path: Path) -> None:
    generation = {**GENERATION, "maxLength": 2}  # shorter than any golden prompt
    with pod(tmp_path, directory, generation=generation, precision="Int8") as refused:
        assert refused.process.wait(120) == 1
    assert "bucket_warm" not in (tmp_path / "log").read_text()
    assert json.loads((tmp_path / "termination-log").read_text())["reason"] == "PrecisionRefused"
