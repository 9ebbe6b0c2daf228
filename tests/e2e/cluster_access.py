"""A cluster as the story uses it: kubectl, helm, and addresses that this process can reach."""

import contextlib
import json
import os
import re
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Object = dict[str, Any]


class StoryError(Exception):
    """What went wrong, where, and what to do."""


@dataclass(frozen=True, slots=True)
class Access:
    """Where the cluster is and which tools talk to it."""

    kubeconfig: Path
    tools: Path | None  # directory of kubectl and helm; None: those on PATH

    @property
    def environment(self) -> dict[str, str]:
        path = os.environ["PATH"]
        return {
            **os.environ,
            "KUBECONFIG": str(self.kubeconfig),
            "PATH": f"{self.tools}:{path}" if self.tools else path,
        }

    def run(self, *command: str, stdin: str | None = None, timeout: float = 300) -> str:
        """Standard output of a command; StoryError with its standard error when it fails."""
        done = subprocess.run(
            command, input=stdin, env=self.environment, capture_output=True, text=True, timeout=timeout, check=False
        )
        if done.returncode:
            raise StoryError(f"`{' '.join(command)}` failed: {done.stderr.strip() or done.stdout.strip()}")
        return done.stdout

    def kubectl(self, *arguments: str, stdin: str | None = None, timeout: float = 300) -> str:
        return self.run("kubectl", *arguments, stdin=stdin, timeout=timeout)

    def get(self, namespace: str, *arguments: str) -> Object:
        """One object, or a list of them, as JSON."""
        found: Object = json.loads(self.kubectl("get", "-n", namespace, *arguments, "-o", "json"))
        return found

    def items(self, namespace: str, *arguments: str) -> list[Object]:
        found: list[Object] = self.get(namespace, *arguments)["items"]
        return found

    def apply(self, *objects: Object) -> None:
        """`kubectl apply`, as a user does it."""
        self.kubectl("apply", "-f", "-", stdin="\n---\n".join(json.dumps(o) for o in objects))

    @contextlib.contextmanager
    def reach(self, namespace: str, service: str) -> Iterator[str]:
        """`http://host:port` of a Service: its cluster address if there is a route to it, else a port-forward.

        The Service must have a ready pod.
        """
        spec = self.get(namespace, "service", service)["spec"]
        address, port = spec["clusterIP"], spec["ports"][0]["port"]
        with contextlib.suppress(OSError), socket.create_connection((address, port), timeout=2):
            yield f"http://{address}:{port}"
            return
        with self._forward(namespace, service, port) as url:
            yield url

    @contextlib.contextmanager
    def _forward(self, namespace: str, service: str, port: int) -> Iterator[str]:
        command = ["kubectl", "port-forward", "-n", namespace, f"service/{service}", f":{port}"]
        with subprocess.Popen(command, env=self.environment, stdout=subprocess.PIPE, text=True) as forward:
            try:
                assert forward.stdout
                if not (match := re.search(r"127\.0\.0\.1:(\d+)", forward.stdout.readline())):
                    raise StoryError(
                        f"cannot reach service/{service} in {namespace}: no route, and kubectl port-forward failed"
                    )
                yield f"http://127.0.0.1:{match[1]}"
            finally:
                forward.terminate()


def wait_until(what: str, probe: Callable[[], Any], *, seconds: float, every: float = 0.1) -> Any:
    """What `probe` answers as soon as it is true; StoryError naming `what` after `seconds`."""
    end = time.monotonic() + seconds
    while not (answer := probe()):
        if time.monotonic() > end:
            raise StoryError(f"waited {seconds:.0f} s for {what}, in vain")
        time.sleep(every)
    return answer


def conditions(resource: Object) -> Mapping[str, Object]:
    """The conditions of a ModelDeployment that speak of its present generation, by type."""
    generation = resource["metadata"]["generation"]
    found = resource.get("status", {}).get("conditions", [])
    return {c["type"]: c for c in found if c.get("observedGeneration") == generation}


def is_true(resource: Object, *types: str) -> bool:
    """Whether all these conditions are True at the present generation."""
    now = conditions(resource)
    return all(now.get(t, {}).get("status") == "True" for t in types)
