"""Makes the engine of a warm program: on the event loop where its runs are quick, in threads else, and on a GPU with
captured graphs.
"""

import time
from collections.abc import Callable, Sequence

import torch
from headway_api.podconfig import BucketCost, Knobs

from headway_runtime import knobs
from headway_runtime.batching.assembly import Assembly, Joint
from headway_runtime.batching.costs import CostModel
from headway_runtime.batching.engine import Deliver, Engine
from headway_runtime.batching.layout import Layout
from headway_runtime.batching.policy import Limits
from headway_runtime.batching.runner import Compute
from headway_runtime.batching.static import StaticShapes
from headway_runtime.batching.turns import quick
from headway_runtime.buckets import Buckets, Sizes
from headway_runtime.logs import log
from headway_runtime.program import Program

Inputs = Callable[[Sizes], Sequence[torch.Tensor]]
"""Makes the inputs of a bucket."""


def make_engine(
    program: Program,
    layout: Layout,
    costs: Sequence[BucketCost],
    deliver: Deliver,
    *,
    instances: int,
    graphs: tuple[Buckets, Inputs] | None = None,
) -> tuple[Engine, CostModel | None]:
    """The engine, and what its runs cost. `costs` were measured while warming; `graphs` are the buckets to capture on a
    GPU, and what their inputs are. It obeys the default knobs, in runs of one row, until the pod's own are applied.
    """
    limits = knobs.resolve(Knobs(), knobs.Bounds(largest_batch=1)).limits
    if graphs is not None and program.device.type == "cuda":
        return _on_gpu(program, layout, costs, deliver, limits=limits, instances=instances, graphs=graphs)
    cost = CostModel.of(costs, layout.batch, layout.padded)
    inline = instances == 1 and program.device.type == "cpu" and quick(costs)
    log("engine_made", instances=instances, on_the_event_loop=inline)
    return Engine(program, layout, limits, deliver, instances=instances, cost=cost, inline=inline), cost


def _on_gpu(
    program: Program,
    layout: Layout,
    costs: Sequence[BucketCost],
    deliver: Deliver,
    *,
    limits: Limits,
    instances: int,
    graphs: tuple[Buckets, Inputs],
) -> tuple[Engine, CostModel | None]:
    """Never run so far: see `batching.cuda`."""
    from headway_runtime.batching.cuda import CudaCompute

    buckets, inputs_of = graphs
    computes = [CudaCompute(program, buckets.combinations, inputs_of) for _ in range(instances)]
    captured = [sizes for sizes in buckets.combinations if all(compute.captured(sizes) for compute in computes)]
    measured = {tuple(cost.sizes.values()): cost for cost in costs}
    for sizes in captured:
        seconds = _timed(computes[0], inputs_of(sizes), sizes)
        measured[tuple(sizes.values())] = BucketCost(sizes=dict(sizes), seconds=round(seconds, 6))
    cost = CostModel.of(tuple(measured.values()), layout.batch, layout.padded, stepped=True)
    ready: list[Compute] = list(computes)
    engine = Engine(
        program,
        layout,
        limits,
        deliver,
        instances=instances,
        cost=cost,
        assembly=Assembly(program, layout, StaticShapes(layout, captured)),
        compute=ready.pop,
    )
    log("engine_made", instances=instances, graphs=len(captured), buckets=len(buckets.combinations))
    return engine, cost


def _timed(compute: Compute, inputs: Sequence[torch.Tensor], sizes: Sizes) -> float:
    began = time.perf_counter()
    compute(list(inputs), Joint(sizes, None, 1, 1, 1))
    return time.perf_counter() - began
