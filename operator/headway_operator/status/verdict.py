"""What a condition says, and how it becomes an entry of `status.conditions`."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from headway_api.conditions import ConditionType

from headway_operator.observed import Object, Resource
from headway_operator.plan.moments import format_time
from headway_operator.status.view import View

LONGEST_MESSAGE = 2048  # characters; a message of Envoy or of a scheduler has no bound of its own


@dataclass(frozen=True, slots=True)
class Verdict:
    """Status (`True`, `False` or `Unknown`), reason and message of a condition."""

    status: str
    reason: str
    message: str


KEEP = Verdict("", "", "")  # leave the condition as it was last written: its facts are not known at this moment


def true(reason: str, message: str) -> Verdict:
    """It is so."""
    return Verdict("True", reason, message)


def false(reason: str, message: str) -> Verdict:
    """It is not so."""
    return Verdict("False", reason, message)


def unknown(reason: str, message: str) -> Verdict:
    """Nobody knows yet."""
    return Verdict("Unknown", reason, message)


def first(chain: Sequence[Callable[[View], Verdict | None]], view: View) -> Verdict:
    """The first explanation that matches. The last of a chain always does."""
    return next(verdict for explanation in chain if (verdict := explanation(view)))


def entry(resource: Resource, kind: ConditionType, verdict: Verdict, now: float) -> Object:
    """The condition; its transition time moves only when its status does."""
    old = next((c for c in resource.status.get("conditions", []) if c["type"] == kind), None)
    same = old is not None and old["status"] == verdict.status
    return {
        "type": kind.value,
        "status": verdict.status,
        "reason": str(verdict.reason),
        "message": verdict.message[:LONGEST_MESSAGE],
        "observedGeneration": resource.generation,
        "lastTransitionTime": old["lastTransitionTime"] if old and same else format_time(now),
    }
