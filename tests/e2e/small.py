"""A small model and a namespace to try bad luck on: quick to load, so that a case takes seconds."""

import contextlib
import copy
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from headway_api.names import ADMIN_PORT
from headway_operator.router import readout
from headway_runtime.export import Size, export_model

from tests.e2e.cluster_access import Object, StoryError, conditions, is_true, wait_until
from tests.e2e.platform import BUCKET, CREDENTIALS, Platform, publish
from tests.e2e.traffic import Traffic

FEATURES = 8
MODEL = "small"
CLIENTS = 6
BODY = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, FEATURES], "data": [0.5] * FEATURES}]}


class Classifier(torch.nn.Module):
    """FP32 [batch, FEATURES] -> FP32 [batch, 4]; `seed` makes two versions differ."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.layers = torch.nn.Sequential(torch.nn.Linear(FEATURES, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


def export(directory: Path, seed: int) -> Path:
    """A `.pt2` with one dynamic dimension, batch 1 to 32."""
    path = directory / f"small-{seed}.pt2"
    export_model(
        Classifier(seed).eval(),
        {"x": torch.zeros(2, FEATURES)},
        dynamic_shapes={"x": {0: Size("batch", 1, 32)}},
        path=path,
    )
    return path


@dataclass
class Small:
    """One ModelDeployment, `small`, in a namespace with its own object store."""

    platform: Platform
    namespace: str
    manifest: Object = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.manifest = {
            "apiVersion": "serving.headway.dev/v1alpha1",
            "kind": "ModelDeployment",
            "metadata": {"name": MODEL, "namespace": self.namespace},
            "spec": {
                "artifact": {"uri": f"s3://{BUCKET}/small/1.pt2", "credentials": {"secretName": CREDENTIALS}},
                "device": {"kind": "cpu"},
                "batching": {"shapeBuckets": {"batch": [1, 4]}},
                "rollback": {"keep": "None"},
                "template": {"resources": {"requests": {"cpu": "50m", "memory": "256Mi"}}},
            },
        }

    def apply(self, **changes: Any) -> None:
        """Apply the manifest with these changes of its spec, merged; the manifest itself stays."""
        changed = copy.deepcopy(self.manifest)
        _merge(changed["spec"], changes)
        self.platform.access.apply(changed)

    def resource(self) -> Object:
        return self.platform.access.get(self.namespace, "modeldeployment", MODEL)

    def wait(self, *types: str, seconds: float = 300) -> Object:
        """The resource as soon as these conditions are True at its present generation."""
        return wait_until(" and ".join(types), lambda: is_true(r := self.resource(), *types) and r, seconds=seconds)

    def wait_reason(self, condition: str, reason: str, seconds: float = 300) -> str:
        """The message of the condition as soon as it is False with the reason at the present generation."""

        def probe() -> str | None:
            found = conditions(self.resource()).get(condition, {})
            return f"{found['message']} " if (found.get("status"), found.get("reason")) == ("False", reason) else None

        return str(wait_until(f"{condition}=False/{reason}", probe, seconds=seconds))

    def revision(self, role: str) -> str | None:
        revisions = self.resource().get("status", {}).get("revisions", [])
        return next((str(r["name"]) for r in revisions if r["role"] == role), None)

    def pods(self, revision: str) -> list[Object]:
        """Live pods of a revision."""
        selector = f"headway.dev/model={MODEL},headway.dev/revision={revision},headway.dev/component=runtime"
        pods = self.platform.access.items(self.namespace, "pods", "-l", selector)
        return [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]

    def wait_pods(self, count: int) -> None:
        """Wait until every router knows as many healthy pods of the stable revision; DNS takes up to 30 s."""
        cluster = f"{MODEL}/{self.revision('Stable')}"

        def known() -> bool:
            routers = self.platform.access.items(self.namespace, "pods", "-l", "headway.dev/component=router")
            return [self._healthy(router["metadata"]["name"], cluster) for router in routers] == [count, count]

        wait_until(f"two routers that know {count} healthy pods", known, seconds=300, every=0.5)

    def _healthy(self, router: str, cluster: str) -> int:
        path = f"/api/v1/namespaces/{self.namespace}/pods/{router}:{ADMIN_PORT}/proxy/readout"
        with contextlib.suppress(StoryError):  # it has just gone, or does not answer yet
            return readout.parse(self.platform.access.kubectl("get", "--raw", path), router).healthy.get(cluster, 0)
        return 0

    @contextlib.contextmanager
    def traffic(self) -> Iterator[Traffic]:
        """Half of the clients keep their connections, half open one for every request."""
        with (
            self.platform.access.reach(self.namespace, MODEL) as url,
            Traffic(url, MODEL, [BODY], clients=CLIENTS, keep_alive=CLIENTS // 2, pause=0.02) as traffic,
        ):
            wait_until("the first answers", lambda: len(traffic.answers) > 20, seconds=180)
            yield traffic
            time.sleep(0.5)


def _merge(into: Object, changes: Object) -> None:
    for key, value in changes.items():
        if isinstance(value, dict) and isinstance(into.get(key), dict):
            _merge(into[key], value)
        else:
            into[key] = value


@contextlib.contextmanager
def small_world(
    platform: Platform, namespace: str, directory: Path, *, replicas: int = 1, sandbox: str = "BestEffort"
) -> Iterator[Small]:
    """The namespace with two versions published and the first one serving; gone afterwards."""
    platform.forget(namespace)
    platform.namespace(namespace)
    publish(platform, namespace, {f"small/{seed}.pt2": export(directory, seed) for seed in (1, 2)})
    world = Small(platform, namespace)
    world.manifest["spec"]["replicas"] = replicas
    world.manifest["spec"]["template"]["sandbox"] = sandbox
    try:
        world.apply()
        world.wait("Ready", "Routed", "UpToDate")
        yield world
    finally:
        platform.forget(namespace, wait=False)
