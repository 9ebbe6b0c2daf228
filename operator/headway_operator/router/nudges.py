"""Making router pods look at their mounted files at once: within a second, where the kubelet alone takes a minute."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from headway_api import names

from headway_operator.cluster import Cluster
from headway_operator.errors import ConflictError, GoneError
from headway_operator.observed import Object
from headway_operator.router.acks import RouterPod
from headway_operator.router.render import Files

PAUSE = 3.0  # seconds without an acknowledgement after which a pod is nudged again; doubles each time
MOST = 6  # nudges for one content


@dataclass(frozen=True, slots=True)
class _Nudge:
    content: str
    count: int
    due: float  # when the next one may follow


class RouterNudges:
    """The nudges that were given, by pod UID."""

    def __init__(self, cluster: Cluster, clock: Callable[[], float]) -> None:
        self._cluster = cluster
        self._clock = clock
        self._given: dict[str, dict[str, _Nudge]] = {}

    async def give(self, namespace: str, pods: Sequence[RouterPod], files: Files) -> list[Object]:
        """Nudge pods that have not acknowledged `files`. Returns their objects as they are now."""
        content = _digest(files)
        before, given = self._given.get(namespace, {}), {}
        nudged: list[Object] = []
        for pod in pods:
            last = before.get(pod.uid)
            if last is None or last.content != content:
                last = _Nudge(content, 0, self._clock())
            if last.count < MOST and self._clock() >= last.due:
                last = _Nudge(content, last.count + 1, self._clock() + PAUSE * 2**last.count)
                nudged += await self._nudge(pod, f"{content}.{last.count}")
            given[pod.uid] = last
        self._given[namespace] = given
        return nudged

    def forget(self, namespace: str) -> None:
        """Everything is acknowledged, or the router is gone."""
        self._given.pop(namespace, None)

    async def _nudge(self, pod: RouterPod, value: str) -> list[Object]:
        try:
            return [await self._cluster.annotate(pod.live, {names.ANNOTATION_SYNC: value})]
        except (GoneError, ConflictError):
            return []


def _digest(files: Files) -> str:
    versions = "\n".join(file.version for file in (files.listeners, files.clusters, files.routes))
    return hashlib.sha256(versions.encode()).hexdigest()[:12]
