"""A pod that serves SmolLM2-135M, with weights of 8 bits: what a user meets, once, with a real model."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from headway_runtime.prepare import run

from tests.decoders import smollm2
from tests.unit.pod_process import MODEL, PodProcess, pod

LENGTH = 1024


@pytest.fixture(scope="module")
def server() -> Iterator[PodProcess]:
    with tempfile.TemporaryDirectory(prefix="headway-smollm2-") as name:  # half a gigabyte: pytest would keep it
        folder = Path(name)
        run.prepare(smollm2().as_uri(), folder / "model", pinned=None, credentials=Path("/nonexistent"))
        generation = {"cacheBytes": "96Mi", "maxLength": LENGTH}
        with pod(folder, folder / "model", precision="Int8", generation=generation) as started:
            started.wait_for_phase(seconds=240)
            yield started


def test_it_answers_a_question_and_says_how_close_its_weights_are(server: PodProcess) -> None:
    body = {
        "model": MODEL,
        "messages": [{"role": "user", "content": "What is the capital of France?"}],
        "max_tokens": 24,
        "temperature": 0,
    }
    answer = server.client.post(f"{server.url}/v1/chat/completions", json=body, timeout=120)
    assert answer.status_code == 200, answer.text
    (choice,) = answer.json()["choices"]
    assert "Paris" in choice["message"]["content"]
    assert choice["finish_reason"] == "stop"
    report = server.report()
    assert report["parity"]["agrees"]
    assert report["parity"]["message"].startswith("Int8: ")
    room = report["generation"]
    assert (room["maxLength"], room["bytesPerToken"], report["precision"]) == (LENGTH, 46_080, "Int8")
    assert room["weightsBytes"] < 0.5 * 538_060_160, "a byte for a weight, and the embedding as it is"
    used = resident(server.process.pid)
    assert used < room["weightsBytes"] + room["cacheBytes"] + room["stepBytes"] + (420 << 20), used


def resident(pid: int) -> int:
    """Bytes of its own memory (no files)."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("RssAnon"))) * 1024
