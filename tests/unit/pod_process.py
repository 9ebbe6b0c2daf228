"""The serving pod as a real process on loopback, with its files where a pod's would be."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import httpx
from headway_api.podconfig import knobs_hash

from tests.ports import free_port

T = TypeVar("T")
MODEL, REVISION = "encoder", "0a1b2c3d"


@dataclass
class PodProcess:
    """A started pod. `url`, `admin` and `grpc` are its ports, `folder` holds its files."""

    process: "subprocess.Popen[bytes]"
    folder: Path
    port: int
    admin_port: int
    client: httpx.Client
    grpc_port: int = 0

    @property
    def grpc(self) -> str:
        return f"127.0.0.1:{self.grpc_port}"

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def infer(self) -> str:
        return f"{self.url}/v2/models/{MODEL}/infer"

    def report(self) -> dict[str, Any]:
        return dict(self.admin("/report").json())

    def admin(self, path: str) -> httpx.Response:
        return self.client.get(f"http://127.0.0.1:{self.admin_port}{path}")

    def wait_for_phase(self, phase: str = "Ready", seconds: float = 120) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            assert self.process.poll() is None, (self.folder / "log").read_text()
            try:
                if self.report()["phase"] == phase:
                    return
            except httpx.TransportError:
                pass
            time.sleep(0.05)
        raise AssertionError(f"not {phase} in {seconds} s: {(self.folder / 'log').read_text()}")

    def set_knobs(self, knobs: Mapping[str, Any] | str) -> str:
        """Change the mounted knobs as the kubelet does, and return the hash to be acknowledged."""
        text = knobs if isinstance(knobs, str) else json.dumps(knobs)
        mount(self.folder / "knobs", text)
        return knobs_hash(text)

    def apply_knobs(self, knobs: Mapping[str, Any]) -> dict[str, Any]:
        """Change the knobs and wait for the acknowledgement; returns the report's `knobs`. What is in force is not
        written again: the pod would read it again, and say so in its log at some later time.
        """
        now = self.report()["knobs"]
        if now.get("hash") == knobs_hash(json.dumps(knobs)) and "error" not in now:
            return dict(now)
        wanted = self.set_knobs(knobs)
        end = time.monotonic() + 60
        while time.monotonic() < end:
            found: dict[str, Any] = self.report()["knobs"]
            if found.get("hash") == wanted:
                return found
            time.sleep(0.02)
        raise AssertionError(f"knobs {wanted} were not acknowledged: {self.report()['knobs']}")

    def terminate(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(30)


def mount(folder: Path, text: str) -> None:
    """Write `knobs.json` like a ConfigMap volume: a new folder, then one atomic swap of the link `..data`."""
    version = folder / f"..{time.monotonic_ns()}"
    version.mkdir(parents=True)
    (version / "knobs.json").write_text(text)
    link = folder / "..data_new"
    link.symlink_to(version.name)
    os.replace(link, folder / "..data")
    if not (folder / "knobs.json").is_symlink():
        (folder / "knobs.json").symlink_to("..data/knobs.json")


def until(found: Callable[[], T], what: str = "it", seconds: float = 60) -> T:
    """Wait for something that is true, and return it. Fails after a time that no machine needs."""
    end = time.monotonic() + seconds
    while not (value := found()):
        assert time.monotonic() < end, f"{what} did not come about in {seconds} s"
        time.sleep(0.005)
    return value


def command(
    folder: Path, model: Path, config: Mapping[str, Any], port: int, admin_port: int, grpc_port: int = 0
) -> list[str]:
    """The serve container's command line, with its cold configuration written."""
    cold: dict[str, Any] = {
        "model": MODEL,
        "namespace": "test",
        "revision": REVISION,
        "artifact": {"uri": "file:///model.pt2"},
    }
    cold |= {"device": {"kind": "cpu"}, "sandbox": "Require"}
    (folder / "config.json").write_text(json.dumps({**cold, **config}))
    arguments = {
        "--config": folder / "config.json",
        "--knobs": folder / "knobs" / "knobs.json",
        "--model": model,
        "--termination-log": folder / "termination-log",
        "--scratch": folder / "scratch",
        "--host": "127.0.0.1",
        "--port": port,
        "--admin-port": admin_port,
        "--grpc-port": grpc_port,
    }
    return [sys.executable, "-m", "headway_runtime.serve", *(str(part) for pair in arguments.items() for part in pair)]


@contextmanager
def pod(folder: Path, model: Path, /, **config: Any) -> Iterator[PodProcess]:
    """Start a pod; it is killed at the end if it still runs. `config` overrides the cold configuration."""
    port, admin_port, grpc_port = free_port(), free_port(), free_port()
    mount(folder / "knobs", '{"maxWait":"0ms"}')
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command(folder, model, config, port, admin_port, grpc_port), stderr=log)
    try:
        with httpx.Client(timeout=60) as client:
            yield PodProcess(process, folder, port, admin_port, client, grpc_port)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


def tensor(name: str, datatype: str, shape: list[int], data: object) -> dict[str, Any]:
    """An input of a request."""
    return {"name": name, "datatype": datatype, "shape": shape, "data": data}


def question(ids: list[list[int]], mask: list[list[int]] | None = None) -> dict[str, Any]:
    """A request to the encoder."""
    shape = [len(ids), len(ids[0])]
    mask = mask or [[1] * shape[1]] * shape[0]
    return {"inputs": [tensor("ids", "INT64", shape, ids), tensor("mask", "INT64", shape, mask)]}
