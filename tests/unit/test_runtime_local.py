"""The command line on a laptop: the pod's own processes, prepare included, and what they say when they refuse."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import httpx
import pytest
from headway_api.podconfig import Phase, Report
from headway_api.rules import BATCH_ABOVE_BUCKETS
from headway_api.types import Precision
from headway_runtime import local
from headway_runtime.cli import app
from headway_runtime.cli.arguments import told
from headway_runtime.cli.serve_progress import Progress
from headway_runtime.local_process import Child
from headway_runtime.native import package
from typer.testing import CliRunner

from tests.hostile import archives
from tests.ports import free_port
from tests.unit.pod_process import question
from tests.unit.small_models import Encoder, export

ANY_PORTS = ("--port", "0", "--admin-port", "0", "--grpc-port", "0")
MANIFEST = """
apiVersion: serving.headway.dev/v1alpha1
kind: ModelDeployment
metadata: {name: sentiment}
spec:
  artifact: {uri: s3://models/elsewhere.pt2}
  device: {kind: cpu}
  batching: {maxBatch: 2, maxWait: 0ms, shapeBuckets: {batch: [1, 4], sequence: [8]}, dimensions: {sequence: ids.1}}
"""


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export(Encoder, tmp_path_factory.mktemp("local") / "My_Model.pt2")


def test_inspect_says_what_a_program_is_and_refuses_what_is_none(artifact: Path, tmp_path: Path) -> None:
    runner = CliRunner()
    accepted = runner.invoke(app, ["inspect", str(artifact), "--json"])
    assert accepted.exit_code == 0
    assert [i["name"] for i in json.loads(accepted.stdout)["programs"][0]["inputs"]] == ["ids", "mask"]
    (tmp_path / "no.pt2").write_text("no program")
    refused = runner.invoke(app, ["inspect", str(tmp_path / "no.pt2")])
    assert refused.exit_code == 1
    assert "refused" in refused.stdout


def test_serve_answers_under_the_manifests_name_and_rules_and_leaves_nothing_behind(
    artifact: Path, tmp_path: Path
) -> None:
    (tmp_path / "md.yaml").write_text(MANIFEST)
    port, admin = free_port(), free_port()
    options = [
        "--manifest",
        str(tmp_path / "md.yaml"),
        "--port",
        str(port),
        "--admin-port",
        str(admin),
        "--grpc-port",
        "0",
    ]
    program = "import sys, headway_runtime.cli as c; c.main()"
    process = subprocess.Popen(
        [sys.executable, "-c", program, "serve", str(artifact), *options],
        stderr=subprocess.DEVNULL,
        env={"TMPDIR": str(tmp_path), "PATH": "/usr/bin:/bin", "OMP_WAIT_POLICY": "passive", "TOKEN": "of the user"},
    )
    try:
        with httpx.Client(timeout=10) as client:
            wait_until_ready(client, f"http://127.0.0.1:{port}/v2/health/ready", process)
            (serving,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
            told = dict(line.split("=", 1) for line in Path(f"/proc/{serving}/environ").read_text().split("\0") if line)
            report = client.get(f"http://127.0.0.1:{admin}/report").json()
            answer = client.post(f"http://127.0.0.1:{port}/v2/models/sentiment/infer", json=question([[1, 2]]))
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    assert told.keys() - {"LC_CTYPE"} == {"TMPDIR", "PATH", "OMP_WAIT_POLICY"}  # the interpreter sets the locale
    assert report["knobs"]["effective"]["maxBatch"] == 2
    assert (report["sandbox"]["seccomp"], report["sandbox"]["missing"]) == (True, [])
    assert report["buckets"]["total"] == 2
    assert answer.status_code == 200
    assert [p.name for p in tmp_path.iterdir()] == ["md.yaml"]


def test_the_pod_ends_with_headway_serve_even_when_that_is_killed(artifact: Path, tmp_path: Path) -> None:
    port = free_port()
    options = ["--port", str(port), "--admin-port", "0", "--grpc-port", "0"]
    program = "import sys, headway_runtime.cli as c; c.main()"
    process = subprocess.Popen(
        [sys.executable, "-c", program, "serve", str(artifact), *options],
        stderr=subprocess.DEVNULL,
        env={"TMPDIR": str(tmp_path), "PATH": "/usr/bin:/bin"},
    )
    try:
        with httpx.Client(timeout=10) as client:
            wait_until_ready(client, f"http://127.0.0.1:{port}/v2/health/ready", process)
        (serving,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    finally:
        process.kill()
        process.wait()
    end = time.monotonic() + 20
    while runs(serving):
        assert time.monotonic() < end, "it serves for ever"
        time.sleep(0.05)


def runs(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_what_a_process_says_is_taken_even_where_nobody_listens(tmp_path: Path) -> None:
    heard = []

    def say(line: str) -> None:
        heard.append(line)
        raise BrokenPipeError if len(heard) == 1 else SystemExit(1)

    child = Child("none", {}, tmp_path, say=say)
    reader, writer = os.pipe()
    with os.fdopen(writer, "wb") as stream:
        stream.write(b"one\ntwo\nthree\n")
    child._read(os.fdopen(reader, "rb"))
    assert heard == ["one", "two", "three"]


def wait_until_ready(client: httpx.Client, url: str, process: "subprocess.Popen[bytes]") -> None:
    end = time.monotonic() + 90
    while time.monotonic() < end:
        assert process.poll() is None
        try:
            if client.get(url).status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.1)
    raise AssertionError("not ready in 90 s")


@pytest.mark.parametrize("command", ["inspect", "serve"])
def test_nothing_beside_a_downloaded_model_is_imported(command: str, artifact: Path, tmp_path: Path) -> None:
    """Whoever sends a model sends the folder that it is in, where `python -m` would look for modules first."""
    for module in ("json", "argparse", "resource", "subprocess", "pydantic", "orjson", "torch", "headway_api"):
        (tmp_path / f"{module}.py").write_text(f"open({str(tmp_path / 'marker')!r}, 'a').write({module!r})")
    shutil.copyfile(artifact, tmp_path / "model.pt2")
    program = "import sys, headway_runtime.cli as c; c.main()"
    port = free_port()
    options = ["--port", str(port), "--admin-port", "0", "--grpc-port", "0"] if command == "serve" else []
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", program, command, "model.pt2", *options],
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        if command == "serve":
            with httpx.Client(timeout=10) as client:
                wait_until_ready(client, f"http://127.0.0.1:{port}/v2/health/ready", process)
            process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        assert not (tmp_path / "marker").exists()
    finally:
        process.kill()
        process.wait()


def test_serve_says_why_an_artifact_is_refused(tmp_path: Path) -> None:
    (tmp_path / "no.pt2").write_text("no program")
    refused = CliRunner().invoke(app, ["serve", str(tmp_path / "no.pt2"), *ANY_PORTS])
    assert refused.exit_code == 1
    assert "ArtifactVerified=False/" in refused.output


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (("--port", "8080", "--admin-port", "8080"), "--port and --admin-port are both 8080"),
        (("--port", "9", "--grpc-port", "9"), "--port and --grpc-port are both 9"),
        (("--admin-port", "7001", "--grpc-port", "7001"), "--admin-port and --grpc-port are both 7001"),
        (("--admin-port", "8080"), "--port and --admin-port are both 8080"),
    ],
)
def test_two_options_with_one_port_are_named_at_once(artifact: Path, options: tuple[str, ...], named: str) -> None:
    refused = CliRunner().invoke(app, ["serve", str(artifact), *options])
    assert refused.exit_code == 2
    assert named in words(refused.output)


def test_all_ports_that_are_taken_are_named_before_anything_is_prepared(artifact: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as two:
        first, second = (str(taken.getsockname()[1]) for taken in (one, two))
        options = ["--port", first, "--admin-port", second, "--grpc-port", "0"]
        refused = CliRunner().invoke(app, ["serve", str(artifact), *options])
    said = words(refused.output)
    assert refused.exit_code == 1
    assert f"--port {first} (Address already in use), --admin-port {second} (Address already in use)" in said
    assert "--port 0 --admin-port 0" in said
    assert "preparing" not in said


def test_the_report_of_another_pod_is_not_taken_for_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both serve one file, so that their models have one name; the pod's own end is what it waits for."""
    mine, others = (local.write_files(tmp_path, tmp_path / "same.pt2", None) for _ in range(2))
    asked = []

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            body = Report(model=others.model, revision=others.revision, phase=Phase.READY).to_json().encode()
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    with HTTPServer(("127.0.0.1", 0), Answers) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        ports = local.Ports("127.0.0.1", free_port(), server.server_port, free_port())

        class Ends(Child):
            @property
            def running(self) -> bool:
                return len(asked) < 3

        Progress(logs=False).follow(Ends("none", {}, tmp_path, say=print), ports, mine, tmp_path)
        server.shutdown()
    assert mine.model == others.model
    assert set(asked) == {"/report"}
    assert "ready" not in capsys.readouterr().err


def words(output: str) -> str:
    """What is said, without the frame and the lines of a terminal."""
    return " ".join(output.replace("│", " ").split())


@pytest.mark.parametrize(
    ("file", "content", "says"),
    [
        ("model.py", b"import torch", "headway export {0}:NAME -o model.pt2"),
        ("tiny/model.safetensors", b"", "headway export --task generate {1} -o tiny.pt2"),
        ("tiny/config.json", b"{}", "headway export --task generate {1} -o tiny.pt2"),
        ("alone.json", b"{}", "Export the module that it belongs to: headway export"),
        ("alone.safetensors", b"", "holds weights without a program"),
    ],
)
@pytest.mark.parametrize("command", ["serve", "inspect", "bench"])
def test_what_is_still_to_be_exported_is_said_with_the_command(
    command: str, file: str, content: bytes, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = Path(file)
    path.parent.mkdir(exist_ok=True)
    if file.startswith("tiny/"):
        (path.parent / "config.json").write_text("{}")
    path.write_bytes(content)
    refused = CliRunner().invoke(app, [command, str(path)])
    assert refused.exit_code == 2
    assert says.format(path, path.parent) in words(refused.output)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"\x80\x02}q\x00." + b"." * 64, "a pickle"),
        (b"GGUF" + bytes(64), "GGUF"),
        (b"\x08" + bytes(7) + b'{"a":1} ' + bytes(32), "safetensors"),
        (b"just some text, long enough to be looked at", "it is text"),
        (b"\x7fELF\x02\x01\x01" + bytes(64), "7f 45 4c 46"),
        (b"\x80" * 30, "80 80"),
    ],
)
def test_what_is_no_archive_is_said_in_plain_words(tmp_path: Path, content: bytes, says: str) -> None:
    (tmp_path / "file.pt2").write_bytes(content)
    said = words(CliRunner().invoke(app, ["inspect", str(tmp_path / "file.pt2")]).output)
    assert says in said
    assert "URI" not in said
    assert "end record" not in said


