"""Run inside a pod, as `python -c`: try forbidden things, confine this process, try them again; print both as JSON.

After it, everything is tried in another thread, as torch makes them: a sandbox of the first one alone would be seen.
"""

import concurrent.futures
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from headway_api.podtemplate import Sandbox
from headway_runtime.sandbox import confine, files_of_this_process

HOST, PORT = sys.argv[1], int(sys.argv[2])


def connect() -> None:
    socket.create_connection((HOST, PORT), timeout=5).close()


def fork() -> None:
    if (child := os.fork()) == 0:
        os._exit(0)
    os.waitpid(child, 0)


FORBIDDEN: dict[str, Callable[[], object]] = {
    "read a file of the system": lambda: Path("/etc/passwd").read_text(),
    "read the cold configuration": lambda: Path("/etc/headway/model/config.json").read_text(),
    "list the root folder": lambda: os.listdir("/"),
    "run a program": lambda: subprocess.run(["/bin/true"], check=True),
    "start a process": fork,
    "connect": connect,
    "listen": lambda: socket.create_server(("127.0.0.1", 0)).close(),
    "make a symbolic link": lambda: (Path("/tmp/link").symlink_to("/etc"), Path("/tmp/link").unlink()),
}
ALLOWED: dict[str, Callable[[], object]] = {
    "write to scratch space": lambda: Path("/tmp/scratch").write_text("x"),
    "read the model": lambda: [path.read_bytes() for path in Path("/model").glob("*.bin")],
    "import torch and run it": lambda: __import__("torch").ones(64, 64).mm(__import__("torch").ones(64, 64)),
}


def attempt(act: Callable[[], object]) -> str:
    """`done`, or the name of what refused it."""
    try:
        act()
    except Exception as error:
        return type(error).__name__
    return "done"


def attempt_elsewhere(act: Callable[[], object]) -> str:
    """The same in a thread of its own."""
    with concurrent.futures.ThreadPoolExecutor(1) as threads:
        return threads.submit(attempt, act).result()


def main() -> None:
    before = {name: attempt(act) for name, act in FORBIDDEN.items()}
    files = files_of_this_process(read=(Path("/model"),), scratch=Path("/tmp"), gpu=False)
    report = confine(files, demand=Sandbox.REQUIRE)
    allowed = {name: attempt_elsewhere(act) for name, act in ALLOWED.items()}
    after = {name: attempt_elsewhere(act) for name, act in FORBIDDEN.items()}
    print(json.dumps({"before": before, "allowed": allowed, "after": after, "report": report.to_dict()}))


main()
