"""The operator as a process of its own: started, asked for its metrics, killed."""

import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

from tests.cluster.control.kube import eventually
from tests.ports import free_port

WRITES = ("create", "patch", "delete")
CRASHED = 137


class OperatorProcess:
    """One operator for one namespace, outside of the cluster."""

    def __init__(self, kubeconfig: Path, namespace: str, log: Path) -> None:
        self._kubeconfig = kubeconfig
        self._namespace = namespace
        self.log = log
        self._port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *arguments: str, runtime_image: str = "registry.test/runtime:1", **environment: str) -> None:
        """Start it, without waiting. `environment` in addition to that of the test."""
        command = [sys.executable, "-m", "headway_operator", "--dev", f"--kubeconfig={self._kubeconfig}"]
        options = [f"--namespace={self._namespace}", f"--port={self._port}", "--log-level=DEBUG"]
        images = [f"--runtime-image={runtime_image}", "--router-image=registry.test/router:1"]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [*command, *options, *images, *arguments], stderr=log, stdout=log, env={**os.environ, **environment}
            )

    def wait(self, seconds: float = 60.0) -> int:
        """Its exit status, once it has ended."""
        assert self._process is not None
        return self._process.wait(seconds)

    @property
    def ended(self) -> int | None:
        """Its exit status, None while it runs."""
        assert self._process is not None
        return self._process.poll()

    def kill(self) -> None:
        """SIGKILL."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def terminate(self) -> int:
        """SIGTERM; the exit status."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(30)

    def end(self) -> None:
        """Whatever state it is in."""
        if self._process is not None and self._process.poll() is None:
            self.kill()

    def tail(self) -> str:
        """The end of its log, without the passes in which nothing happened."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return "\n".join([line for line in lines if '"pass"' not in line][-80:])

    def get(self, path: str) -> tuple[int, str]:
        """Status and body of GET on its own port."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._port}{path}", timeout=5) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def requests(self, *verbs: str) -> int:
        """How many requests of these verbs it has made to the API server."""
        _, text = self.get("/metrics")
        lines = (line for line in text.splitlines() if line.startswith("headway_api_requests_total"))
        return sum(int(float(line.split()[-1])) for line in lines if re.search(r'verb="(\w+)"', line)[1] in verbs)

    def passes(self) -> int:
        """How many passes it has made."""
        _, text = self.get("/metrics")
        lines = (line for line in text.splitlines() if line.startswith("headway_passes_total"))
        return sum(int(float(line.split()[-1])) for line in lines)

    def wait_until_healthy(self) -> None:
        """Until it answers."""
        eventually(lambda: self.get("/healthz")[0] == 200)

    def wait_until_quiet(self, seconds: float = 3.0) -> None:
        """Until it works and has written nothing for some seconds. Fails if it ends."""
        end, last, since = time.monotonic() + 180, -1, time.monotonic()
        while time.monotonic() - since < seconds:
            assert time.monotonic() < end, "it never stops to write"
            assert self.ended is None, f"it ended: {self.ended}"
            writes = self.requests(*WRITES)
            if writes != last or not self.passes():
                last, since = writes, time.monotonic()
            time.sleep(0.2)

    def crashes(self) -> bool:
        """Wait until it has crashed as it was asked to, or has nothing more to write; which of both."""
        while True:
            try:
                self.wait_until_quiet()
            except (AssertionError, OSError):
                if self.ended is not None:
                    assert self.ended == CRASHED, self.tail()
                    return True
            else:
                return False
