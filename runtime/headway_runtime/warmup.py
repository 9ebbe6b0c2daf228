"""Run every bucket once before the pod is ready, and record what each costs: the cost curve.

The first run of a shape pays for allocations and kernel choices, so it is run again and that is timed (the fastest of a
few runs, where they are short), unless the first was already long. Inputs are those that the caller makes, else
synthetic: zeros for integers and booleans (a valid index of any table), ones for the rest.

Of a program whose runs are short it also shows whether several compute threads are worth it. To wake another thread and
wait for it takes tens of microseconds: an MLP of 128 floats with 32 rows takes 17 us with one thread and 40 to 160 with
two, and two cost twice the processor.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from headway_api.podconfig import BucketCost

from headway_runtime.buckets import Buckets, Sizes
from headway_runtime.errors import FatalError, first_line
from headway_runtime.logs import log
from headway_runtime.memory import out_of_memory
from headway_runtime.program import Program, TensorSpec
from headway_runtime.program.datatypes import BY_PROTOCOL

LONG_RUN = 1.0  # seconds: a run this long is timed the first time
ENOUGH = 0.03  # seconds of timed runs
MOST_RUNS = 7
SHORT_RUN = 0.0005  # seconds, with one compute thread
WORTH = 0.5  # what several threads may take of one thread's time, for a short run, to be kept

Inputs = Callable[[Sizes], Sequence[torch.Tensor]]
"""Makes the inputs of a bucket."""


def warm(
    program: Program,
    buckets: Buckets,
    progress: Callable[[BucketCost], None],
    *,
    inputs_of: Inputs | None = None,
    begins: Callable[[str], None] = lambda step: None,
) -> None:
    """Run all combinations, largest first, so that a lack of memory shows at once. `begins` hears of each. One compute
    thread is left to the calling thread when, in the largest bucket, several are not worth it: see `threads_restored`.

    Raises FatalError `OutOfMemory` or `WarmUpFailed`, naming the bucket.
    """
    for number, sizes in enumerate(buckets.combinations):
        begins(f"running bucket {describe(sizes)}")
        try:
            inputs, seconds = _first(program, sizes, inputs_of)
            if seconds < LONG_RUN:
                seconds = _least(program, inputs)
                if number == 0:
                    seconds = _with_fewer_threads(program, inputs, seconds)
        except Exception as error:
            raise refusal(error, "WarmUpFailed", f"running bucket {describe(sizes)}") from error
        progress(BucketCost(sizes=dict(sizes), seconds=round(seconds, 6)))


@contextmanager
def threads_restored() -> Iterator[None]:
    """At the end the calling thread has as many compute threads as before."""
    threads = torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _with_fewer_threads(program: Program, inputs: Sequence[torch.Tensor], seconds: float) -> float:
    """Seconds of a run, with one compute thread from now on if it is short and the present ones are not worth it."""
    threads = torch.get_num_threads()
    if threads == 1 or seconds > ENOUGH:
        return seconds
    torch.set_num_threads(1)
    alone = _least(program, inputs)
    if alone <= SHORT_RUN and seconds > WORTH * alone:
        log("one_compute_thread", seconds=alone, seconds_with_all=seconds, threads=threads)
        return alone
    torch.set_num_threads(threads)
    return seconds


def _first(program: Program, sizes: Sizes, inputs_of: Inputs | None) -> tuple[Sequence[torch.Tensor], float]:
    """Inputs of a bucket that the program takes, and seconds of its first run. The simplest ones where it refuses the
    caller's: made-up numbers may index a table beyond its end.
    """
    if inputs_of is not None:
        try:
            inputs = inputs_of(sizes)
            return inputs, _timed(program, inputs)
        except Exception as error:
            if out_of_memory(error):
                raise
            log("warm_up_inputs_refused", bucket=dict(sizes), error_type=type(error).__name__)
    inputs = simplest(program, sizes)
    return inputs, _timed(program, inputs)


def simplest(program: Program, sizes: Sizes) -> list[torch.Tensor]:
    """Inputs of the right shapes that any program should take."""
    return [synthetic(spec, shape) for spec, shape in zip(program.inputs, program.input_shapes(sizes), strict=True)]


def synthetic(spec: TensorSpec, shape: tuple[int, ...]) -> torch.Tensor:
    """An input of the right datatype and of this shape."""
    dtype = BY_PROTOCOL[spec.datatype]
    return torch.ones(shape, dtype=dtype) if dtype.is_floating_point else torch.zeros(shape, dtype=dtype)


def describe(sizes: Sizes) -> str:
    """A bucket as people read it: `batch=8,sequence=64`; `fixed` for a program without dimensions."""
    return ",".join(f"{name}={size}" for name, size in sizes.items()) or "fixed"


def refusal(error: Exception, reason: str, doing: str) -> FatalError:
    """Why loading or warming ended: `OutOfMemory`, or `reason` with what was raised."""
    if out_of_memory(error):
        advice = "raise spec.template.resources.limits.memory, or use smaller buckets"
        message = f"{doing}: not enough memory: {first_line(error)}; {advice}"
        return FatalError("OutOfMemory", message, field="spec.template.resources")
    return FatalError(reason, f"{doing}: {type(error).__name__}: {first_line(error)}")


def _least(program: Program, inputs: Sequence[torch.Tensor]) -> float:
    """Seconds of the fastest of a few runs: what else the machine does only adds. One run, when it is not short."""
    seconds = [_timed(program, inputs)]
    while sum(seconds) < ENOUGH and len(seconds) < MOST_RUNS:
        seconds.append(_timed(program, inputs))
    return min(seconds)


def _timed(program: Program, inputs: Sequence[torch.Tensor]) -> float:
    """Seconds of one run; fetching the outputs waits for a device that works on by itself."""
    began = time.perf_counter()
    for output in program.run(inputs):
        output.cpu()
    return time.perf_counter() - began