def test_a_native_package_is_for_a_cluster(artifact: Path, tmp_path: Path) -> None:
    names = {package.MANIFEST: b"{}", package.SOURCE: artifact.read_bytes()}
    archives.write(tmp_path / "x.native.pt2", names)
    refused = CliRunner().invoke(app, ["serve", str(tmp_path / "x.native.pt2"), *ANY_PORTS])
    assert refused.exit_code == 1
    assert "serve the plain .pt2 here" in words(refused.output)
    assert "spec.artifact" not in refused.output


def test_precision_is_read_in_any_case_and_its_choices_are_said(tmp_path: Path, artifact: Path) -> None:
    (tmp_path / "no.pt2").write_text("no program")
    known = CliRunner().invoke(app, ["serve", str(tmp_path / "no.pt2"), "--precision", "int8", *ANY_PORTS])
    assert known.exit_code == 1  # for what the file is
    unknown = CliRunner().invoke(app, ["serve", str(artifact), "--precision", "int4"])
    assert unknown.exit_code == 2
    assert "there is no int4; write Exported, BFloat16, Int8" in words(unknown.output)
    refusal = local.LocalError("Accepted=False/PrecisionRefused: spec.precision: Int8, and there is no sample")
    assert "PrecisionRefused: --precision: Int8" in told(refusal, Precision.INT8)
    assert "PrecisionRefused: spec.precision: Int8" in told(refusal, None)


