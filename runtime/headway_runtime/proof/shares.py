"""How much of a run's time is spared when products leave out what only fills it up: measured, not derived, because how
dear the rest is (attention, normalisation) depends on the processor.
"""

import math
import time
from collections.abc import Sequence
from dataclasses import replace

import torch

from headway_runtime.buckets import Buckets, Sizes
from headway_runtime.logs import log
from headway_runtime.program import Program
from headway_runtime.program.ragged import Real, Skips
from headway_runtime.proof.samples import Material, realistic

USUAL = 256
"""Cells of the run that is measured, as near as a bucket comes to it."""
TIMES = 5
LEAST = 0.1
"""Share that is worth the trouble."""


def measured(program: Program, skips: Skips, buckets: Buckets, material: Material) -> Skips | None:
    """The same with its share; None where too little is spared, or where the program does not take the rows that are
    measured: masks show cells that are left out, which those of requests never do.
    """
    batch = program.batch or ""
    sizes = min(buckets.combinations, key=lambda each: abs(math.log(max(1, _cells(each, batch, skips)) / USUAL)))
    inputs, size = realistic(material, sizes), sizes[skips.dimension]
    if size < 2:
        return None
    nearly_nothing = skips.real([1] * sizes[batch], size)
    every: list[float] = []
    first: list[float] = []
    try:
        for _ in range(TIMES):
            every.append(_seconds(program, inputs, None))
            first.append(_seconds(program, inputs, nearly_nothing))
    except Exception as error:
        log("padding_not_skipped", dimension=skips.dimension, error_type=type(error).__name__)
        return None
    share = (1 - min(first) / min(every)) / (1 - 1 / size)
    return replace(skips, share=min(share, 1.0)) if share >= LEAST else None


def _cells(sizes: Sizes, batch: str, skips: Skips) -> int:
    return sizes[batch] * sizes[skips.dimension]


def _seconds(program: Program, inputs: Sequence[torch.Tensor], real: Real | None) -> float:
    began = time.perf_counter()
    program.run(inputs, real)
    return time.perf_counter() - began
