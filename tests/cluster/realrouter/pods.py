"""Starts and ends the pods' stand-ins, and keeps their DNS names as Kubernetes would."""

import asyncio
import contextlib
import itertools
import random
import signal
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from headway_operator.router.render import Site

from realrouter.dns import Dns

PROGRAM = Path(__file__).with_name("pod.py")


@dataclass(slots=True)
class RunningPod:
    """A process, its address, and the name that it is found under."""

    process: asyncio.subprocess.Process
    address: str
    name: str

    async def end(self, number: signal.Signals = signal.SIGKILL) -> None:
        """Send the signal and wait for the end."""
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(number)
        await self.process.wait()


@dataclass(slots=True)
class Pods:
    """All pods of a test. Each has an address of its own, so that all share one port, as pods do."""

    site: Site
    dns: Dns
    running: list[RunningPod] = field(default_factory=list)
    _network: str = field(default_factory=lambda: f"127.{random.randint(1, 254)}.{random.randint(0, 255)}")
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    async def start(self, model: str, revision: str, *, answers_as: str | None = None) -> RunningPod:
        """Start a pod, wait until it answers, and give it its revision's name. `answers_as`: the revision it claims."""
        address = self.address()
        return await self.run(
            (str(PROGRAM), address, str(self.site.backend_port), model, answers_as or revision),
            address,
            model,
            revision,
        )

    def address(self) -> str:
        """One that no other pod has."""
        return f"{self._network}.{next(self._numbers)}"

    async def run(self, arguments: Sequence[str], address: str, model: str, revision: str) -> RunningPod:
        """Start Python with these arguments, which serves as a pod on this address; likewise."""
        pod = RunningPod(
            await asyncio.create_subprocess_exec(sys.executable, *arguments),
            address,
            self.site.backend_host(model, revision),
        )
        self.running.append(pod)
        await self._answers(pod)
        self.dns.records.setdefault(pod.name, []).append(address)
        return pod

    async def end_all(self) -> None:
        """Kill what still runs."""
        for pod in self.running:
            await pod.end()

    async def _answers(self, pod: RunningPod) -> None:
        for _ in range(1200):
            assert pod.process.returncode is None, f"pod {pod.address} ended at once"
            try:
                _, writer = await asyncio.open_connection(pod.address, self.site.backend_port)
            except OSError:
                await asyncio.sleep(0.05)
                continue
            writer.close()
            await writer.wait_closed()
            return
        raise AssertionError(f"pod {pod.address} does not answer after 60 s")
