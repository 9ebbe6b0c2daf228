"""Why a revision is not ready, as one typed value."""

from dataclasses import dataclass

from headway_api.conditions import ConditionType


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a revision is not ready, and which condition says so."""

    condition: ConditionType
    reason: str
    message: str
    pod: str | None = None
    container: str | None = None
    time: float | None = None  # when it happened, if the pod says so
    field: str | None = None  # the field of the spec that is at fault
