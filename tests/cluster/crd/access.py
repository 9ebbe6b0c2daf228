"""ModelDeployments on a real API server: kubectl as a user has it, and the plain API for everything else."""

import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headway_api import names
from kubernetes import client
from onenode import build

Object = dict[str, Any]

(KUBECTL,) = (program for program in build.CONTROL_PLANE if program.name == "kubectl")


class RefusedError(Exception):
    """The API server, or kubectl, said no; its own words."""


@dataclass(frozen=True, slots=True)
class Kubectl:
    """kubectl in one namespace of one cluster."""

    program: Path
    kubeconfig: Path
    namespace: str

    def __call__(self, *arguments: str, stdin: str | None = None) -> str:
        """Standard output. Raises RefusedError."""
        done = self.run(*arguments, stdin=stdin)
        if done.returncode:
            raise RefusedError(done.stderr)
        return done.stdout

    def run(self, *arguments: str, stdin: str | None = None) -> "subprocess.CompletedProcess[str]":
        """The whole result, whatever the exit status."""
        command = [self.program, f"--kubeconfig={self.kubeconfig}", f"--namespace={self.namespace}", *arguments]
        return subprocess.run(command, input=stdin, capture_output=True, text=True, check=False, timeout=60)


@dataclass(frozen=True, slots=True)
class Models:
    """The ModelDeployments of one namespace, by the plain API."""

    api: client.ApiClient
    namespace: str

    def create(self, md: Object, *, dry_run: bool = False) -> Object:
        """The object as the API server has it. Raises RefusedError."""
        options = {"dry_run": "All"} if dry_run else {}
        try:
            found: Object = client.CustomObjectsApi(self.api).create_namespaced_custom_object(
                names.GROUP, names.VERSION, self.namespace, names.PLURAL, md, **options
            )
        except client.ApiException as refused:
            raise RefusedError(json.loads(refused.body)["message"]) from None
        return found


def model(name: str = "sentiment", **spec: Any) -> Object:
    """The smallest ModelDeployment, and what `spec` adds to it or replaces in it."""
    smallest: Mapping[str, Any] = {"artifact": {"uri": "s3://models/a.pt2"}, "device": {"kind": "cpu"}}
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.KIND,
        "metadata": {"name": name},
        "spec": {**smallest, **spec},
    }
