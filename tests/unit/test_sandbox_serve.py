"""The complete serving process, confined: what it cannot do, what it says of itself, and what it does on kernels that
lack something. What it still does is in `test_runtime_serve`, whose pods all demand the sandbox.
"""

import errno
import json
import os
import resource
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import httpx
import pytest
from headway_runtime.sandbox import landlock

from tests.ports import free_port
from tests.unit.pod_process import PodProcess, command, mount, pod, question
from tests.unit.sandbox_acts import ACTS, ALLOWED
from tests.unit.sandbox_scene import done, furnish, made_in, refused
from tests.unit.sandbox_world import World
from tests.unit.small_models import Encoder, export, prepare

ROOT = Path(__file__).parents[2]
BATCHING = {"shapeBuckets": {"batch": [1], "sequence": [4]}, "dimensions": {"sequence": "ids.1"}}
POD_USER = 65532
NO_LANDLOCK = {"landlock": errno.EOPNOTSUPP}


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("confined")
    return prepare(export(Encoder, folder / "model.pt2"), folder / "model")


@contextmanager
def pod_with(
    folder: Path,
    model: Path,
    config: Mapping[str, Any],
    *,
    acts: list[str] | None = None,
    world: World | None = None,
    lack: Mapping[str, int] | None = None,
) -> Iterator[PodProcess]:
    """A pod with a traitor in it that does `acts`, or on a kernel that lacks something."""
    port, admin_port = free_port(), free_port()
    facts = {name: value for name, value in asdict(world).items() if value != -1} if world else {}
    request = {"acts": acts or [], "world": facts, "lack": lack or {}, "user": None}
    arguments = command(folder, model, {"batching": BATCHING, **config}, port, admin_port)
    wrapped = [sys.executable, "-m", "tests.unit.sandbox_server", json.dumps(request), *arguments[3:]]
    with (folder / "log").open("wb") as log, httpx.Client(timeout=60) as client:
        process = subprocess.Popen(wrapped, stderr=log, cwd=ROOT)
        try:
            yield PodProcess(process, folder, port, admin_port, client)
        finally:
            if process.poll() is None:
                process.kill()
            process.wait()


def test_a_traitor_in_the_server_is_refused_everything_while_it_serves(prepared: Path, tmp_path: Path) -> None:
    with ExitStack() as stack:
        world = made_in(tmp_path, stack)
        furnish(tmp_path)
        for file in prepared.rglob("*"):
            if file.is_file():
                (tmp_path / "model" / file.relative_to(prepared)).parent.mkdir(exist_ok=True)
                os.link(file, tmp_path / "model" / file.relative_to(prepared))
        everything = [*ACTS, *ALLOWED]
        server = stack.enter_context(pod_with(tmp_path, tmp_path / "model", {}, acts=everything, world=world))
        server.wait_for_phase()
        (tmp_path / "scratch" / "go").touch()
        outcomes = json.loads(eventually(tmp_path / "scratch" / "outcomes"))
        assert (done(outcomes), refused(outcomes)) == (set(ALLOWED), set(ACTS))
        assert server.client.post(server.infer, json=question([[1, 2]])).status_code == 200
        assert server.terminate() == 0


def eventually(file: Path, seconds: float = 120) -> str:
    end = time.monotonic() + seconds
    while not file.exists():
        assert time.monotonic() < end
        time.sleep(0.02)
    return file.read_text()


def test_every_thread_of_the_server_is_confined_and_nothing_was_inherited(prepared: Path, tmp_path: Path) -> None:
    with socket.socket() as mine:
        mine.set_inheritable(True)
        before = os.stat(f"/proc/self/fd/{mine.fileno()}").st_ino
        with inheriting(mine.fileno()), pod(tmp_path, prepared, batching=BATCHING) as server:
            server.wait_for_phase()
            server.client.post(server.infer, json=question([[1, 2]])).raise_for_status()
            folder = Path(f"/proc/{server.process.pid}")
            threads = [status_of(thread) for thread in (folder / "task").iterdir()]
            descriptors = [os.stat(link) for link in (folder / "fd").iterdir()]
            limits = resource.prlimit(server.process.pid, resource.RLIMIT_CORE)
            assert os.readlink(folder / "fd" / "0") == os.devnull
            assert before not in {each.st_ino for each in descriptors}
    assert len(threads) > 2
    assert {(thread["Seccomp"], thread["NoNewPrivs"]) for thread in threads} == {("2", "1")}
    assert limits == (0, 0)


@contextmanager
def inheriting(descriptor: int) -> Iterator[None]:
    """Children get this descriptor, as from a careless container runtime."""
    real = subprocess.Popen

    class Careless(real):  # type: ignore[type-arg, misc, valid-type]
        def __init__(self, *given: Any, **options: Any) -> None:
            super().__init__(*given, pass_fds=[descriptor], **options)

    subprocess.Popen = Careless  # type: ignore[misc]
    try:
        yield
    finally:
        subprocess.Popen = real  # type: ignore[misc]


