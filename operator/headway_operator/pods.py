"""What a pod's object says: `Pod` from its JSON. Pure."""

from collections.abc import Iterator
from datetime import datetime
from typing import NamedTuple

from headway_api import names
from headway_api.podconfig import PREPARED, Report, Termination

from headway_operator import heard
from headway_operator.observed import Object, Pod

_ORDINARY_WAITS = ("ContainerCreating", "PodInitializing")


class _End(NamedTuple):
    """One end of a container."""

    time: float
    container: str
    reason: str
    message: str


def parse_pod(obj: Object, report: Report | None) -> Pod:
    """The pod, with the report it gave for its present (uid, restarts), if it gave one."""
    metadata, status = obj["metadata"], obj.get("status") or {}
    ends = sorted(_ends(status))
    typed = [(end, termination) for end in ends if (termination := _termination(end.message)) is not None]
    prepared = next((told for end, told in reversed(typed) if _has_prepared(end, told)), None)
    waiting = next(_waits(status), None)
    newest_end = ends[-1] if ends else None
    speaker = waiting[0] if waiting else newest_end.container if newest_end else None
    return Pod(
        name=metadata["name"],
        uid=metadata["uid"],
        revision=(metadata.get("labels") or {}).get(names.LABEL_REVISION, ""),
        ip=status.get("podIP"),
        ready=_condition(status, "Ready").get("status") == "True",
        terminating="deletionTimestamp" in metadata,
        unschedulable=_unschedulable(status),
        waiting=waiting[1:] if waiting else None,
        oom_killed=newest_end is not None and newest_end.reason == "OOMKilled",
        restarts=restarts(obj),
        termination=typed[-1][1] if typed else None,
        terminated=typed[-1][0].container if typed else None,
        digest=prepared.digest if prepared else None,
        signer=prepared.signer if prepared else None,
        container=speaker,
        failed_at=max((end.time for end in ends if end.container == speaker), default=None),
        report=report,
    )


def is_live(obj: Object) -> bool:
    """Whether the pod may still run: not evicted, not completed."""
    return (obj.get("status") or {}).get("phase") not in ("Failed", "Succeeded")


def is_serving_process_up(obj: Object) -> bool:
    """Whether the serve container runs, so that its admin port may answer."""
    statuses = (obj.get("status") or {}).get("containerStatuses") or []
    return any(
        status["name"] == names.SERVE_CONTAINER and "running" in (status.get("state") or {}) for status in statuses
    )


def restarts(obj: Object) -> int:
    """How often its containers were started again."""
    return sum(container.get("restartCount", 0) for container in _containers(obj.get("status") or {}))


def seconds(timestamp: str) -> float:
    """Seconds since the epoch of an API timestamp."""
    return datetime.fromisoformat(timestamp).timestamp()


def _containers(status: Object) -> list[Object]:
    return [*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])]


def _ends(status: Object) -> Iterator[_End]:
    for container in _containers(status):
        for state in (container.get("lastState") or {}, container.get("state") or {}):
            if ended := state.get("terminated"):
                time = seconds(ended["finishedAt"]) if ended.get("finishedAt") else 0.0
                yield _End(time, container["name"], ended.get("reason", ""), ended.get("message", ""))


def _waits(status: Object) -> Iterator[tuple[str, str, str]]:
    """Container, reason and message of every wait that is not an ordinary start."""
    for container in _containers(status):
        waiting = (container.get("state") or {}).get("waiting") or {}
        if (reason := waiting.get("reason")) and reason not in _ORDINARY_WAITS:
            yield container["name"], reason, waiting.get("message", "")


def _termination(message: str) -> Termination | None:
    """The typed message of a container of ours; None for the words of anything else."""
    try:
        return heard.read(Termination, message)
    except ValueError:
        return None


def _has_prepared(end: _End, told: Termination) -> bool:
    """Whether the message names the digest that `prepare` found. The model in `serve` may write what it likes."""
    return end.container == names.PREPARE_CONTAINER and told.reason == PREPARED and bool(told.digest)


def _condition(status: Object, name: str) -> Object:
    conditions: list[Object] = status.get("conditions") or []
    return next((condition for condition in conditions if condition["type"] == name), {})


def _unschedulable(status: Object) -> str | None:
    scheduled = _condition(status, "PodScheduled")
    if scheduled.get("status") == "False" and scheduled.get("reason") == "Unschedulable":
        return str(scheduled.get("message", ""))
    return None
