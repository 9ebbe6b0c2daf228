"""`headway serve` for somebody who has never seen it: when it is ready, how to ask it, and that it ends."""

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import httpx
import pytest
from headway_runtime.cli import app
from headway_runtime.local import Child, LocalError, Ports
from typer.testing import CliRunner

from tests.ports import free_port
from tests.unit.pod_process import until
from tests.unit.small_models import Encoder, export

SIGNALS = "signal.signal(signal.SIGINT, signal.default_int_handler); signal.signal(signal.SIGHUP, signal.SIG_DFL)"
PROGRAM = f"import signal; {SIGNALS}; import headway_runtime.cli as c; c.main()"
"""As in a terminal: a shell's background job, as these tests may be, begins with SIGINT ignored, and loses it."""


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export(Encoder, tmp_path_factory.mktemp("serve") / "encoder.pt2")


@contextmanager
def serving(artifact: Path, *options: str, program: str = PROGRAM) -> Iterator["subprocess.Popen[str]"]:
    """`headway serve`, in a process group of its own, on ports that it chose."""
    command = [sys.executable, "-c", program, "serve", str(artifact), "--port", "0", "--admin-port", "0"]
    command += ["--grpc-port", "0", *options]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
    try:
        yield process
    finally:
        if process.poll() is None:
            for child in children(process):  # the pod has a process group of its own
                os.kill(child, signal.SIGKILL)
            process.kill()
        process.wait()
        assert process.stderr is not None
        process.stderr.close()


def until_ready(process: "subprocess.Popen[str]") -> str:
    """What it says until it is ready, with the example."""
    stream: IO[str] | None = process.stderr
    assert stream is not None
    said = ""
    for line in stream:
        said += line
        if line.startswith("Ctrl-C"):
            return said
    raise AssertionError(said)


def children(process: "subprocess.Popen[str]") -> list[int]:
    return [int(pid) for pid in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]


def test_it_says_how_far_it_is_and_how_to_ask_it_and_the_example_is_answered(artifact: Path) -> None:
    with serving(artifact) as process:
        said = until_ready(process)
        (curl,) = re.findall(r"^curl .*$", said, flags=re.MULTILINE)
        _, _, url, _, header, _, body = shlex.split(curl)
        name, _, value = header.partition(": ")
        answer = httpx.post(url, content=body, headers={name: value}, timeout=60)
        docs, metrics = re.findall(r"^  (?:docs|metrics) +(http\S+)", said, flags=re.MULTILINE)
        found = [httpx.get(each, timeout=60).status_code for each in (docs, metrics)]
        port = url.partition("127.0.0.1:")[2].partition("/")[0]
        taken = CliRunner().invoke(
            app, ["serve", str(artifact), "--port", port, "--admin-port", "0", "--grpc-port", "0"]
        )
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    assert answer.status_code == 200
    assert [output["name"] for output in answer.json()["outputs"]] == ["pooled", "tokens"]
    assert found == [200, 200]
    assert re.search(r"warming \d+ buckets", said)
    assert re.search(r"ready in [0-9.]+ s: model encoder, \d+ buckets warm", said)
    assert "headway bench http://127" in said
    assert '"event"' not in said  # the pod's log is for machines, and shown when asked for
    assert taken.exit_code == 1
    assert re.search(rf"PortTaken: .*--port {port} .*: --port 0", " ".join(taken.output.split()))
    assert "preparing" not in taken.output


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_a_signal_to_it_alone_ends_it_and_the_pod(artifact: Path, number: signal.Signals) -> None:
    with serving(artifact, "--logs") as process:
        said = until_ready(process)
        (pod,) = children(process)
        assert os.getpgid(pod) != os.getpgid(process.pid)  # Ctrl-C on a terminal reaches it once, passed on
        process.send_signal(number)
        assert process.wait(30) == 0
        assert not Path(f"/proc/{pod}").exists()
    assert '"event":"bucket_warm"' in said  # the pod's log, asked for


def test_a_signal_before_it_is_ready_ends_it_too(artifact: Path) -> None:
    for delay in (0, 1):
        with serving(artifact) as process:
            assert process.stderr is not None
            assert "preparing" in process.stderr.readline()
            time.sleep(delay)
            process.send_signal(signal.SIGINT)
            process.wait(60)
            said = process.stderr.read()
            assert "Traceback" not in said
            assert "ready" not in said


