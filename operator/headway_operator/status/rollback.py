"""`RollbackReady`: whether the version that served before could take over now, and how much of the load."""

from headway_api.conditions import ConditionType, Reason
from headway_api.types import Keep

from headway_operator.observed import Role, Target
from headway_operator.plan.moments import format_time
from headway_operator.status.verdict import Verdict, false, first, true
from headway_operator.status.view import View


def rollback_ready(view: View) -> Verdict:
    """Whether the version that served before could take over now."""
    return first((_warm, _not_ready, _expired, _none), view)


def _warm(view: View) -> Verdict | None:
    previous = view.plan.target(Role.PREVIOUS)
    if previous is None or not view.facts.ready_of(previous.revision):
        return None
    return true(Reason.WARM, f"{_counted(view, previous)}, kept until {_until(view, previous)}")


def _not_ready(view: View) -> Verdict | None:
    previous = view.plan.target(Role.PREVIOUS)
    if previous is None:
        return None
    failure = view.failure(previous.revision)
    why = f": {failure.message}" if failure else ""
    return false(Reason.PREVIOUS_NOT_READY, _counted(view, previous) + why)


def _expired(view: View) -> Verdict | None:
    if view.facts.rollback.keep is not Keep.WARM:
        return None
    old = view.condition_before(ConditionType.ROLLBACK_READY)
    present = {target.revision for target in view.plan.targets if not target.leaving}
    gone = any(entry["role"] == Role.PREVIOUS and name not in present for name, entry in view.facts.before.items())
    if not gone and not (old and old["reason"] == Reason.EXPIRED):
        return None
    kept = view.facts.rollback.keep_for
    return false(Reason.EXPIRED, f"The previous version was kept for {kept} (spec.rollback.keepFor) and is gone")


def _none(view: View) -> Verdict:
    return false(Reason.NO_PREVIOUS, "No previous version is kept")


def _counted(view: View, previous: Target) -> str:
    ready = view.facts.ready_of(previous.revision)
    return f"Revision {previous.revision}: {ready} of {view.facts.replicas} replicas warm"


def _until(view: View, previous: Target) -> str:
    return format_time(view.plan.role_since[previous.revision] + view.facts.keep_for)
