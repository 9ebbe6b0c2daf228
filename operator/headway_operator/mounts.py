"""Which Secret a pod hangs on. Read from the pod's events, so that the operator needs no right to read any Secret.

Credentials and keys of signers are volumes of the prepare container: while a Secret is not there the kubelet holds the
pod in ContainerCreating and says so in an event, nowhere in the pod's status.
"""

import re
from collections.abc import Callable

from headway_operator.cluster import Cluster
from headway_operator.kinds import POD_EVENT
from headway_operator.observed import Object
from headway_operator.pods import seconds
from headway_operator.store import Owner

HANGING = 5.0  # seconds after which a pod without any container is asked about
AGAIN = 15.0  # seconds between two questions for the same ModelDeployment

_NOT_FOUND = re.compile(r'secret "([^"]+)" not found')


class Mounts:
    """The Secrets that are known to be missing, by ModelDeployment."""

    def __init__(self, cluster: Cluster, clock: Callable[[], float]) -> None:
        self._cluster = cluster
        self._clock = clock
        self._asked: dict[Owner, tuple[float, tuple[str, ...]]] = {}  # when, and what was missing

    async def missing(self, owner: Owner, pods: list[Object]) -> tuple[tuple[str, ...], float | None]:
        """Names of Secrets that pods wait for, and the seconds until that should be asked again, if it should."""
        starting = [pod for pod in pods if _has_not_started(pod)]
        if not starting:
            self.forget(owner)
            return (), None
        now = self._clock()
        eldest = min(starting, key=_created)
        if (wait := _created(eldest) + HANGING - now) > 0:
            return (), wait
        asked, found = self._asked.get(owner, (0.0, ()))
        if now - asked >= AGAIN:
            found = await self._ask(eldest)
            self._asked[owner] = (now, found)
            asked = now
        return found, asked + AGAIN - now

    def forget(self, owner: Owner) -> None:
        """Nothing hangs, or the ModelDeployment is gone."""
        self._asked.pop(owner, None)

    async def _ask(self, pod: Object) -> tuple[str, ...]:
        metadata = pod["metadata"]
        fields = f"involvedObject.uid={metadata['uid']},reason=FailedMount"
        events, _ = await self._cluster.list(POD_EVENT, metadata["namespace"], fields=fields)
        return tuple(sorted({name for event in events for name in _NOT_FOUND.findall(event.get("message") or "")}))


def _created(pod: Object) -> float:
    return seconds(pod["metadata"]["creationTimestamp"])


def _has_not_started(pod: Object) -> bool:
    """Scheduled, but no container was ever created: where a volume that cannot be mounted leaves a pod."""
    status = pod.get("status") or {}
    scheduled = any(c["type"] == "PodScheduled" and c["status"] == "True" for c in status.get("conditions") or [])
    containers = [*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])]
    waiting = [(container.get("state") or {}).get("waiting") or {} for container in containers]
    ordinary = all(state.get("reason") in ("ContainerCreating", "PodInitializing") for state in waiting)
    deleted = "deletionTimestamp" in pod["metadata"]
    return status.get("phase") == "Pending" and scheduled and ordinary and not deleted
