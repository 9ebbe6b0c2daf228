"""The surroundings of a confined process: another process, sockets that listen, and files to reach for."""

import shutil
import socket
import subprocess
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tests.unit.pod_process import mount
from tests.unit.sandbox_world import World

REFUSED = {"EPERM", "EACCES", "ENOSYS", "EXDEV"}

Outcomes = dict[str, Any]
"""Of each act, `done` or the errno."""


def made_in(folder: Path, stack: ExitStack, *, user: int | None = None) -> World:
    """Somebody else's process, sockets that listen, and a folder for files, until the stack unwinds."""
    (folder / "outside").mkdir()
    victim = stack.enter_context(subprocess.Popen(["/bin/sleep", "600"], user=user, group=user))
    stack.callback(victim.kill)
    abstract = f"headway-{victim.pid}"
    tcp = listen(stack, socket.AF_INET, ("127.0.0.1", 0))
    listen(stack, socket.AF_UNIX, str(folder / "outside" / "socket"))
    listen(stack, socket.AF_UNIX, "\0" + abstract)
    udp, datagrams = (
        stack.enter_context(socket.socket(family, socket.SOCK_DGRAM)) for family in (socket.AF_INET, socket.AF_UNIX)
    )
    udp.bind(("127.0.0.1", 0))
    datagrams.bind(str(folder / "outside" / "datagrams"))
    address = int(Path(f"/proc/{victim.pid}/maps").read_text().partition("-")[0], 16)
    return World(str(folder), victim.pid, address, tcp.getsockname()[1], udp.getsockname()[1], abstract)


def listen(stack: ExitStack, family: int, address: Any) -> socket.socket:
    listener = stack.enter_context(socket.socket(family))
    listener.bind(address)
    listener.listen(256)
    return listener


def furnish(folder: Path) -> None:
    """Make the files anew that acts may have changed."""
    for name in ("model", "scratch", "knobs"):
        shutil.rmtree(folder / name, ignore_errors=True)
    for name in ("model", "scratch"):
        (folder / name).mkdir()
    for name in ("weights", "to-delete", "to-rename", "to-empty"):
        (folder / "model" / name).write_text("0123456789abcdef" * 256)
    for name in ("outside/secret", "outside/to-move", "scratch/to-move"):
        (folder / name).write_text("secret")
    (folder / "scratch" / "link-to-secret").symlink_to(folder / "outside" / "secret")
    mount(folder / "knobs", "{}")


def refused(outcomes: Outcomes) -> set[str]:
    """The acts that were refused as such; the rest was done, or failed for another reason."""
    return {act for act, outcome in outcomes.items() if outcome in REFUSED}


def done(outcomes: Outcomes) -> set[str]:
    return {act for act, outcome in outcomes.items() if outcome == "done"}
