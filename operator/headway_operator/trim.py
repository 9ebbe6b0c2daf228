"""Which part of an object the store keeps, and whom the object belongs to. Pure.

A pod is 10 kB of JSON of which a pass looks at a tenth; the rest of 3,000 pods would be most of the operator's memory.
"""

from headway_api import names

from headway_operator.kinds import MODEL_DEPLOYMENT, POD, kind_of
from headway_operator.observed import Object
from headway_operator.ownership import marked_managers

_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_POD_STATUS = ("phase", "reason", "message", "podIP", "conditions", "containerStatuses", "initContainerStatuses")
_CONTAINER_STATUS = ("name", "ready", "restartCount", "state", "lastState", "image", "imageID", "started")


def trimmed(obj: Object) -> Object:
    """The part of an object that a pass may look at."""
    kept = {key: value for key, value in obj.items() if key != "metadata"}
    kept["metadata"] = _metadata(obj["metadata"])
    if managers := marked_managers(obj):
        kept["metadata"]["managedFields"] = managers
    if kind_of(obj) is POD:
        kept.pop("spec", None)
        kept["status"] = _pod_status(obj.get("status") or {})
    return kept


def owner_of(obj: Object) -> tuple[str, str, str] | None:
    """The reconciler, namespace and name that an object belongs to; None when it is nobody's that we know."""
    metadata = obj["metadata"]
    namespace, labels = metadata["namespace"], metadata.get("labels") or {}
    if kind_of(obj) is MODEL_DEPLOYMENT:
        return ("md", namespace, metadata["name"])
    if labels.get(names.LABEL_COMPONENT) == names.COMPONENT_ROUTER:
        return ("router", namespace, "")
    if model := labels.get(names.LABEL_MODEL):
        return ("md", namespace, model)
    return None


def _metadata(metadata: Object) -> Object:
    kept = {key: value for key, value in metadata.items() if key not in ("managedFields", "annotations")}
    annotations = {key: value for key, value in (metadata.get("annotations") or {}).items() if key != _LAST_APPLIED}
    return {**kept, "annotations": annotations} if annotations else kept


def _pod_status(status: Object) -> Object:
    kept = {key: status[key] for key in _POD_STATUS if key in status}
    for key in ("containerStatuses", "initContainerStatuses"):
        if key in kept:
            kept[key] = [{k: container[k] for k in _CONTAINER_STATUS if k in container} for container in kept[key]]
    return kept
