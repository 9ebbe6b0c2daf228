"""A server as a tree of processes: started, waited for, measured, ended."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.bench.peers import install, processes
from tests.bench.peers.catalogue import Peer, Settings
from tests.bench.peers.client import Exchange, Load, Outcome, RefusedError, once
from tests.bench.peers.ports import free_ports
from tests.bench.peers.workloads import Workload
from tests.unit import pod_process

HERE = Path(__file__).parent
START_SECONDS = 180
MISUNDERSTOOD = (400, 405, 415, 422)  # statuses that waiting does not change


class StartError(Exception):
    """The server does not run on this machine; the message has the end of its log."""


@dataclass(frozen=True, slots=True)
class Round:
    """What one drive of a server cost and showed. `cpu` in seconds, of the whole tree."""

    outcome: Outcome
    cpu: float


@dataclass(frozen=True, slots=True)
class Server:
    """A started server. `root` is the supervisor, above all its processes."""

    root: int
    port: int

    def cpu(self) -> float:
        return processes.cpu_seconds(self.root, processes.ProcessTable.now())

    def resident(self) -> int:
        return processes.resident_bytes(self.root, processes.ProcessTable.now())

    def closed(self, exchanges: Sequence[Exchange], connections: int, seconds: float, *, seed: int) -> Round:
        load, before = Load(self.port, exchanges, connections, seed=seed), self.cpu()
        outcome = load.closed(seconds)
        return Round(outcome, self.cpu() - before)

    def open(self, exchanges: Sequence[Exchange], connections: int, rate: float, seconds: float, *, seed: int) -> Round:
        load, before = Load(self.port, exchanges, connections, seed=seed), self.cpu()
        outcome = load.open(rate, seconds)
        return Round(outcome, self.cpu() - before)


def environment(peer: Peer, folder: Path) -> dict[str, str]:
    """One compute thread in every process, temporary files in `folder`; no trace of this project for a peer."""
    ours = ("PYTHONPATH", "VIRTUAL_ENV") if peer.requirements else ()
    kept = {k: v for k, v in os.environ.items() if k not in ours}
    threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    kept["TMPDIR"] = str(folder)
    return {**kept, **threads, "OMP_WAIT_POLICY": "passive", "HF_HUB_OFFLINE": "1", "PYTHONUNBUFFERED": "1"}


def command(peer: Peer, settings: Settings, workload: Workload, folder: Path, port: int) -> list[str]:
    """What starts the peer's server. Raises InstallError where it cannot be had."""
    if peer.script is None:
        return _pod(settings, workload, folder, port)
    if peer.needs and not shutil.which(peer.needs):
        raise install.InstallError(f"needs {peer.needs}, which is not on this machine")
    python = install.environment(peer.home, peer.requirements) if peer.requirements else None
    told = {"port": port, "folder": str(folder), "workload": workload.name, "model": str(workload.model), **settings}
    return [str(python or sys.executable), str(HERE / "servers" / peer.script), json.dumps(told)]


def _pod(settings: Settings, workload: Workload, folder: Path, port: int) -> list[str]:
    knobs: dict[str, object] = {"maxBatch": settings["max_batch"], "maxWait": f"{round(settings['max_wait'] * 1e6)}us"}
    knobs["queue"] = {"timeout": "30s"}  # no peer refuses what has waited for long
    pod_process.mount(folder / "knobs", json.dumps(knobs))
    cold = {"batching": workload.batching, "precision": settings.get("precision", "Exported")}
    return pod_process.command(folder, workload.prepared, cold, port, port + 1)


@contextmanager
def started(peer: Peer, settings: Settings, workload: Workload, folder: Path, exchange: Exchange) -> Iterator[Server]:
    """The server, once it answers `exchange` rightly; ended with everything it started."""
    port = free_ports()
    line = command(peer, settings, workload, folder, port)
    log = folder / "server.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, str(HERE / "supervise.py"), *line],
            stdout=output,
            stderr=output,
            stdin=subprocess.DEVNULL,
            env=environment(peer, folder),
            start_new_session=True,
        )
    try:
        _wait(process, port, exchange, log)
        yield Server(process.pid, port)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def _wait(process: "subprocess.Popen[bytes]", port: int, exchange: Exchange, log: Path) -> None:
    end = time.monotonic() + START_SECONDS
    last: Exception | None = None
    while time.monotonic() < end:
        if process.poll() is not None:
            raise StartError(f"ended at its start: {_tail(log)}")
        try:
            once(port, exchange)
        except (OSError, RefusedError) as error:
            if isinstance(error, RefusedError) and error.status in MISUNDERSTOOD:
                raise
            last = error
            time.sleep(0.25)
        else:
            return
    raise StartError(f"no answer in {START_SECONDS} s ({last}): {_tail(log)}")


def _tail(log: Path) -> str:
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return " / ".join(lines[-3:])[-600:]
