"""What went wrong with the pods of a revision, as one typed refusal: the first explanation that matches.

A pod that is ready has no failure, whatever its past. Messages of the pods themselves are passed on word for word.
"""

from collections.abc import Callable, Mapping

from headway_api.conditions import ConditionType, Reason
from headway_api.podconfig import PREPARED, Termination

from headway_operator.desired.podtemplate import SECRETS
from headway_operator.observed import Observed, Pod, Record
from headway_operator.plan.foresee import FIELD_MEMORY, will_not_fit
from headway_operator.plan.refusal import Failure

IMAGE_REASONS = ("ImagePullBackOff", "ErrImagePull", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError")


def explain(observed: Observed, records: Mapping[str, Record], revision: str) -> Failure | None:
    """The failure of the first pod (by name) of a revision that has one; None while all is well or unknown."""
    pods = sorted((p for p in observed.pods if p.revision == revision and not p.terminating), key=lambda pod: pod.name)
    missing = _missing_secret(observed, records.get(revision))
    if missing and not all(pod.ready for pod in pods):
        return missing
    if foreseen := will_not_fit(observed, records, revision):
        return foreseen
    for pod in pods:
        if failure := explain_pod(pod, records.get(revision)):
            return failure
    return None


def explain_pod(pod: Pod, record: Record | None) -> Failure | None:
    """The failure of one pod; None when it is ready, or not known to be in trouble."""
    if pod.ready:
        return None
    return next((failure for explanation in _CHAIN if (failure := explanation(pod, record))), None)


def _missing_secret(observed: Observed, record: Record | None) -> Failure | None:
    """The Secrets that the record mounts and that are not there; the first one is the field at fault."""
    cold = record.cold if record else {}
    missing = [(secret.field, name) for secret in SECRETS if (name := secret.name(cold)) in observed.secrets_missing]
    if not missing:
        return None
    namespace = observed.resource.namespace
    message = "; ".join(
        f"{field}: the Secret {name!r} does not exist in namespace {namespace!r}; create it, or name another one"
        for field, name in missing
    )
    return Failure(ConditionType.READY, Reason.SECRET_NOT_FOUND, message, field=missing[0][0])


def _unschedulable(pod: Pod, record: Record | None) -> Failure | None:
    if pod.unschedulable is None:
        return None
    message = f"No node can take pod {pod.name}: {pod.unschedulable}"
    return Failure(ConditionType.READY, Reason.PODS_UNSCHEDULABLE, message, pod.name)


def _image(pod: Pod, record: Record | None) -> Failure | None:
    if pod.waiting is None or pod.waiting[0] not in IMAGE_REASONS:
        return None
    image = record.image if record else "of the pod"
    message = f"The image {image} cannot be pulled: {pod.waiting[1] or pod.waiting[0]}"
    return Failure(ConditionType.READY, Reason.IMAGE_PULL_FAILED, message, pod.name, pod.container)


def _configuration(pod: Pod, record: Record | None) -> Failure | None:
    if pod.waiting is None or pod.waiting[0] not in ("CreateContainerConfigError", "CreateContainerError"):
        return None
    secret = "secret" in pod.waiting[1].lower()
    field = "spec.template.env: " if secret else ""
    reason = Reason.SECRET_NOT_FOUND if secret else Reason.STARTING
    message = f"{field}Pod {pod.name} cannot be started: {pod.waiting[1]}"
    return Failure(ConditionType.READY, reason, message, pod.name, pod.container)


def _out_of_memory(pod: Pod, record: Record | None) -> Failure | None:
    if not pod.oom_killed:
        return None
    limit = _memory_limit(record, pod.container)
    asked = f"{FIELD_MEMORY} ({limit})" if limit else "the memory of its node"
    message = f"Pod {pod.name} needed more memory than {asked} allows; raise it, or declare smaller shapeBuckets"
    return Failure(
        ConditionType.READY, Reason.OUT_OF_MEMORY, message, pod.name, pod.container, pod.failed_at, FIELD_MEMORY
    )


def _memory_limit(record: Record | None, container: str | None) -> str | None:
    spec = record.pod_template["spec"] if record else {}
    for each in (*spec.get("initContainers", []), *spec.get("containers", [])):
        if each["name"] == (container or "serve"):
            return each.get("resources", {}).get("limits", {}).get("memory")  # type: ignore[no-any-return]
    return None


def _typed(pod: Pod, record: Record | None) -> Failure | None:
    told = pod.report.failure if pod.report and pod.report.failure else pod.termination
    if told is None or told.reason == PREPARED:
        return None
    return Failure(_condition(told), told.reason, _message(told), pod.name, pod.container, pod.failed_at, told.field)


def _condition(told: Termination) -> ConditionType:
    known = {ConditionType.ACCEPTED, ConditionType.ARTIFACT_VERIFIED, ConditionType.READY}
    return ConditionType(told.condition) if told.condition in known else ConditionType.READY


def _message(told: Termination) -> str:
    return f"{told.field}: {told.message}" if told.field and told.field not in told.message else told.message


def _crash_loop(pod: Pod, record: Record | None) -> Failure | None:
    if pod.waiting is None or pod.waiting[0] != "CrashLoopBackOff":
        return None
    message = f"Pod {pod.name} ended {pod.restarts} times without saying why: {pod.waiting[1]}"
    return Failure(ConditionType.READY, Reason.CRASH_LOOP, message, pod.name, pod.container, pod.failed_at)


_CHAIN: tuple[Callable[[Pod, Record | None], Failure | None], ...] = (
    _unschedulable,
    _image,
    _configuration,
    _out_of_memory,
    _typed,
    _crash_loop,
)
