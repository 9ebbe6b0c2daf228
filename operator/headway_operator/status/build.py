"""The whole status of one pass."""

from headway_api.conditions import ConditionType

from headway_operator.observed import Object, Observed, Plan
from headway_operator.status import (
    advice,
    generation,
    knobs,
    live,
    padding,
    program,
    progress,
    rollback,
    sandbox,
    serving,
)
from headway_operator.status.verdict import KEEP, Verdict, entry, false, true
from headway_operator.status.view import View, view

Verdicts = dict[ConditionType, Verdict]


def status(observed: Observed, plan: Plan, now: float) -> Object:
    """The `status` to write, if it differs from the one that is there. `now` is in seconds since the epoch."""
    if plan.hands_off:
        return _untouched(observed, plan, now)
    seen = view(observed, plan, now)
    resource = observed.resource
    parts = {
        "observedGeneration": resource.generation,
        "url": f"http://{resource.name}.{resource.namespace}.svc",
        "revisions": live.revisions(seen),
        "trafficVerifiedTime": live.traffic_verified_time(seen),
        "knobs": knobs.knobs(seen),
        "rollout": live.rollout(seen),
        "recommendation": advice.recommendation(seen),
        "generation": generation.generation(seen),
        "lastFailure": live.last_failure(seen),
        "conditions": _written(observed, _verdicts(seen), now),
    }
    return {key: value for key, value in parts.items() if value is not None}


def _verdicts(seen: View) -> Verdicts:
    said = {
        ConditionType.ACCEPTED: program.accepted(seen),
        ConditionType.ARTIFACT_VERIFIED: program.verified(seen),
        ConditionType.READY: serving.ready(seen),
        ConditionType.UP_TO_DATE: serving.up_to_date(seen),
        ConditionType.KNOBS_APPLIED: knobs.knobs_applied(seen),
        ConditionType.ROUTED: serving.routed(seen),
        ConditionType.ROLLBACK_READY: rollback.rollback_ready(seen),
        ConditionType.SANDBOXED: sandbox.sandboxed(seen),
        ConditionType.PADDING_PROVEN: padding.padding_proven(seen),
    }
    stalled = progress.stalled(seen, said)
    reconciling = progress.reconciling(seen, said, is_stalled=stalled is not None)
    return (
        said
        | ({ConditionType.RECONCILING: reconciling} if reconciling else {})
        | ({ConditionType.STALLED: stalled} if stalled else {})
    )


def _untouched(observed: Observed, plan: Plan, now: float) -> Object:
    """Everything stays; what is in the way is said, and that what serves is not what the spec asks for."""
    resource = observed.resource
    before = resource.status
    if observed.namespace_terminating:
        return dict(before)
    refused = false(plan.step.reason, plan.step.message)
    kept = {ConditionType(c["type"]): KEEP for c in before.get("conditions", []) if c["type"] != "Reconciling"}
    said = {
        ConditionType.ACCEPTED: refused,
        ConditionType.UP_TO_DATE: refused,
        ConditionType.STALLED: true(plan.step.reason, plan.step.message),
    }
    conditions = _written(observed, {**kept, **said}, now)
    return {**before, "observedGeneration": resource.generation, "conditions": conditions}


def _written(observed: Observed, said: Verdicts, now: float) -> list[Object]:
    """The conditions in their order; those to be kept exactly as they were."""
    before = {condition["type"]: condition for condition in observed.resource.status.get("conditions", [])}
    return [
        before[kind] if said[kind] is KEEP else entry(observed.resource, kind, said[kind], now)
        for kind in ConditionType
        if kind in said
    ]
