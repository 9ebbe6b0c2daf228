"""kstatus's two abnormal-true conditions, present only while true: `Reconciling` and `Stalled`."""

from headway_api.conditions import ConditionType, Reason

from headway_operator.status.verdict import Verdict, true
from headway_operator.status.view import View

Verdicts = dict[ConditionType, Verdict]


def stalled(view: View, said: Verdicts) -> Verdict | None:
    """Nothing will happen until somebody does something."""
    if abort := view.plan.abort:
        return true(abort.reason, abort.message)
    accepted = said[ConditionType.ACCEPTED]
    if accepted.status == "False":
        return true(accepted.reason, accepted.message)
    if late := view.late():
        message = f"Not ready within spec.rollout.progressDeadline: {', '.join(late)}. {view.plan.step.message}"
        return true(Reason.PROGRESS_DEADLINE_EXCEEDED, message)
    return None


def reconciling(view: View, said: Verdicts, *, is_stalled: bool) -> Verdict | None:
    """Something is on its way and will come to an end by itself."""
    leaving = [target.revision for target in view.plan.targets if target.leaving]
    waits = said[ConditionType.KNOBS_APPLIED].reason == Reason.WAITING
    starts = not is_stalled and (view.plan.rollout_since or not view.plan.step.settled)
    pending = said[ConditionType.ROUTED].reason == Reason.WEIGHT_PENDING
    if not (leaving or waits or starts or pending):
        return None
    going = f"; {', '.join(leaving)} is being removed" if leaving else ""
    return true(view.plan.step.reason, view.plan.step.message + going)
