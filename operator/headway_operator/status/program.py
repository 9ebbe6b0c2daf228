"""`Accepted` and `ArtifactVerified`: what the newest revisions found out about their artifact and the spec."""

from headway_api.conditions import ConditionType, Reason
from headway_api.names import MAX_MODELS_PER_NAMESPACE
from headway_api.podconfig import Phase

from headway_operator.observed import Pod, Role
from headway_operator.plan.ladder import signature_message
from headway_operator.plan.weights import signature_changed
from headway_operator.status.verdict import KEEP, Verdict, false, first, true, unknown
from headway_operator.status.view import View

LONGEST_SIGNER = 128  # characters of the id of a key
_LOADED = (Phase.WARMING, Phase.READY, Phase.DRAINING)


def accepted(view: View) -> Verdict:
    """Whether the spec can be honoured by this program, on this device, in this namespace."""
    return first((_conflict, _full, _refused, _signature, _loaded, _accepted_before, _not_loaded), view)


def verified(view: View) -> Verdict:
    """Whether the artifact was fetched, is the right one, and was found safe."""
    return first((_unsafe, _prepared, _verified_before, _not_prepared), view)


def _conflict(view: View) -> Verdict | None:
    if not (taken := view.observed.conflicts):
        return None
    message = (
        f"{', '.join(sorted(taken))} exists in namespace {view.observed.resource.namespace!r} and is not owned by this "
        "ModelDeployment; it is left alone. Delete it, or give the ModelDeployment another metadata.name"
    )
    return false(Reason.NAME_CONFLICT, message)


def _full(view: View) -> Verdict | None:
    if not view.observed.namespace_full or view.wanted:
        return None
    message = (
        f"Namespace {view.observed.resource.namespace!r} has {MAX_MODELS_PER_NAMESPACE} ModelDeployments already, the "
        "most that one router takes; create this one in another namespace"
    )
    return false(Reason.NAMESPACE_FULL, message)


def _refused(view: View) -> Verdict | None:
    return _failure(view, ConditionType.ACCEPTED)


def _unsafe(view: View) -> Verdict | None:
    return _failure(view, ConditionType.ARTIFACT_VERIFIED)


def _failure(view: View, condition: ConditionType) -> Verdict | None:
    for revision in view.newest:
        if (failure := view.failure(revision)) and failure.condition is condition:
            return false(failure.reason, failure.message)
    return None


def _signature(view: View) -> Verdict | None:
    canary = view.plan.target(Role.CANARY)
    if canary is None or signature_changed(view.facts, view.stable, canary.revision) is not True:
        return None
    return false(Reason.SIGNATURE_CHANGED, signature_message(canary.revision, view.stable))


def _loaded(view: View) -> Verdict | None:
    if not all(any(map(_is_loaded, view.pods(revision))) for revision in view.newest):
        return None
    return true(Reason.ACCEPTED, f"The program of {_named(view)} can do what the spec asks for")


def _prepared(view: View) -> Verdict | None:
    if not all(any(map(_is_prepared, view.pods(revision))) for revision in view.newest):
        return None
    found = (
        f"{name} ({view.records[name].pin}; {_signed(view, name)})" for name in view.newest if name in view.records
    )
    return true(Reason.VERIFIED, f"Fetched, inspected and repacked: {', '.join(found)}")


def _signed(view: View, revision: str) -> str:
    """Whose signatures its pods verified; more than one while keys are being rotated."""
    signers = {pod.signer for pod in view.pods(revision) if pod.digest}
    known = sorted(signer[:LONGEST_SIGNER] for signer in signers if signer)
    if not known:
        return "no verified signature"
    return f"signed by {', '.join(known)}{', not so in every pod' if None in signers else ''}"


def _accepted_before(view: View) -> Verdict | None:
    return _before(view, ConditionType.ACCEPTED)


def _verified_before(view: View) -> Verdict | None:
    return _before(view, ConditionType.ARTIFACT_VERIFIED)


def _before(view: View, condition: ConditionType) -> Verdict | None:
    """What a revision once said of itself stays while its pods say nothing, or are gone because it was given up."""
    told = view.condition_before(condition) is not None
    known = all(revision in view.facts.before for revision in view.newest)
    return KEEP if told and (known or view.plan.abort) else None


def _not_loaded(view: View) -> Verdict:
    return unknown(Reason.PREPARING, f"The program of {_named(view)} has not been loaded yet")


def _not_prepared(view: View) -> Verdict:
    return unknown(Reason.PREPARING, f"The artifact of {_named(view)} has not been checked yet")


def _is_loaded(pod: Pod) -> bool:
    return pod.ready or (pod.report is not None and pod.report.phase in _LOADED)


def _is_prepared(pod: Pod) -> bool:
    return pod.ready or pod.report is not None or pod.digest is not None


def _named(view: View) -> str:
    return f"revision{'s' if len(view.newest) > 1 else ''} {' and '.join(view.newest)}"
