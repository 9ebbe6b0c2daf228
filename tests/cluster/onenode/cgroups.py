"""The cgroup directories of an instance, for version 1 (one tree a controller) and version 2 (one tree)."""

import os
import time
from pathlib import Path

from .errors import MissingCapabilityError
from .layout import Layout

ROOT = Path("/sys/fs/cgroup")
WANTED = ("cpu", "cpuset", "io", "memory", "pids")  # what the kubelet asks of its root


def _unified() -> bool:
    return (ROOT / "cgroup.procs").exists()


def directories(layout: Layout) -> list[Path]:
    """Every directory that is the instance's own, existing or not."""
    return [top / layout.cgroup for top in ([ROOT] if _unified() else ROOT.iterdir())]


def create(layout: Layout) -> None:
    """Make them. In version 2 the controllers that the kubelet needs are switched on in the root, where they stay."""
    if _unified():
        _enable()
    for path in directories(layout):
        path.mkdir(exist_ok=True)


def _enable() -> None:
    available = (ROOT / "cgroup.controllers").read_text().split()
    control = ROOT / "cgroup.subtree_control"
    enabled = control.read_text().split()
    for name in WANTED:
        if name in available and name not in enabled:
            try:
                control.write_text(f"+{name}")
            except OSError as error:
                raise MissingCapabilityError(
                    f"the cgroup controller {name} cannot be switched on in {control} ({error.strerror}): "
                    "in a container, start it with --cgroupns=host or move its processes to a child cgroup"
                ) from error


def remove(layout: Layout) -> None:
    """Remove them, deepest first; their last processes may still be ending."""
    for top in directories(layout):
        for path, _, _ in os.walk(top, topdown=False):
            for _ in range(100):
                try:
                    Path(path).rmdir()
                    break
                except OSError:
                    time.sleep(0.02)
