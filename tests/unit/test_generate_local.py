"""`headway serve` of a decoder: the manifest's fields, how long it is until it is ready, and how to ask it."""

import json
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from headway_api.podconfig import ColdConfig, GenerationReport
from headway_api.rules import FIELDS_OF_DYNAMIC, GENERATION_IS_CONTINUOUS, PROGRAM_IS_THE_DRAFT
from headway_api.types import Precision
from headway_runtime import local
from headway_runtime.cli.serve_words import asking, in_force, room

from tests.decoders import tiny

PROGRAM = "import sys, headway_runtime.cli as c; c.main()"
MANIFEST = """
apiVersion: serving.headway.dev/v1alpha1
kind: ModelDeployment
metadata: {{name: writer}}
spec:
  artifact: {{uri: s3://models/elsewhere.pt2}}
  device: {{kind: cpu}}
  {fields}
"""
GENERATION = (
    "generation: {maxLength: 128, cacheBytes: 1Mi, cacheType: BFloat16, stepTokens: 32, "
    "speculation: {method: PromptLookup}}"
)


def manifest(folder: Path, fields: str) -> Path:
    path = folder / "md.yaml"
    path.write_text(MANIFEST.format(fields=fields))
    return path


def test_the_fields_of_generation_rule_on_a_laptop_as_in_a_cluster(tmp_path: Path) -> None:
    found = local.read_manifest(manifest(tmp_path, GENERATION))
    config = local.write_files(tmp_path, tmp_path / "model.pt2", found)
    assert config.generation.model_dump(mode="json") == {
        "max_length": 128,
        "cache_bytes": "1Mi",
        "cache_type": "BFloat16",
        "speculation": {"method": "PromptLookup", "tokens": 4, "program": "draft"},
    }
    assert ColdConfig.model_validate_json((tmp_path / "config.json").read_text()) == config
    assert json.loads((tmp_path / "knobs.json").read_text())["stepTokens"] == 32


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        (
            "batching: {policy: Dynamic}\n  generation: {maxLength: 8}",
            f"spec.generation: {GENERATION_IS_CONTINUOUS}",
        ),
        ("batching: {policy: Continuous, instances: 2}", f"spec.batching.policy: {FIELDS_OF_DYNAMIC}"),
        (
            "generation: {speculation: {method: PromptLookup, program: other}}",
            f"spec.generation.speculation.program: {PROGRAM_IS_THE_DRAFT}",
        ),
    ],
)
def test_a_manifest_that_the_api_server_would_refuse_is_refused_here_in_its_words(
    tmp_path: Path, fields: str, says: str
) -> None:
    with pytest.raises(local.LocalError) as raised:
        local.read_manifest(manifest(tmp_path, fields))
    assert says in str(raised.value)


def test_serving_a_decoder_says_how_to_ask_it_and_the_example_is_answered_as_a_stream(tmp_path: Path) -> None:
    artifact = tiny(tmp_path)
    options = ["--port", "0", "--admin-port", "0", "--grpc-port", "0"]
    options += ["--manifest", str(manifest(tmp_path, "generation: {maxLength: 128, cacheBytes: 1Mi}"))]
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, "serve", str(artifact), *options], stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stderr is not None
        said = ""
        for line in process.stderr:
            said += line
            if line.startswith("Ctrl-C"):
                break
        assert re.search(r"^ready in .*: model writer, 3 steps warm", said, flags=re.MULTILINE), said
        assert "room for 15 sequences of 128 tokens at a time (1.0 MiB of keys and values)" in said
        assert "knobs in force: maxBatch 64, stepTokens 256" in said
        assert re.search(r"^  gRPC     127\.0\.0\.1:\d+   \(Triton's text streams\)", said, flags=re.MULTILINE), said
        assert re.search(r"^  kernels  (native|reference)\S*, weights Exported, \d", said, flags=re.MULTILINE), said
        (curl,) = re.findall(r"^curl .*$", said, flags=re.MULTILINE)
        _, _, url, _, header, _, body = shlex.split(curl)
        name, _, value = header.partition(": ")
        answer = httpx.post(url, content=body, headers={name: value}, timeout=60)
        assert (answer.status_code, answer.text.rstrip().endswith("data: [DONE]")) == (200, True), answer.text
        assert url.endswith("/v1/chat/completions"), "it has a chat template"
        base = re.search(r'OpenAI\(base_url="(\S+)", api_key="none"\)', said)
        assert base is not None
        assert httpx.get(f"{base[1]}/models", timeout=60).json()["data"][0]["id"] == "writer"
        process.send_signal(signal.SIGINT)
        assert process.wait(60) in (0, 130)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        process.stderr.close()  # type: ignore[union-attr]


def test_a_decoder_in_fewer_bits_tells_the_figures_of_its_trial(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PROGRAM, "serve", str(tiny(tmp_path)), "--precision", "bfloat16"]
    ports = ["--port", "0", "--admin-port", "0", "--grpc-port", "0"]
    process = subprocess.Popen([*command, *ports], stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    said: list[str] = []
    try:
        for line in process.stderr:
            said.append(line)
            if line.startswith("Ctrl-C"):
                break
        process.send_signal(signal.SIGINT)
        process.wait(60)
    finally:
        process.kill()
        process.wait()
        process.stderr.close()
    assert re.search(r"^  weights  BFloat16: \d+ of \d+ golden tokens", "".join(said), flags=re.MULTILINE), said


def test_without_a_chat_template_the_example_is_a_completion() -> None:
    (_, client), curl = asking("http://127.0.0.1:8080", "writer", chats=False)
    assert "/v1/completions" in curl
    assert '"prompt"' in curl
    assert 'base_url="http://127.0.0.1:8080/v1"' in client


def test_room_and_knobs_are_said_in_words() -> None:
    report = GenerationReport(
        block_tokens=16, blocks=9, blocks_free=9, bytes_per_token=1, cache_bytes=2048, max_length=100, sequences=1
    )
    assert room(report) == "room for one sequence of 100 tokens at a time (2.0 KiB of keys and values)"
    effective = {"maxBatch": 64, "stepTokens": 256, "prefixCache": True}
    changed = {**effective, "prefixCache": False}
    assert in_force(changed, [], effective) == "knobs in force: maxBatch 64, stepTokens 256, prefixCache False"


def test_a_precision_of_the_command_line_wins_over_the_manifests(tmp_path: Path) -> None:
    found = local.read_manifest(manifest(tmp_path, "precision: Int8"))
    artifact = tmp_path / "model.pt2"
    assert local.write_files(tmp_path, artifact, found).precision is Precision.INT8
    assert local.write_files(tmp_path, artifact, found, precision=Precision.BFLOAT16).precision is Precision.BFLOAT16
    assert local.write_files(tmp_path, artifact, None, precision=Precision.INT8).precision is Precision.INT8
    assert local.write_files(tmp_path, artifact, None).precision is Precision.EXPORTED
