"""The processes that PID 1 of a cluster keeps running."""

import os
import subprocess
import sys
import time
from collections import defaultdict, deque
from dataclasses import dataclass, field

from .layout import BIN, DISK, INSIDE

PAUSE = 0.2  # seconds before a process that ended is started again
PATIENCE = 30.0  # five ends within so many seconds, and the cluster gives up
PATH = f"{BIN}:{os.environ.get('PATH', '')}:/usr/sbin:/sbin"  # a user's PATH may lack where runc and iptables are


@dataclass(slots=True)
class Processes:
    commands: dict[str, tuple[list[str], dict[str, str]]] = field(default_factory=dict)
    running: dict[int, str] = field(default_factory=dict)
    starts: dict[str, deque[float]] = field(default_factory=lambda: defaultdict(lambda: deque(maxlen=5)))

    def start(self, name: str, *args: object, **environment: str) -> None:
        """Start one of the programs; its output goes to NAME.log, its process id (in here) to NAME.pid."""
        self.commands[name] = [str(arg) for arg in args], environment
        self._start(name)

    def _start(self, name: str) -> None:
        args, environment = self.commands[name]
        self.starts[name].append(time.monotonic())
        with (DISK / f"{name}.log").open("a") as log:
            pid = subprocess.Popen(
                [BIN / name, *args],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=INSIDE,
                start_new_session=True,
                env={**os.environ, "PATH": PATH, **environment},
            ).pid
        self.running[pid] = name
        (INSIDE / f"{name}.pid").write_text(f"{pid}\n")

    def reap(self) -> None:
        """Wait for ever; restart what ends, unless it has ended five times in half a minute."""
        while True:
            pid, status = os.wait()
            if (name := self.running.pop(pid, None)) is None:
                continue
            print(f"{name} ended with status {status}", flush=True)
            starts = self.starts[name]
            if len(starts) == starts.maxlen and time.monotonic() - starts[0] < PATIENCE:
                sys.exit(f"{name} keeps ending (see {name}.log): giving up")
            time.sleep(PAUSE)
            self._start(name)
