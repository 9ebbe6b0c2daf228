"""Rules of a ModelDeployment that take more than one field: in the cluster the API server evaluates them, as CEL; for a
manifest on a laptop those of batching and generation are here, in the same words. Pure.
"""

from itertools import pairwise

from headway_api.rules import (
    BATCH_ABOVE_BUCKETS,
    FIELDS_OF_DYNAMIC,
    GENERATION_IS_CONTINUOUS,
    PROGRAM_IS_THE_DRAFT,
    SIZES_DO_NOT_ASCEND,
)
from headway_api.types import Batching, BatchingPolicy, Generation, Spec, SpeculationMethod


def broken_rule(spec: Spec) -> str | None:
    """The field at fault and what to write instead; None when no rule is broken."""
    batching, generation = spec.batching, spec.generation
    broken = None if batching is None else _of_batching(batching)
    return broken if broken or generation is None else _of_generation(generation, batching)


def _of_batching(batching: Batching) -> str | None:
    buckets = batching.shape_buckets or {}
    for name, sizes in buckets.items():
        if any(later <= earlier for earlier, later in pairwise(sizes)):
            return f"spec.batching.shapeBuckets.{name}: {SIZES_DO_NOT_ASCEND}"
    batches = buckets.get("batch")
    if batches and batching.max_batch is not None and batching.max_batch > batches[-1]:
        return f"spec.batching.maxBatch: {BATCH_ABOVE_BUCKETS}"
    dynamic = (batching.shape_buckets, batching.dimensions, batching.padding, batching.oversize, batching.instances)
    if batching.policy is BatchingPolicy.CONTINUOUS and any(field is not None for field in dynamic):
        return f"spec.batching.policy: {FIELDS_OF_DYNAMIC}"
    return None


def _of_generation(generation: Generation, batching: Batching | None) -> str | None:
    if batching is not None and batching.policy is BatchingPolicy.DYNAMIC:
        return f"spec.generation: {GENERATION_IS_CONTINUOUS}"
    speculation = generation.speculation
    if speculation and speculation.program is not None and speculation.method is not SpeculationMethod.DRAFT:
        return f"spec.generation.speculation.program: {PROGRAM_IS_THE_DRAFT}"
    return None
