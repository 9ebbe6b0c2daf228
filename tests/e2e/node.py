"""The node of the embedded cluster, seen from the machine: what a pod's processes and volumes are like in truth."""

from collections.abc import Iterator
from pathlib import Path

from tests.e2e.cluster_access import Object


def processes(pod: Object, command: str) -> list[int]:
    """Process ids of a pod whose command line holds `command`."""
    uid = pod["metadata"]["uid"]
    return [pid for pid in _pids() if f"pod{uid}" in _read(pid, "cgroup") and command in _read(pid, "cmdline")]


def threads(pid: int) -> Iterator[dict[str, str]]:
    """The kernel's status of every thread of a process: `Seccomp`, `NoNewPrivs`, `CapEff` and so on."""
    for status in Path(f"/proc/{pid}/task").glob("*/status"):
        yield dict(line.split(":\t", 1) for line in status.read_text().splitlines() if ":\t" in line)


def libraries(pid: int, folder: str) -> set[str]:
    """Paths below a folder of the container that the process has mapped as code."""
    lines = [line.split(maxsplit=5) for line in _read(pid, "maps").splitlines()]
    return {line[5] for line in lines if len(line) == 6 and "x" in line[1] and line[5].startswith(f"{folder}/")}


def scratch(pod: Object, init: int) -> list[str]:
    """Names in the pod's /tmp, which outlives its containers. `init` is the process id of the node's init."""
    volume = f"var/lib/kubelet/pods/{pod['metadata']['uid']}/volumes/kubernetes.io~empty-dir/tmp"
    return sorted(path.name for path in Path(f"/proc/{init}/root", volume).iterdir())


def _pids() -> list[int]:
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]


def _read(pid: int, name: str) -> str:
    try:
        return Path(f"/proc/{pid}/{name}").read_text().replace("\0", " ")
    except OSError:
        return ""
