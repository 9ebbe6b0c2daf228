"""The last written status, as far as it can be believed.

`kubectl edit --subresource=status`, a controller that adds a condition of its own, and an older or newer release may
all have written there. What is not as this release writes it is left out: it counts as not known, and is said anew.
"""

from collections.abc import Callable
from typing import Any

from headway_api.conditions import ConditionType
from headway_api.statustypes import (
    AbortStatus,
    Condition,
    FailureStatus,
    KnobsStatus,
    RecommendationStatus,
    RevisionStatus,
    StatusModel,
)
from pydantic import ValidationError

from headway_operator.observed import Object, Role
from headway_operator.plan.moments import parse_time

_Check = Callable[[Any], bool]


def readable(status: Object) -> Object:
    """The parts of a status that passes may build on; a part that is not known is absent."""
    rollout = status.get("rollout")
    abort = _part(AbortStatus, rollout.get("abort") if isinstance(rollout, dict) else None, _ABORT)
    parts = {
        **{key: value for key in ("observedGeneration", "url") if (value := status.get(key)) is not None},
        "revisions": _revisions(status.get("revisions")),
        "trafficVerifiedTime": time if _is_time(time := status.get("trafficVerifiedTime")) else None,
        "knobs": _part(KnobsStatus, status.get("knobs"), {}),
        "rollout": rollout if abort or (isinstance(rollout, dict) and "abort" not in rollout) else None,
        "recommendation": _part(RecommendationStatus, status.get("recommendation"), {}),
        "lastFailure": _part(FailureStatus, status.get("lastFailure"), {}),
        "conditions": _parts(Condition, status.get("conditions"), _CONDITION),
    }
    return {key: value for key, value in parts.items() if value is not None}


def _revisions(entries: Any) -> list[Object] | None:
    """The live versions; without their weights when these are more than all requests."""
    found = _parts(RevisionStatus, entries, _REVISION)
    if found and sum(entry.get("weight", 0) for entry in found) > 100:
        return [{key: value for key, value in entry.items() if key != "weight"} for entry in found]
    return found


def _parts(model: type[StatusModel], entries: Any, checks: dict[str, _Check]) -> list[Object] | None:
    if not isinstance(entries, list):
        return None
    return [part for entry in entries if (part := _part(model, entry, checks)) is not None]


def _part(model: type[StatusModel], value: Any, checks: dict[str, _Check]) -> Object | None:
    """The value with the fields that this release knows; None when one is of another type or fails its check."""
    if not isinstance(value, dict):
        return None
    fields = [field.alias for field in model.model_fields.values() if field.alias is not None]
    known = {field: value[field] for field in fields if value.get(field) is not None}
    try:
        model.model_validate(known, strict=True)
    except ValidationError:
        return None
    return known if all(check(known.get(key)) for key, check in checks.items()) else None


def _is_time(value: Any) -> bool:
    try:
        parse_time(value)
    except (TypeError, ValueError, OverflowError):
        return False
    return True


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_absent_or(check: _Check) -> _Check:
    return lambda value: value is None or check(value)


_REVISION: dict[str, _Check] = {
    "role": lambda role: role in set(Role),
    "weight": _is_absent_or(lambda weight: 0 <= weight <= 100),
    "ready": _is_absent_or(lambda ready: ready >= 0),
    "since": _is_absent_or(_is_time),
    "progressingSince": _is_absent_or(_is_time),
}
_CONDITION: dict[str, _Check] = {
    "type": lambda kind: kind in set(ConditionType),
    "reason": _is_text,
    "message": _is_text,
    "lastTransitionTime": _is_time,
}
_ABORT: dict[str, _Check] = {
    "revision": _is_text,
    "generation": lambda generation: isinstance(generation, int),
    "reason": _is_text,
    "message": _is_text,
    "time": _is_time,
}
