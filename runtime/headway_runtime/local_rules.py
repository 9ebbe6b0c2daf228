"""Rules of a ModelDeployment that take more than one field: in the cluster the API server evaluates them, as CEL; for a
manifest on a laptop those of batching are here, in the same words. Pure.
"""

from itertools import pairwise

from headway_api.rules import BATCH_ABOVE_BUCKETS, SIZES_DO_NOT_ASCEND
from headway_api.types import Spec


def broken_rule(spec: Spec) -> str | None:
    """The field at fault and what to write instead; None when no rule is broken."""
    batching = spec.batching
    if batching is None or not batching.shape_buckets:
        return None
    for name, sizes in batching.shape_buckets.items():
        if any(later <= earlier for earlier, later in pairwise(sizes)):
            return f"spec.batching.shapeBuckets.{name}: {SIZES_DO_NOT_ASCEND}"
    batches = batching.shape_buckets.get("batch")
    if batches and batching.max_batch is not None and batching.max_batch > batches[-1]:
        return f"spec.batching.maxBatch: {BATCH_ABOVE_BUCKETS}"
    return None
