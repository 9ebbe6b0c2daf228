"""`Ready`, `Routed` and `UpToDate`: whether requests are answered, by what, and whether that is what was asked for."""

from headway_api.conditions import ConditionType, Reason
from headway_api.podconfig import Phase

from headway_operator.observed import Role
from headway_operator.plan.replicas import capacity
from headway_operator.status import parity
from headway_operator.status.verdict import KEEP, Verdict, false, first, true
from headway_operator.status.view import View, weights_text


def ready(view: View) -> Verdict:
    """Whether the service answers; a candidate that fails does not make it false."""
    chain = (_unreachable, _answers_differ, _answers, _routers_unknown, _failed, _unrouted, _warming, _starting)
    return first(chain, view)


def routed(view: View) -> Verdict:
    """Whether every serving router runs the weights that are wanted."""
    return first((_rejected, _routes_unknown, _no_router, _nothing_to_route, _confirmed, _pending), view)


def up_to_date(view: View) -> Verdict:
    """Whether what serves is what the spec asks for: the rung of the ladder, in its words."""
    step = view.plan.step
    return (true if step.settled else false)(step.reason, step.message)


def _unreachable(view: View) -> Verdict | None:
    service = f"Service/{view.observed.resource.name}"
    if service not in view.observed.conflicts:
        return None
    return false(Reason.NAME_CONFLICT, f"{service} is somebody else's: requests to it reach no revision of this one")


def _answers_differ(view: View) -> Verdict | None:
    """It answers, though not as the artifact's golden answers say: `spec.verification.onMismatch: Warn` allows that."""
    answers, differing = _answers(view), parity.differing(view)
    if answers is None or not differing:
        return None
    before = view.condition_before(ConditionType.READY)
    if before and before["reason"] == Reason.ANSWERS_DIFFER and not all(parity.is_told(view, r) for r in differing):
        return KEEP
    told = "; ".join(parity.words(view, revision) for revision in differing)
    return true(Reason.ANSWERS_DIFFER, f"{answers.message}; {told}")


def _answers(view: View) -> Verdict | None:
    if not view.observed.route.routers or not any(view.facts.ready_of(revision) for revision in view.facts.acked):
        return None
    ready = f"{view.facts.ready_of(view.stable)} of {capacity(view.facts, Role.STABLE)} pods"
    return true(Reason.SERVING, f"The service answers; {ready} of revision {view.stable} are ready, every bucket warm")


def _routers_unknown(view: View) -> Verdict | None:
    told = view.condition_before(ConditionType.READY)
    return KEEP if told and not view.observed.route.known and view.facts.ready_of(view.stable) else None


def _failed(view: View) -> Verdict | None:
    failure = None if view.facts.ready_of(view.stable) else view.failure(view.stable)
    return false(failure.reason, failure.message) if failure else None


def _unrouted(view: View) -> Verdict | None:
    if not view.facts.ready_of(view.stable):
        return None
    if not view.observed.route.routers:
        return false(Reason.ROUTER_NOT_READY, f"Revision {view.stable} is ready; no router of the namespace serves yet")
    return false(Reason.WEIGHT_PENDING, f"Revision {view.stable} is ready; the routers do not send it requests yet")


def _warming(view: View) -> Verdict | None:
    reports = [pod.report for pod in view.pods(view.stable) if pod.report and pod.report.phase is Phase.WARMING]
    if not reports:
        return None
    warm, total = max((report.buckets.warm, report.buckets.total) for report in reports)
    return false(Reason.WARMING, f"Revision {view.stable} warms up: {warm} of {total} buckets are warm")


def _starting(view: View) -> Verdict:
    return false(Reason.STARTING, f"Revision {view.stable} has no ready pod yet")


def _rejected(view: View) -> Verdict | None:
    words = view.observed.route.rejected
    return false(Reason.ROUTER_REJECTED, f"The router cannot be as it should: {words}") if words else None


def _routes_unknown(view: View) -> Verdict | None:
    return KEEP if not view.observed.route.known and view.condition_before(ConditionType.ROUTED) else None


def _no_router(view: View) -> Verdict | None:
    if view.observed.route.routers:
        return None
    return false(Reason.ROUTER_NOT_READY, "No router of the namespace serves")


def _nothing_to_route(view: View) -> Verdict | None:
    if view.wanted:
        return None
    return false(Reason.NO_READY_REVISION, "No revision has been ready yet; requests are answered 503")


def _confirmed(view: View) -> Verdict | None:
    if not view.confirmed:
        return None
    return true(Reason.CONFIRMED, f"Every router that serves has confirmed: {weights_text(view.wanted)}")


def _pending(view: View) -> Verdict:
    asked, run = weights_text(view.wanted), weights_text(view.facts.acked)
    return false(Reason.WEIGHT_PENDING, f"The routers should run {asked}; confirmed so far: {run}")
