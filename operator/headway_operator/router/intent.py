"""What a ModelDeployment's pass asks of the router of its namespace."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel, PositiveInt


@dataclass(frozen=True, slots=True)
class Backend:
    """A revision that should have a cluster, whether or not it carries traffic: pins and failover need one, too."""

    revision: str
    max_requests: int  # circuit breaker: requests in flight from one router to all pods of the revision; > 0
    grpc: bool = False  # its pods have a port of gRPC; those of older revisions do not


@dataclass(frozen=True, slots=True)
class Intent:
    """The routes and clusters that one ModelDeployment wants.

    Raises ValueError when weights do not sum to 100, or when a weight or role names a revision without a backend.
    """

    model: str
    stable: str | None = None  # what `x-headway-revision: stable` and the fall-over of the canary mean
    canary: str | None = None  # the candidate: an explicit canary, or the revision that comes in
    weights: Mapping[str, int] = field(default_factory=dict)  # revision -> per cent, sum 100; {} = 503 NoReadyRevision
    backends: tuple[Backend, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "backends", tuple(sorted(self.backends, key=_revision)))  # their order means nothing
        known = [backend.revision for backend in self.backends]
        if len(set(known)) != len(known):
            raise ValueError(f"intent of {self.model}: backends name a revision twice: {known}")
        if any(weight < 0 for weight in self.weights.values()) or (self.weights and sum(self.weights.values()) != 100):
            raise ValueError(
                f"intent of {self.model}: weights must be 0 or more and sum to 100, not {dict(self.weights)}"
            )
        roles = [role for role in (self.stable, self.canary) if role is not None]
        if missing := sorted({*self.weights, *roles} - set(known)):
            raise ValueError(f"intent of {self.model}: no backend for {missing}; add one to `backends`")

    @property
    def carrying(self) -> Mapping[str, int]:
        """Revisions with a weight above zero."""
        return {revision: weight for revision, weight in sorted(self.weights.items()) if weight > 0}


def to_json(intent: Intent) -> dict[str, Any]:
    """As kept in the router's ConfigMap."""
    return {
        "model": intent.model,
        "stable": intent.stable,
        "canary": intent.canary,
        "weights": dict(sorted(intent.weights.items())),
        "backends": {backend.revision: backend.max_requests for backend in intent.backends},
        "grpc": [backend.revision for backend in intent.backends if backend.grpc],
    }


def from_json(value: Any) -> Intent:
    """The inverse of `to_json`. Raises ValueError when the value is not ours."""
    kept = _Kept.model_validate(value, strict=True)
    return Intent(
        model=kept.model,
        stable=kept.stable,
        canary=kept.canary,
        weights=kept.weights,
        backends=tuple(Backend(revision, limit, revision in kept.grpc) for revision, limit in kept.backends.items()),
    )


class _Kept(BaseModel):
    model: str
    stable: str | None
    canary: str | None
    weights: dict[str, int]
    backends: dict[str, PositiveInt]
    grpc: list[str] = []  # older states have none


def _revision(backend: Backend) -> str:
    return backend.revision
