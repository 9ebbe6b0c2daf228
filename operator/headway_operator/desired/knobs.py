"""The hot fields as the pods of every revision read them."""

from headway_api.podconfig import Knobs
from headway_api.types import Batching, Queue, Spec


def knobs_text(spec: Spec) -> str:
    """The text of the knobs file; `podconfig.knobs_hash` of it is what pods acknowledge."""
    batching = spec.batching or Batching()
    return Knobs(max_batch=batching.max_batch, max_wait=batching.max_wait, queue=batching.queue or Queue()).to_json()
