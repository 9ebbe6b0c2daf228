"""Events: what changed between two statuses, said once."""

from collections.abc import Iterator
from dataclasses import dataclass

from headway_api.conditions import ConditionType, Reason

from headway_operator.observed import Object, Role
from headway_operator.status.view import weights_text

LONGEST_NOTE = 1024  # characters; the API server refuses a longer one

_SPOKEN = (
    ConditionType.ACCEPTED,
    ConditionType.ARTIFACT_VERIFIED,
    ConditionType.READY,
    ConditionType.UP_TO_DATE,
    ConditionType.KNOBS_APPLIED,
    ConditionType.ROUTED,
    ConditionType.ROLLBACK_READY,
    ConditionType.SANDBOXED,
    ConditionType.PADDING_PROVEN,
)
# False or unknown for a while in the ordinary course of things
_ORDINARY = frozenset(
    {
        Reason.PREPARING,
        Reason.STARTING,
        Reason.WARMING,
        Reason.ROLLING_OUT,
        Reason.ROLLING_BACK,
        Reason.CANARY_NOT_READY,
        Reason.WAITING,
        Reason.ROUTER_NOT_READY,
        Reason.WEIGHT_PENDING,
        Reason.NO_READY_REVISION,
        Reason.NO_PREVIOUS,
        Reason.EXPIRED,
        Reason.PREVIOUS_NOT_READY,
    }
)


@dataclass(frozen=True, slots=True)
class Event:
    """A Kubernetes event: `Normal` or `Warning`, one word for programs, a message of at most 1,024 characters."""

    type: str
    reason: str
    message: str


def events(before: Object, after: Object) -> list[Event]:
    """The transitions from one status to the next; none when nothing a user would want to know has changed."""
    return [
        Event(kind, reason, message[:LONGEST_NOTE])
        for kind, reason, message in (*_conditions(before, after), *_stable(before, after), *_weights(before, after))
    ]


def _conditions(before: Object, after: Object) -> Iterator[tuple[str, str, str]]:
    """A condition that became true, or that is not so for a new reason which a user would want to know."""
    old = {condition["type"]: condition for condition in before.get("conditions", [])}
    for condition in after.get("conditions", []):
        was = old.get(condition["type"], {})
        if condition["type"] not in _SPOKEN or (was.get("status"), was.get("reason")) == (
            condition["status"],
            condition["reason"],
        ):
            continue
        if condition["status"] == "True" and condition["type"] == ConditionType.ROUTED:
            continue  # `_weights` says to what
        if condition["status"] == "True":
            yield (
                "Warning" if condition["reason"] == Reason.ANSWERS_DIFFER else "Normal",
                condition["reason"],
                condition["message"],
            )
        elif condition["reason"] not in _ORDINARY:
            yield "Warning", condition["reason"], condition["message"]
        elif condition["type"] == ConditionType.UP_TO_DATE or (
            condition["type"] == ConditionType.READY and was.get("status") == "True"
        ):
            yield "Normal", condition["reason"], condition["message"]


def _stable(before: Object, after: Object) -> Iterator[tuple[str, str, str]]:
    old, new = _role(before, Role.STABLE), _role(after, Role.STABLE)
    if old and new and old != new:
        kept = " and is kept for a rollback" if _role(after, Role.PREVIOUS) == old else ""
        yield "Normal", "Promoted", f"Revision {new} is stable; {old} was before{kept}"


def _weights(before: Object, after: Object) -> Iterator[tuple[str, str, str]]:
    old, new = _shown(before), _shown(after)
    if new and old != new:
        yield "Normal", "WeightsConfirmed", f"Every router that serves runs {weights_text(new)}"


def _role(status: Object, role: Role) -> str | None:
    entries = (entry for entry in status.get("revisions", []) if entry["role"] == role and not entry.get("leaving"))
    return next((str(entry["name"]) for entry in entries), None)


def _shown(status: Object) -> dict[str, int]:
    return {entry["name"]: entry["weight"] for entry in status.get("revisions", []) if entry.get("weight")}
