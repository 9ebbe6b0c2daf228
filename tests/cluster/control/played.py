"""Pods that play: what a kubelet writes into their status, and a stand-in for the model server in each.

There is no node here. The stand-in answers `/report` on the pod's own loopback address, as the runtime does, and obeys
the knobs that were mounted when it started or when an annotation of the pod changed, as a kubelet refreshes them.
"""

import json
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from random import randrange
from typing import Any

from headway_api import names
from headway_api.podconfig import knobs_hash

from tests.cluster.control.kube import Kube, Object

DIGEST = f"sha256:{'5' * 64}"


@dataclass(slots=True)
class PlayedPod:
    """One pod: its address, what it says, and how often it was asked."""

    name: str
    revision: str
    address: str
    knobs: str
    noticed: str  # the sync annotation when the volumes were last refreshed
    asked: int = 0
    server: ThreadingHTTPServer | None = None
    deaf: bool = False  # the kubelet does not notice annotations
    taken: bool = False  # by its model: it warms up without end, says something new in each answer, and much of it

    def report(self) -> bytes:
        self.asked += 1
        report: dict[str, Any] = {
            "model": "sentiment",
            "revision": self.revision,
            "phase": "Ready",
            "artifactDigest": DIGEST,
            "buckets": {"total": 1, "warm": 1},
            "knobs": {"hash": self.knobs, "effective": {}},
            "signature": "s",
        }
        if self.taken:
            words = f"{self.asked}\n\x1b[2J" + 60_000 * "x"
            report |= {
                "phase": "Warming",
                "buckets": {"total": 1_000_000, "warm": self.asked},
                "failure": {"reason": "DigestMismatch", "message": words, "condition": "ArtifactVerified"},
            }
        return json.dumps(report).encode()


@dataclass(slots=True)
class PlayedNode:
    """Plays every runtime pod of a namespace until it is ended."""

    kube: Kube
    pods: dict[str, PlayedPod] = field(default_factory=dict)  # by UID
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None
    _network: str = field(default_factory=lambda: f"127.{randrange(100, 200)}.{randrange(256)}")
    _numbers: Iterator[int] = field(default_factory=lambda: count(1))

    def start(self) -> "PlayedNode":
        """Begin, in a thread."""
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        return self

    def end(self) -> None:
        """End everything that was started."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        for pod in self.pods.values():
            if pod.server is not None:
                pod.server.shutdown()
                pod.server.server_close()

    def _run(self) -> None:
        while not self._stop.wait(0.1):
            for obj in self.kube.pods():
                labels = obj["metadata"].get("labels", {})
                if labels.get(names.LABEL_COMPONENT) == names.COMPONENT_RUNTIME:
                    self._sync(obj, labels[names.LABEL_REVISION])

    def _sync(self, obj: Object, revision: str) -> None:
        metadata = obj["metadata"]
        annotation = metadata.get("annotations", {}).get(names.ANNOTATION_SYNC, "")
        pod = self.pods.get(metadata["uid"])
        if pod is None:
            address = f"{self._network}.{next(self._numbers)}"
            pod = PlayedPod(metadata["name"], revision, address, self._knobs(), annotation)
            pod.server = _serve(pod)
            self.pods[metadata["uid"]] = pod
            self.kube.patch_pod_status(pod.name, running(pod.address))
        elif annotation != pod.noticed and not pod.deaf:
            pod.noticed, pod.knobs = annotation, self._knobs()

    def _knobs(self) -> str:
        return knobs_hash(self.kube.must("ConfigMap", "sentiment-knobs")["data"][names.KNOBS_KEY])


def running(address: str) -> Object:
    """The status of a pod that has prepared and serves."""
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    message = json.dumps({"reason": "Prepared", "digest": DIGEST})
    ended = {"terminated": {"exitCode": 0, "reason": "Completed", "message": message, "finishedAt": now}}
    common = {"ready": True, "restartCount": 0, "image": "i", "imageID": "i", "started": True}
    conditions = ("PodScheduled", "Initialized", "ContainersReady", "Ready")
    return {
        "phase": "Running",
        "podIP": address,
        "podIPs": [{"ip": address}],
        "conditions": [{"type": name, "status": "True", "lastTransitionTime": now} for name in conditions],
        "initContainerStatuses": [{**common, "name": names.PREPARE_CONTAINER, "state": ended}],
        "containerStatuses": [{**common, "name": names.SERVE_CONTAINER, "state": {"running": {"startedAt": now}}}],
    }


def _serve(pod: PlayedPod) -> ThreadingHTTPServer:
    class Admin(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = pod.report()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer((pod.address, names.ADMIN_PORT), Admin)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    return server
