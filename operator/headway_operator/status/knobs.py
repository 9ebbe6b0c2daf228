"""The hot fields: `status.knobs` and the condition `KnobsApplied`."""

from headway_api.conditions import ConditionType, Reason
from headway_api.podconfig import KnobsReport, knobs_hash

from headway_operator.desired.knobs import knobs_text
from headway_operator.observed import Object, Pod
from headway_operator.status.verdict import KEEP, Verdict, false, first, true
from headway_operator.status.view import View


def knobs(view: View) -> Object:
    """Who obeys the newest hot fields, and what is in effect; as before while a pod's report is not known."""
    asked, before = asked_hash(view), view.before.get("knobs")
    if before and before.get("hash") == asked and _unread(view):
        return dict(before)
    reports = _reports(view)
    effective = next((dict(report.effective) for report in reports if report.hash == asked), None)
    return {
        "hash": asked,
        "pods": len(_live(view)),
        "applied": sum(report.hash == asked for report in reports),
        **({"effective": effective} if effective else {}),
    }


def knobs_applied(view: View) -> Verdict:
    """Whether every live pod has confirmed the hot fields of this generation."""
    return first((_rejected, _unknown, _nobody, _waiting, _clamped, _applied), view)


def asked_hash(view: View) -> str:
    """The name of the knobs file that the pods should obey."""
    assert view.observed.resource.spec is not None
    return knobs_hash(knobs_text(view.observed.resource.spec))


def _live(view: View) -> list[Pod]:
    """The pods that answer or have said something, the stable's first; a pod that only starts is not asked yet."""
    pods = [pod for target in view.plan.targets for pod in view.pods(target.revision)]
    return [pod for pod in pods if pod.ready or pod.report]


def _reports(view: View) -> list[KnobsReport]:
    return [pod.report.knobs for pod in _live(view) if pod.report]


def _unread(view: View) -> bool:
    return any(pod.report is None for pod in _live(view))


def _rejected(view: View) -> Verdict | None:
    error = next((report.error for report in _reports(view) if report.error), None)
    return false(Reason.KNOBS_REJECTED, f"Pods go on with the knobs they have: {error}") if error else None


def _unknown(view: View) -> Verdict | None:
    same = view.before.get("knobs", {}).get("hash") == asked_hash(view)
    told = view.condition_before(ConditionType.KNOBS_APPLIED)
    return KEEP if told and same and (_unread(view) or not _live(view)) else None


def _nobody(view: View) -> Verdict | None:
    return None if _live(view) else false(Reason.WAITING, "No pod runs yet")


def _waiting(view: View) -> Verdict | None:
    confirmed = sum(report.hash == asked_hash(view) for report in _reports(view))
    if confirmed == (live := len(_live(view))):
        return None
    return false(Reason.WAITING, f"{confirmed} of {live} pods have confirmed the newest values")


def _clamped(view: View) -> Verdict | None:
    clamps = sorted({(clamp.field, clamp.message) for report in _reports(view) for clamp in report.clamped})
    if not clamps:
        return None
    return false(Reason.CLAMPED, "; ".join(m if f in m else f"{f}: {m}" for f, m in clamps))


def _applied(view: View) -> Verdict:
    return true(Reason.APPLIED, "Every pod that serves obeys the newest values")
