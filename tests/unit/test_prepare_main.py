"""The init container as the pod runs it: what it answers, logs and leaves behind."""

import hashlib
import json
import resource
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from headway_runtime.prepare import isolate
from headway_runtime.prepare.errors import Refusal
from headway_runtime.prepare.report import describe


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("artifact") / "model.pt2"
    torch.manual_seed(1)
    program = torch.export.export(
        torch.nn.Linear(3, 2), (torch.ones(4, 3),), dynamic_shapes=({0: torch.export.Dim("n", min=1, max=9)},)
    )
    torch.export.save(program, path)
    return path


def digest(path: Path) -> str:
    return f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}"


class Pod:
    """The files that the operator mounts, and a run of the container."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.output = root / "model"

    def run(self, uri: str, *, pinned: str | None = None) -> tuple[int, dict[str, Any], str]:
        process = self.start(uri, pinned=pinned)
        log = process.communicate()[1].decode()
        return process.returncode, json.loads((self.root / "term").read_text()), log

    def start(self, uri: str, *, pinned: str | None = None) -> "subprocess.Popen[bytes]":
        config = {
            "model": "m",
            "namespace": "n",
            "revision": "r1",
            "artifact": {"uri": uri},
            "device": {"kind": "cpu"},
            "batching": {},
        }
        (self.root / "config.json").write_text(json.dumps(config))
        if pinned is not None:
            (self.root / "digest").write_text(pinned + "\n")
        options = {
            "config": "config.json",
            "digest-file": "digest",
            "credentials": "credentials",
            "output": "model",
            "termination-log": "term",
        }
        command = [sys.executable, "-m", "headway_runtime.prepare"]
        command += [part for name, file in options.items() for part in (f"--{name}", str(self.root / file))]
        return subprocess.Popen(command, stderr=subprocess.PIPE)


@pytest.fixture
def pod(tmp_path: Path) -> Pod:
    return Pod(tmp_path)


def test_an_artifact_is_prepared_and_reported(pod: Pod, artifact: Path) -> None:
    code, message, log = pod.run(artifact.as_uri(), pinned=digest(artifact))
    assert code == 0, log
    assert message["reason"] == "Prepared"
    assert message["digest"] == digest(artifact)
    assert message["bytes"] == artifact.stat().st_size
    assert message["torch"] == torch.__version__.partition("+")[0]
    assert sorted(p.name for p in pod.output.iterdir()) == ["prepared.json", "programs", "weights.bin"]
    assert all(json.loads(line)["event"] for line in log.splitlines())


def test_a_restarted_container_does_nothing_again(pod: Pod, artifact: Path) -> None:
    pod.run(artifact.as_uri(), pinned=digest(artifact))
    before = {p.name: p.stat().st_mtime_ns for p in pod.output.iterdir()}
    code, message, log = pod.run(artifact.as_uri(), pinned=digest(artifact))
    assert (code, message["reason"]) == (0, "Prepared")
    assert "prepare.reused" in log
    assert {p.name: p.stat().st_mtime_ns for p in pod.output.iterdir()} == before


def test_a_damaged_directory_is_prepared_again(pod: Pod, artifact: Path) -> None:
    pod.run(artifact.as_uri())
    (pod.output / "weights.bin").write_bytes(b"short")
    code, _, log = pod.run(artifact.as_uri())
    assert code == 0
    assert "prepare.reused" not in log


def test_what_a_killed_attempt_left_makes_room(pod: Pod, artifact: Path) -> None:
    for name in (".fetch-killed/artifact.pt2", ".weights.bin", "programs/old.json"):
        (pod.output / name).parent.mkdir(parents=True, exist_ok=True)
        (pod.output / name).write_bytes(b"left")
    code, _, log = pod.run(artifact.as_uri())
    assert code == 0, log
    assert sorted(p.name for p in pod.output.iterdir()) == ["prepared.json", "programs", "weights.bin"]


@pytest.mark.parametrize(
    "uri",
    ["s3://user:TOPSECRET@bucket/m.pt2", "https://store/m.pt2?X-Amz-Signature=TOPSECRET", ["https://u:TOPSECRET@h/m"]],
    ids=["password", "signed", "wrong type"],
)
def test_a_secret_in_the_uri_is_said_nowhere(pod: Pod, uri: str) -> None:
    code, message, log = pod.run(uri)
    assert code == 1
    assert message["reason"] in ("InvalidURI", "PrepareFailed")
    assert "TOPSECRET" not in log + json.dumps(message)


def test_sigterm_ends_a_fetch_that_waits_for_its_store(pod: Pod) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        process = pod.start(f"http://127.0.0.1:{server.getsockname()[1]}/model.pt2")
        try:
            connection, _ = server.accept()
            with connection:
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\nbegun")
                time.sleep(0.2)
                process.terminate()
                assert process.wait(60) == 128 + signal.SIGTERM
        finally:
            process.kill()
            process.communicate()


def test_a_wrong_digest_names_both_and_the_field(pod: Pod, artifact: Path) -> None:
    wrong = f"sha256:{'0' * 64}"
    code, message, _ = pod.run(artifact.as_uri(), pinned=wrong)
    assert code == 1
    assert (message["condition"], message["reason"], message["field"]) == (
        "ArtifactVerified",
        "DigestMismatch",
        "spec.artifact.digest",
    )
    assert wrong in message["message"]
    assert digest(artifact) in message["message"]
    assert not (pod.output / "prepared.json").exists()


def test_what_is_no_archive_says_so(pod: Pod) -> None:
    path = pod.root / "readme.txt"
    path.write_text("not a model" * 100)
    code, message, _ = pod.run(path.as_uri())
    assert code == 1
    assert (message["reason"], message["field"]) == ("NotAnArchive", "spec.artifact.uri")
    assert "torch.export.save" in message["message"]


def test_an_altered_artifact_is_unsafe_with_rule_and_record(pod: Pod, artifact: Path) -> None:
    path = pod.root / "altered.pt2"
    path.write_bytes(artifact.read_bytes().replace(b"aten.linear", b"aten.lineax"))
    code, message, _ = pod.run(path.as_uri())
    assert code == 1
    assert message["reason"] == "UnsafeArtifact"
    assert "archive.crc" in message["message"]
    assert "models/model.json" in message["message"]


def test_a_missing_artifact_is_not_found_and_leaves_nothing(pod: Pod) -> None:
    code, message, _ = pod.run((pod.root / "missing.pt2").as_uri())
    assert (code, message["reason"]) == (1, "NotFound")
    assert list(pod.output.iterdir()) == []


def test_a_digest_that_is_none_is_refused(pod: Pod, artifact: Path) -> None:
    code, message, _ = pod.run(artifact.as_uri(), pinned="latest")
    assert (code, message["reason"], message["field"]) == (1, "InvalidSpec", "spec.artifact.digest")


def test_a_configuration_that_cannot_be_read_is_reported_not_raised(pod: Pod) -> None:
    (pod.root / "model").mkdir()
    code, message, _ = pod.run(["no uri"])  # type: ignore[arg-type]  # that is the mistake
    assert (code, message["reason"]) == (1, "PrepareFailed")


def test_the_termination_message_fits_what_kubernetes_keeps(pod: Pod) -> None:
    code, _, _ = pod.run(f"file:///{'x' * 9000}\u00fc")
    assert code == 1
    assert len((pod.root / "term").read_bytes()) <= 4096


def test_the_inspector_is_limited_in_memory_and_time(monkeypatch: pytest.MonkeyPatch, artifact: Path) -> None:
    monkeypatch.setattr(isolate, "__name__", "tests.unit.hungry_inspector")
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))  # it is not looked for in the current folder
    before = resource.getrlimit(resource.RLIMIT_AS)
    with pytest.raises(Refusal) as refused:
        isolate.inspect_isolated(artifact)
    assert refused.value.rule == "inspector.limits"
    assert resource.getrlimit(resource.RLIMIT_AS) == before  # the limits are the child's own


def test_the_report_describes_a_program_for_people_and_for_ci(artifact: Path) -> None:
    report = describe(artifact)
    assert report.accepted
    text, facts = report.to_text(), json.loads(report.to_json())
    assert "batch: 1 to 9, requests are joined along it" in text
    (program,) = facts["programs"]
    assert program["inputs"] == [{"name": "input", "dtype": "float32", "shape": ["batch", "3"]}]
    assert program["operators"] == {"aten.linear.default": 1}


def test_the_report_of_a_refused_file_says_why(tmp_path: Path) -> None:
    path = tmp_path / "empty.pt2"
    path.write_bytes(b"")
    report = describe(path)
    assert not report.accepted
    assert [r["rule"] for r in json.loads(report.to_json())["refusals"]] == ["archive.not_zip"]
    assert "refused (NotAnArchive)" in report.to_text()
