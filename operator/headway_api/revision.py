"""Which fields of a spec make a revision, and the name of the revision they make.

A revision is the hash of the *cold* fields that the user set: absent and empty fields, and fields equal to their
default when the field was introduced, do not count. No resolved default, no discovered digest and no image enters it
(unless the user set `template.runtimeImage`), so that a new operator, a new default or a new schema changes no revision
and no pod.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from headway_api.types import Spec
from headway_api.units import parse_duration

Cold = dict[str, Any]

# Defaults of cold fields when they were introduced; such a value reads as absent, for ever.
INTRODUCED: Mapping[tuple[str, ...], Any] = {
    ("artifact", "trust", "require"): "None",
    ("batching", "instances"): 1,
    ("batching", "oversize"): "Reject",
    ("batching", "padding"): "Auto",
    ("device", "resourceName"): "nvidia.com/gpu",
    ("generation", "cacheType"): "Float32",
    ("generation", "speculation", "program"): "draft",
    ("generation", "speculation", "tokens"): 4,
    ("precision",): "Exported",
    ("template", "drainTimeout"): 60.0,
    ("template", "sandbox"): "BestEffort",
    ("verification", "onMismatch"): "Block",
}
_COLD_BATCHING = frozenset({"dimensions", "instances", "oversize", "padding", "policy", "shapeBuckets"})
_HOT_GENERATION = frozenset({"prefixCache", "stepTokens"})
_QUANTITIES = {("template", "resources", "requests"), ("template", "resources", "limits")}
_DURATIONS = {("template", "drainTimeout")}
# Users' own keys and the scheduler's own language: an empty value means something there (`nodeSelector: {disk: ""}`)
_VERBATIM = {("template", name) for name in ("affinity", "nodeSelector", "podAnnotations", "podLabels")}


def cold_fields(spec: Spec, refresh: str | None = None) -> Cold:
    """The cold fields of the stable version, canonical. `refresh` is the value of the refresh annotation, if any."""
    return _cold(spec, spec.artifact.model_dump(mode="json", by_alias=True, exclude_none=True), refresh)


def canary_cold_fields(spec: Spec, refresh: str | None = None) -> Cold | None:
    """The cold fields of the candidate: `canary.artifact` merged over `artifact`, except for the digest."""
    if spec.canary is None:
        return None
    stable = spec.artifact.model_dump(mode="json", by_alias=True, exclude_none=True)
    own = spec.canary.artifact.model_dump(mode="json", by_alias=True, exclude_none=True)
    return _cold(spec, {**stable, **own}, refresh)


def revision_name(cold: Cold, salt: str | None = None) -> str:
    """Eight hexadecimal digits. `salt` tells apart two contents behind the same cold fields: the user's digest."""
    content: dict[str, Any] = {"cold": cold, **({"salt": salt} if salt else {})}
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(canonical.encode()).hexdigest()[:8]


def _cold(spec: Spec, artifact: dict[str, Any], refresh: str | None) -> Cold:
    whole = spec.model_dump(mode="json", by_alias=True, exclude_none=True)
    batching = whole.get("batching", {})
    cold = {
        "artifact": {k: v for k, v in artifact.items() if k != "digest"},
        "device": whole["device"],
        "precision": whole.get("precision"),
        "batching": {k: v for k, v in batching.items() if k in _COLD_BATCHING},
        "generation": {k: v for k, v in whole.get("generation", {}).items() if k not in _HOT_GENERATION},
        "template": whole.get("template", {}),
        "verification": whole.get("verification", {}),
        "refresh": refresh,
    }
    pruned = _prune(cold, ())
    assert isinstance(pruned, dict)
    return pruned


def _prune(value: Any, path: tuple[str, ...]) -> Any:
    """Drop what is absent, empty or equal to its introduced default; spell durations and quantities in one way."""
    if path in _DURATIONS:
        value = parse_duration(value, ".".join(("spec", *path)))
    if path in _VERBATIM:
        return value
    if path[:-1] in _QUANTITIES:
        return str(value)  # 1 and "1" are the same quantity
    if isinstance(value, dict):
        kept = {k: _prune(v, (*path, k)) for k, v in value.items()}
        return {
            k: v for k, v in kept.items() if v not in (None, {}, [], "") and v != INTRODUCED.get((*path, k))
        } or None
    if isinstance(value, list):
        return [_prune(v, (*path, "*")) for v in value]
    return value