def test_nohup_is_respected(artifact: Path) -> None:
    with serving(artifact, program=PROGRAM.replace("SIG_DFL", "SIG_IGN")) as process:
        said = until_ready(process)
        process.send_signal(signal.SIGHUP)
        (url,) = re.findall(r"POST (http://\S+?)/v2", said)[:1]
        for _ in range(20):
            assert httpx.get(f"{url}/v2/health/ready", timeout=60).status_code == 200
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0


def test_ports_are_chosen_and_named() -> None:
    with Ports.of("127.0.0.1") as ports:
        assert len({ports.inference, ports.admin, ports.grpc}) == 3
    asked = free_port()
    with Ports.of("127.0.0.1", asked) as ports:
        assert ports.inference == asked
    assert Ports("0.0.0.0", 1, 2, 3).url == "http://127.0.0.1:1"
    assert Ports("::1", 1, 2, 3).admin_url == "http://[::1]:2"
    with pytest.raises(LocalError, match="--host 192"):
        Ports.of("192.0.2.1")


def test_ports_are_held_from_the_first_look_and_given_away_to_the_process_that_serves(tmp_path: Path) -> None:
    with Ports.of("127.0.0.1") as ports:
        mine = f"{ports.inference} .Address already in use.*{ports.admin} .Address already in use.*{ports.grpc} .Addr"
        with pytest.raises(LocalError, match=mine):
            Ports.of("127.0.0.1", ports.inference, ports.admin, ports.grpc)
        numbers = [listener.fileno() for listener in ports.listeners]
        child = Child("headway_runtime.serve", {"--help": ""}, tmp_path, say=print, listeners=ports.listeners)
        with child:
            assert [listener.fileno() for listener in ports.listeners] == [-1, -1, -1]
        assert min(numbers) > 2
    with Ports.of("127.0.0.1", ports.inference, ports.admin, ports.grpc):
        pass


def test_who_is_started_without_an_input_gives_its_number_to_no_socket() -> None:
    """A process that is started then gets an input under that number, and not the socket."""
    program = (
        "import os; os.close(0); os.close(1); from headway_runtime.local import Ports; "
        "ports = Ports.of('127.0.0.1'); raise SystemExit(min(each.fileno() for each in ports.listeners))"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False, timeout=60).returncode > 2


def test_of_two_that_start_at_once_with_the_same_ports_one_serves(artifact: Path) -> None:
    ports = [f"--{name}={free_port()}" for name in ("port", "admin-port", "grpc-port")]
    with serving(artifact, *ports) as one, serving(artifact, *ports) as other:
        assert one.stderr is not None
        assert other.stderr is not None
        until(lambda: None in {one.poll(), other.poll()} and len({one.poll(), other.poll()}) == 2, "a refusal")
        refused, serves = (one, other) if one.poll() is not None else (other, one)
        assert refused.returncode == 1
        said = refused.stderr.read() if refused.stderr else ""
        assert "PortTaken" in said
        assert "preparing" not in said
        until_ready(serves)


def test_the_version_is_said() -> None:
    result = CliRunner().invoke(app, ["--version"])
    assert result.exit_code == 0
    assert re.fullmatch(r"headway \d+\.\d+\.\d+\S*\n", result.output)


@pytest.mark.parametrize("command", ["serve", "bench"])
def test_help_fits_a_terminal(command: str) -> None:
    result = CliRunner().invoke(app, [command, "--help"], terminal_width=80)
    assert result.exit_code == 0
    assert max(len(line) for line in result.output.splitlines()) <= 80


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_measurement_that_is_told_to_end_ends_soon_and_shows_no_figures(artifact: Path, number: int) -> None:
    command = [sys.executable, "-c", PROGRAM, "bench", str(artifact), "--seconds", "2", "--connections", "1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            assert any("closed, 1" in line for line in process.stderr)
            (pod,) = children(process)
            process.send_signal(number)
            said, _ = process.communicate(timeout=20)  # a pod that others ask would wait for them
        finally:
            process.kill()
    assert (process.returncode, said) == (130, "")
    assert not Path(f"/proc/{pod}").exists()
