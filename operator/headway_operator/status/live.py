"""What is live: `status.revisions`, `status.rollout`, `status.lastFailure`, `status.trafficVerifiedTime`."""

from headway_operator.observed import Object, Role, Target
from headway_operator.plan.failures import explain_pod
from headway_operator.plan.moments import format_time
from headway_operator.plan.refusal import Failure
from headway_operator.status import parity, precision, sandbox
from headway_operator.status.view import View


def revisions(view: View) -> list[Object]:
    """One entry for each revision that has pods or should have some, by name; those that leave come last.

    A column of `kubectl get` shows the first one of a role, and a version that leaves still has its last role.
    """
    ordered = sorted(view.plan.targets, key=lambda target: (target.leaving, target.revision))
    return [_revision(view, target) for target in ordered]


def _revision(view: View, target: Target) -> Object:
    name = target.revision
    record = view.records.get(name)
    progressing = view.plan.rollout_since.get(name)
    said = {
        "sandbox": sandbox.level(view, name),
        "parity": parity.level(view, name),
        "precision": precision.level(view, name),
    }
    return {
        "name": name,
        "role": target.role.value,
        **({"leaving": True} if target.leaving else {}),
        "weight": view.facts.acked_of(name),
        "replicas": target.replicas,
        "ready": view.facts.ready_of(name),
        **_buckets(view, name),
        **({"artifactDigest": record.pin} if record and record.pin else {}),
        **({"artifactUri": record.cold["artifact"]["uri"], "image": record.image} if record else {}),
        **{key: value for key, value in said.items() if value is not None},
        "since": format_time(view.plan.role_since[name]),
        **({"progressingSince": format_time(progressing)} if progressing is not None else {}),
    }


def _buckets(view: View, name: str) -> Object:
    """Buckets in all, and warm in the pod that is furthest behind; as before while no pod's report is known."""
    reports = [pod.report.buckets for pod in view.pods(name) if pod.report]
    if reports:
        total = max(report.total for report in reports)
        return {"buckets": total, "bucketsWarm": min(report.warm for report in reports)}
    before = view.facts.before.get(name, {})
    return {key: before[key] for key in ("buckets", "bucketsWarm") if key in before}


def rollout(view: View) -> Object | None:
    """The change that is under way, or that was given up; None when there is neither."""
    incoming, abort = view.plan.target(Role.INCOMING), view.plan.abort
    if abort:
        told = {
            "revision": abort.revision,
            "generation": abort.generation,
            "reason": str(abort.reason),
            "message": abort.message,
            "time": format_time(abort.time),
        }
        return {"revision": abort.revision, "rung": view.plan.step.rung, "abort": told}
    if incoming is None:
        return None
    return {
        "revision": incoming.revision,
        "rung": view.plan.step.rung,
        "weight": incoming.weight,
        "since": format_time(view.plan.role_since[incoming.revision]),
    }


def last_failure(view: View) -> Object | None:
    """The newest failure of a pod, of the newest revision that has one; kept after the pod is gone. None: never any."""
    before: Object | None = view.before.get("lastFailure")
    for target in sorted(view.plan.targets, key=lambda target: target.revision not in view.newest):
        record = view.records.get(target.revision)
        found = [failure for pod in view.pods(target.revision) if (failure := explain_pod(pod, record))]
        if found:
            return _failure(view, before, target.revision, max(found, key=lambda failure: failure.time or 0.0))
    return before


def _failure(view: View, before: Object | None, revision: str, failure: Failure) -> Object:
    told = {
        "revision": revision,
        "pod": failure.pod,
        "container": failure.container,
        "reason": str(failure.reason),
        "message": failure.message,
        "field": failure.field,
    }
    present = {key: value for key, value in told.items() if value is not None}
    if failure.time is None and before and {**before, **present} == before:
        return before
    return {**present, "time": format_time(view.facts.now if failure.time is None else failure.time)}


def traffic_verified_time(view: View) -> str | None:
    """When every serving router was first seen to run the present weights."""
    before: str | None = view.before.get("trafficVerifiedTime")
    shown = {name: entry.get("weight", 0) for name, entry in view.facts.before.items() if entry.get("weight")}
    if not view.facts.verified or not view.facts.acked or (before and shown == view.facts.acked):
        return before
    seen = view.observed.route.acknowledged_at
    return format_time(view.facts.now if seen is None else seen)
