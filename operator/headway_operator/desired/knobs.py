"""The hot fields as the pods of every revision read them."""

from headway_api.podconfig import Knobs
from headway_api.types import Spec


def knobs_text(spec: Spec) -> str:
    """The text of the knobs file; `podconfig.knobs_hash` of it is what pods acknowledge."""
    return Knobs.of(spec).to_json()
