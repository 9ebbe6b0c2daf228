"""A revision's record: written once when it is first seen, as a ControllerRevision, and rendered from ever after.

A new operator version, a new default or a changed renderer therefore changes no pod. Only two annotations ever change:
the pinned digest, which is written once, and the role, which is for a restore without status.
"""

import re
from typing import Any, TypeVar

from headway_api import names
from headway_api.fields import DIGEST_PATTERN
from headway_api.podconfig import ColdArtifact, ColdBatching, ColdConfig, ColdGeneration, ColdVerification
from headway_api.podtemplate import Sandbox
from headway_api.revision import Cold
from headway_api.types import Device, Precision, TrustLevel

from headway_operator.desired.meta import metadata
from headway_operator.desired.podtemplate import DEFAULT_DRAIN, pod_template
from headway_operator.observed import Object, Observed, Record, Resource, Role

T = TypeVar("T")


def new_record(observed: Observed, cold: Cold, *, name: str, base: str, number: int, pin: str | None) -> Record:
    """The record of a revision that is seen for the first time; everything that its pods need is resolved now."""
    resource = observed.resource
    assert resource.spec is not None
    template = resource.spec.template
    image = (template and template.runtime_image) or observed.default_image
    config = ColdConfig(
        model=resource.name,
        namespace=resource.namespace,
        revision=name,
        artifact=ColdArtifact(
            uri=cold["artifact"]["uri"],
            program=cold["artifact"].get("program"),
            require=cold["artifact"].get("trust", {}).get("require", TrustLevel.NONE),
        ),
        device=Device.model_validate(cold["device"]),
        precision=Precision(cold.get("precision", Precision.EXPORTED)),
        batching=ColdBatching.model_validate(cold.get("batching", {})),
        generation=ColdGeneration.model_validate(cold.get("generation", {})),
        verification=ColdVerification.model_validate(cold.get("verification", {})),
        sandbox=(template and template.sandbox) or Sandbox.BEST_EFFORT,
        drain_timeout=(template and template.drain_timeout) or DEFAULT_DRAIN,
    )
    return Record(
        name=name,
        base=base,
        cold=cold,
        image=image,
        pod_template=pod_template(resource, cold, revision=name, image=image),
        config=config.to_json(),
        number=number,
        pin=pin,
    )


def controller_revision(resource: Resource, record: Record, role: Role | None) -> Object:
    """The record as an object; `record_of` is the inverse. `role` is noted when it is Stable or Previous."""
    noted = role if role in (Role.STABLE, Role.PREVIOUS) else None
    annotations = {
        **({names.ANNOTATION_DIGEST: record.pin} if record.pin else {}),
        # Empty, not absent: what is not desired is left as it is, and a version that went would be Previous again.
        names.ANNOTATION_ROLE: noted.value if noted else "",
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": metadata(
            resource, names.revision_object(resource.name, record.name), revision=record.name, annotations=annotations
        ),
        "revision": record.number,
        "data": {
            "cold": record.cold,
            "base": record.base,
            "image": record.image,
            "podTemplate": record.pod_template,
            "config": record.config,
        },
    }


def record_of(controller_revision: Object) -> Record:
    """The record in a ControllerRevision of ours. Raises ValueError naming the part that is not there."""
    meta = controller_revision["metadata"]
    annotations = meta.get("annotations") or {}
    role, pin = annotations.get(names.ANNOTATION_ROLE), annotations.get(names.ANNOTATION_DIGEST, "")
    _part(controller_revision, str, "data", "cold", "artifact", "uri")
    _part(controller_revision, dict, "data", "podTemplate", "spec")
    return Record(
        name=names.revision_of(meta["name"]),
        base=_part(controller_revision, str, "data", "base"),
        cold=_part(controller_revision, dict, "data", "cold"),
        image=_part(controller_revision, str, "data", "image"),
        pod_template=_part(controller_revision, dict, "data", "podTemplate"),
        config=_part(controller_revision, str, "data", "config"),
        number=_part(controller_revision, int, "revision"),
        pin=pin if re.fullmatch(DIGEST_PATTERN, pin) else None,
        role=Role(role) if role in set(Role) else None,
    )


def _part(value: Any, kind: type[T], *path: str) -> T:
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    if not isinstance(value, kind):
        raise ValueError(f"{'.'.join(path)} is not there, or not what this release writes")
    return value