def test_serve_says_that_signatures_are_not_asked_for_here(tmp_path: Path) -> None:
    trust = "trust: {require: Signature, publicKeys: {secretName: signers}}"
    (tmp_path / "md.yaml").write_text(MANIFEST.replace("elsewhere.pt2}", f"elsewhere.pt2, {trust}}}"))
    (tmp_path / "no.pt2").write_text("no program")
    said = CliRunner().invoke(
        app, ["serve", str(tmp_path / "no.pt2"), "--manifest", str(tmp_path / "md.yaml"), *ANY_PORTS]
    )
    assert "spec.artifact.trust" in said.output
    (tmp_path / "md.yaml").write_text(MANIFEST)
    said = CliRunner().invoke(
        app, ["serve", str(tmp_path / "no.pt2"), "--manifest", str(tmp_path / "md.yaml"), *ANY_PORTS]
    )
    assert "spec.artifact.trust" not in said.output


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("kind: Deployment", "no document of kind ModelDeployment"),
        ("[", "ParserError"),
        (MANIFEST.replace("maxBatch: 2", "maxBatch: 0"), "spec.batching.maxBatch"),
        (MANIFEST.replace("metadata: {name: sentiment}", ""), "metadata"),
        (MANIFEST.replace("maxBatch: 2", "maxBatch: 5"), f"spec.batching.maxBatch: {BATCH_ABOVE_BUCKETS}"),
        (MANIFEST.replace("[1, 4]", "[4, 1]"), "spec.batching.shapeBuckets.batch: write the sizes in ascending order"),
        (MANIFEST.replace("[8]", "[8, 8]"), "spec.batching.shapeBuckets.sequence: write the sizes in ascending order"),
    ],
)
def test_a_manifest_that_cannot_be_used_is_said(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "md.yaml").write_text(text)
    with pytest.raises(local.LocalError, match=says):
        local.read_manifest(tmp_path / "md.yaml")


@pytest.mark.parametrize(
    ("file", "name"), [("My_Model.pt2", "my-model"), ("2nd.pt2", "model-2nd"), ("___.pt2", "model"), ("ok.pt2", "ok")]
)
def test_without_a_manifest_the_files_name_names_the_model(tmp_path: Path, file: str, name: str) -> None:
    assert local.write_files(tmp_path, tmp_path / file, None).model == name