def status_of(thread: Path) -> dict[str, str]:
    lines = (thread / "status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def test_the_report_and_the_metrics_say_that_nothing_is_missing(prepared: Path, tmp_path: Path) -> None:
    with pod(tmp_path, prepared, batching=BATCHING) as server:
        server.wait_for_phase()
        assert server.report()["sandbox"] == {"landlock": landlock.version(), "seccomp": True, "missing": []}
        assert "headway_sandbox_complete 1.0" in server.admin("/metrics").text


def test_a_pod_that_demands_the_sandbox_refuses_a_kernel_without_it(prepared: Path, tmp_path: Path) -> None:
    mount(tmp_path / "knobs", "{}")
    with pod_with(tmp_path, prepared, {"sandbox": "Require"}, lack=NO_LANDLOCK) as server:
        assert server.process.wait(60) == 1
    message = json.loads((tmp_path / "termination-log").read_text())
    assert (message["condition"], message["reason"]) == ("Accepted", "SandboxUnavailable")
    assert message["field"] == "spec.template.sandbox"
    assert message["message"] == (
        "Landlock: this kernel has it switched off; add landlock to the lsm= option of its command line; "
        "so the program could read or write other files. "
        "Use other nodes, or set spec.template.sandbox to BestEffort to serve all the same"
    )
    assert "starting" not in (tmp_path / "log").read_text()


def test_a_pod_that_makes_do_serves_and_says_what_is_missing(prepared: Path, tmp_path: Path) -> None:
    mount(tmp_path / "knobs", "{}")
    lack = {**NO_LANDLOCK, "seccomp": errno.EINVAL}
    with pod_with(tmp_path, prepared, {"sandbox": "BestEffort"}, lack=lack) as server:
        server.wait_for_phase()
        assert server.client.post(server.infer, json=question([[1, 2]])).status_code == 200
        report = server.report()["sandbox"]
        assert "headway_sandbox_complete 0.0" in server.admin("/metrics").text
    assert (report["landlock"], report["seccomp"]) == (0, False)
    assert [sentence.partition(":")[0] for sentence in report["missing"][:2]] == ["Landlock", "seccomp"]
    assert "start a program" in report["missing"][2]
    first = json.loads((tmp_path / "log").read_text().splitlines()[0])
    assert (first["event"], first["level"], first["missing"]) == ("confined", "warning", report["missing"])


def test_a_scratch_folder_that_holds_the_model_is_refused(prepared: Path, tmp_path: Path) -> None:
    arguments = command(tmp_path, prepared, {}, free_port(), free_port())
    arguments[arguments.index("--scratch") + 1] = str(prepared.parent)
    assert subprocess.run(arguments, stderr=subprocess.DEVNULL, timeout=60).returncode == 1
    message = json.loads((tmp_path / "termination-log").read_text())
    assert message["reason"] == "InvalidConfig"
    assert "must not be written" in message["message"]


def test_nothing_is_imported_before_the_sandbox_that_starts_threads() -> None:
    program = (
        "import sys, headway_runtime.serve as serve; from headway_runtime.sandbox import limits;"
        "print(limits.threads(), sorted({'torch', 'numpy', 'uvicorn', 'asyncio'} & set(sys.modules)))"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert found.split(maxsplit=1) == ["1", "[]\n"]


@pytest.mark.parametrize("path", [None, ":/nowhere"], ids=["first", "empty entry of PYTHONPATH"])
def test_modules_are_not_taken_from_the_folder_it_is_started_in(
    path: str | None, prepared: Path, tmp_path: Path
) -> None:
    (tmp_path / "torch.py").write_text("raise SystemExit('taken from the current folder')")
    mount(tmp_path / "knobs", "{}")
    port, admin_port = free_port(), free_port()
    arguments = command(tmp_path, prepared, {"batching": BATCHING}, port, admin_port)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment |= {"PYTHONPATH": path} if path else {}
    with (tmp_path / "log").open("wb") as log, httpx.Client(timeout=60) as client:
        process = subprocess.Popen(arguments, stderr=log, cwd=tmp_path, env=environment)
        try:
            PodProcess(process, tmp_path, port, admin_port, client).wait_for_phase()
        finally:
            process.kill()
            process.wait()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become the user of a pod")
def test_as_a_pods_user_it_serves_and_other_processes_of_that_user_cannot_look_into_it(prepared: Path) -> None:
    interpreter, path = interpreter_for(POD_USER)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))  # pytest's own are closed to other users
        shutil.copytree(prepared, folder / "model")
        mount(folder / "knobs", "{}")
        port, admin_port = free_port(), free_port()
        arguments = command(folder, folder / "model", {"batching": BATCHING}, port, admin_port)
        for each in (folder, *folder.rglob("*")):
            os.chown(each, POD_USER, POD_USER, follow_symlinks=False)
        client = stack.enter_context(httpx.Client(timeout=60))
        as_user: dict[str, Any] = {"user": POD_USER, "group": POD_USER, "extra_groups": []}
        log = stack.enter_context((folder / "log").open("wb"))
        environment = {"PYTHONPATH": path, "PATH": "/usr/bin:/bin", "HOME": "/tmp", "USER": "headway"}
        process = subprocess.Popen([interpreter, *arguments[1:]], stderr=log, env=environment, cwd="/", **as_user)
        server = PodProcess(process, folder, port, admin_port, client)
        stack.callback(process.wait)
        stack.callback(process.kill)
        server.wait_for_phase()
        assert server.report()["sandbox"]["missing"] == []
        assert server.client.post(server.infer, json=question([[1, 2]])).status_code == 200
        server.apply_knobs({"maxBatch": 1})
        spy = subprocess.run(["/bin/cat", f"/proc/{process.pid}/environ"], capture_output=True, **as_user)
        assert b"Permission denied" in spy.stderr
        assert server.terminate() == 0


def interpreter_for(user: int) -> tuple[str, str]:
    """A Python of this version that the user may run, and where it finds packages."""
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for found in (sys.executable, f"/usr/bin/{name}", f"/usr/local/bin/{name}"):
        try:
            subprocess.run([found, "-c", ""], user=user, group=user, extra_groups=[], check=True)
        except OSError:
            continue
        return found, os.pathsep.join(entry for entry in sys.path if str(ROOT) in entry or "site-packages" in entry)
    pytest.skip(f"the user {user} cannot run a Python {name} here")
