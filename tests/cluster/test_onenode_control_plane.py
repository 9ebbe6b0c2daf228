"""A control plane alone: what the other tests of this folder stand on."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kubernetes import client, config
from onenode import instance
from onenode.build import CLUSTER, CONTROL_PLANE, KUBERNETES
from onenode.errors import MissingCapabilityError
from onenode.layout import PACKAGE

NOBODY = 65534

pytestmark = pytest.mark.skipif("HEADWAY_KUBECONFIG" in os.environ, reason="HEADWAY_KUBECONFIG names another cluster")


def wait_until(condition: Callable[[], bool], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)


def is_ready(kubeconfig: Path) -> bool:
    kubectl = [str(CLUSTER.bin_dir() / "kubectl"), f"--kubeconfig={kubeconfig}", "get", "--raw=/readyz"]
    return subprocess.run(kubectl, capture_output=True).stdout == b"ok"


def process_of(init: int, name: str) -> int | None:
    """The process id, on the machine, of one of the programs that an instance's init started."""
    for child in Path(f"/proc/{init}/task/{init}/children").read_text().split():
        if Path(f"/proc/{child}/comm").read_text().strip() == name[:15]:
            return int(child)
    return None


def test_the_api_server_is_the_pinned_version(api_server: Path) -> None:
    with config.new_client_from_config(str(api_server)) as api:
        assert client.VersionApi(api).get_code().git_version == f"v{KUBERNETES}"


def test_a_new_namespace_gets_its_default_service_account(api_server: Path, namespace: str) -> None:
    with config.new_client_from_config(str(api_server)) as api:
        core = client.CoreV1Api(api)
        wait_until(lambda: bool(core.list_namespaced_service_account(namespace).items))  # the controller manager's work


def test_an_api_server_that_is_killed_comes_back_with_what_it_had(api_server: Path, namespace: str) -> None:
    number = int(api_server.parent.name.removeprefix("run-"))
    _, init = instance.find(number) or pytest.fail("the session's instance is not up")
    killed = process_of(init, "kube-apiserver")
    assert killed
    os.kill(killed, signal.SIGKILL)
    wait_until(lambda: process_of(init, "kube-apiserver") not in {None, killed} and is_ready(api_server))
    with config.new_client_from_config(str(api_server)) as api:
        assert client.CoreV1Api(api).read_namespace(namespace)


def test_up_on_an_instance_that_is_up_returns_the_same_cluster(api_server: Path) -> None:
    number = int(api_server.parent.name.removeprefix("run-"))
    before = instance.find(number)
    assert instance.up(number, node=False) == api_server
    assert instance.find(number) == before
    if os.geteuid() == 0:
        with pytest.raises(MissingCapabilityError, match="0 to 6"):
            instance.up(number, node=True)


def test_a_sessions_cluster_ends_with_its_process_even_when_that_is_killed() -> None:
    code = (
        "import sys; from onenode.instance import up_for_this_process; from onenode.layout import Layout\n"
        "print(up_for_this_process().instance, flush=True); sys.stdin.read()"
    )
    session = subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(PACKAGE.parent)},
    )
    with session:
        assert session.stdout
        number = int(session.stdout.readline())
        layout, init = instance.find(number) or pytest.fail("the session's instance is not up")
        assert is_ready(layout.kubeconfig)
        server = process_of(init, "kube-apiserver")
        assert server
        session.kill()
    wait_until(lambda: instance.started(server) is None and instance.find(number) is None)
    instance.down(number)
    assert not layout.run.exists()


@pytest.fixture
def elsewhere() -> Iterator[Path]:
    """A copy of the package and the programs where an unprivileged user can read it, and a cache to write to."""
    top = Path(tempfile.mkdtemp(prefix="headway-unprivileged-"))
    for name in ("onenode", "modules", "modules-s3"):
        shutil.copytree(PACKAGE.parent / name, top / name, ignore=shutil.ignore_patterns("__pycache__"))
    programs = top / "cache/headway" / CLUSTER.bin_dir().name
    programs.mkdir(parents=True)
    for program in CONTROL_PLANE:
        try:
            (programs / program.name).hardlink_to(program.path())
        except OSError:  # another file system
            shutil.copy2(program.path(), programs / program.name)
    for path in (top, top / "cache", top / "cache/headway"):
        os.chown(path, NOBODY, NOBODY)
    yield top
    shutil.rmtree(top)


def system_python() -> str | None:
    """A Python that every user can run: a virtual environment may be in root's home."""
    for python in ("/usr/bin/python3", "/usr/local/bin/python3"):
        check = [python, "-c", "import sys; sys.exit(sys.version_info < (3, 11))"]
        if Path(python).exists() and subprocess.run(check).returncode == 0:
            return python
    return None


@pytest.mark.skipif(os.geteuid() != 0, reason="without root, every test of this file runs unprivileged")
def test_an_unprivileged_user_gets_a_control_plane_and_down_leaves_nothing(api_server: Path, elsewhere: Path) -> None:
    if not (python := system_python()):
        pytest.skip("no Python >= 3.11 that an unprivileged user can run")
    as_nobody = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", python, "-m", "onenode"]
    environment = {"PATH": "/usr/bin:/bin", "XDG_CACHE_HOME": str(elsewhere / "cache"), "HOME": "/nonexistent"}

    def onenode(*args: str) -> subprocess.CompletedProcess[str]:
        command = [*as_nobody, "--instance", "10", *args]
        return subprocess.run(command, cwd=elsewhere, env=environment, capture_output=True, text=True)

    try:
        check_as_nobody(onenode)
    finally:
        onenode("down")
    assert not processes_of_user(NOBODY)
    assert not (elsewhere / "cache/headway/run-10").exists()


def check_as_nobody(onenode: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    up = onenode("up", "--control-plane-only")
    if "user namespaces are not available" in up.stderr:
        pytest.skip(up.stderr.strip())
    assert up.returncode == 0, up.stderr
    assert is_ready(Path(up.stdout.strip()))
    assert "needs root" in onenode("up").stderr


def processes_of_user(user: int) -> list[Path]:
    return [path for path in Path("/proc").glob("[0-9]*/exe") if _owner(path) == user]


def _owner(path: Path) -> int | None:
    try:
        return path.parent.stat().st_uid
    except OSError:
        return None


def test_a_node_without_root_is_refused_in_words_that_help(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(MissingCapabilityError, match=r"--control-plane-only works, and HEADWAY_KUBECONFIG"):
        instance.up(0, node=True)
