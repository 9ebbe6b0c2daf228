"""Events for users (`kubectl describe md`): written on transitions only, never twice in a row, never in a flood.

kopf's own posting is off: it would put log lines there. Each object may have a burst of events and then one at
intervals, as in client-go. An event that cannot be written is dropped: it is a courtesy, and the conditions say the
same.
"""

import logging
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from headway_operator.cluster import Cluster
from headway_operator.errors import ClusterError
from headway_operator.kinds import EVENT
from headway_operator.metrics import Metrics
from headway_operator.observed import Object
from headway_operator.status import Event

LONGEST_NOTE = 1024  # bytes that the API server accepts
BURST, REFILL = 20.0, 30.0  # events per object at once; seconds until one more
SILENCE = 600.0  # seconds in which the same words are not said again

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Budget:
    """What an object may still say, and what it said."""

    tokens: float
    time: float
    said: dict[Event, float]


class Recorder:
    """Writes events about objects. `instance` names this operator process."""

    def __init__(self, *, cluster: Cluster, metrics: Metrics, clock: Callable[[], float], instance: str) -> None:
        self._cluster = cluster
        self._metrics = metrics
        self._clock = clock
        self._instance = instance
        self._budgets: dict[str, _Budget] = {}  # by UID of the object

    async def record(self, about: Object, event: Event) -> None:
        """Write an event about an object, unless it said the same a moment ago or says too much."""
        if not self._may_say(about["metadata"]["uid"], event):
            self._metrics.events.labels("suppressed").inc()
            return
        try:
            await self._cluster.create(self._event(about, event))
        except ClusterError as error:
            self._metrics.events.labels("failed").inc()
            _log.warning("event_not_written", extra={"reason": event.reason, "error": str(error)})
        else:
            self._metrics.events.labels("written").inc()

    def forget(self, uid: str) -> None:
        """The object is gone."""
        self._budgets.pop(uid, None)

    def _may_say(self, uid: str, event: Event) -> bool:
        now = self._clock()
        budget = self._budgets.setdefault(uid, _Budget(BURST, now, {}))
        budget.tokens = min(BURST, budget.tokens + max(0.0, now - budget.time) / REFILL)  # clocks are set back, too
        budget.time = now
        budget.said = {said: time for said, time in budget.said.items() if 0 <= now - time < SILENCE}
        if event in budget.said or budget.tokens < 1:
            return False
        budget.tokens -= 1
        budget.said[event] = now
        return True

    def _event(self, about: Object, event: Event) -> Object:
        metadata = about["metadata"]
        return {
            "apiVersion": EVENT.api_version,
            "kind": EVENT.kind,
            "metadata": {"name": f"{metadata['name']}.{uuid.uuid4().hex[:16]}", "namespace": metadata["namespace"]},
            "eventTime": datetime.fromtimestamp(self._clock(), UTC).isoformat(timespec="microseconds"),
            "type": event.type,
            "reason": event.reason,
            "note": event.message.encode()[:LONGEST_NOTE].decode(errors="ignore"),
            "action": "Reconcile",
            "reportingController": "headway.dev/operator",
            "reportingInstance": self._instance[:128],
            "regarding": {
                "apiVersion": about["apiVersion"],
                "kind": about["kind"],
                "name": metadata["name"],
                "namespace": metadata["namespace"],
                "uid": metadata["uid"],
            },
        }
