"""Runs on a GPU: for each instance a stream of its own, and for each bucket a captured CUDA graph.

NEVER RUN ON A GPU SO FAR: none was there when it was written. What decides without a device (`static`, `assembly`) is
tested; this file holds only what needs one, and the engine sees nothing of it but `Compute`.

A replay costs one launch where a program of many small kernels costs one for each. It needs static shapes and
addresses: a run is filled up to its bucket and copied into the graph's own inputs. Copies go through pinned memory, so
that they do not wait for anything but their stream; one event says when the answers have arrived. A bucket that cannot
be captured (the program asks the device for a number, say), or whose replay does not answer as the program does, runs
as on a processor, at its own sizes.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from headway_runtime.agreement import Tolerance, compare
from headway_runtime.batching.assembly import Joint
from headway_runtime.batching.static import Sizes
from headway_runtime.logs import log
from headway_runtime.program import Program

WARM_RUNS = 3  # before a capture: libraries choose kernels and allocate in their first runs

Inputs = Callable[[Sizes], Sequence[torch.Tensor]]
"""Makes the inputs of a bucket, on the host."""


@dataclass(frozen=True, slots=True)
class _Captured:
    """A graph with the tensors that it reads and writes: on the device, and in pinned memory for the way in."""

    graph: torch.cuda.CUDAGraph
    inputs: tuple[torch.Tensor, ...]
    staging: tuple[torch.Tensor, ...]
    outputs: tuple[torch.Tensor, ...]


class CudaCompute:
    """One instance's way to run the program. Use from one thread at a time; graphs are captured in the constructor."""

    def __init__(self, program: Program, buckets: Sequence[Sizes], inputs_of: Inputs) -> None:
        self._program = program
        self._stream = torch.cuda.Stream(program.device)
        self._arrived = torch.cuda.Event()
        self._pool = torch.cuda.graph_pool_handle()  # the graphs of an instance never run at the same time
        self._graphs: dict[tuple[int, ...], _Captured] = {}
        for sizes in buckets:  # largest first, so that the smaller fit into its memory
            captured = self._capture(sizes, inputs_of(sizes))
            if captured is not None:
                self._graphs[tuple(sizes.values())] = captured

    def captured(self, sizes: Sizes) -> bool:
        """Whether a run of this bucket is a replay."""
        return tuple(sizes.values()) in self._graphs

    def __call__(self, inputs: list[torch.Tensor], joint: Joint) -> Sequence[torch.Tensor]:
        """Outputs on the host, in pinned memory."""
        captured = self._graphs.get(tuple(joint.sizes.values()))
        with self._on_stream():
            outputs = self._program.run(inputs) if captured is None else self._replay(captured, inputs)
            found = [_to_host(output) for output in outputs]
            self._arrived.record(self._stream)
        self._arrived.synchronize()
        return found

    def _replay(self, captured: _Captured, inputs: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
        for given, staging, target in zip(inputs, captured.staging, captured.inputs, strict=True):
            staging.copy_(given)
            target.copy_(staging, non_blocking=True)
        captured.graph.replay()
        return captured.outputs

    def _capture(self, sizes: Sizes, inputs: Sequence[torch.Tensor]) -> _Captured | None:
        try:
            staging = tuple(tensor.contiguous().pin_memory() for tensor in inputs)
            with self._on_stream():
                static = tuple(tensor.to(self._program.device) for tensor in staging)
                for _ in range(WARM_RUNS):
                    expected = [output.cpu() for output in self._program.run(static)]
            self._stream.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=self._pool, stream=self._stream):
                outputs = self._program.run(static)
            captured = _Captured(graph, static, staging, tuple(outputs))
            found = self._once(captured)
        except Exception as error:
            log("graph_not_captured", level="warning", bucket=dict(sizes), error_type=type(error).__name__)
            self._stream = torch.cuda.Stream(self._program.device)  # a failed capture leaves its stream unusable
            return None
        for answer, wanted in zip(found, expected, strict=True):
            _, difference = compare(answer, wanted, Tolerance())
            if difference:
                log("graph_differs", level="warning", bucket=dict(sizes), difference=difference)
                return None
        return captured

    def _once(self, captured: _Captured) -> list[torch.Tensor]:
        with self._on_stream():
            found = [_to_host(output) for output in self._replay(captured, captured.staging)]
        self._stream.synchronize()
        return found

    @contextmanager
    def _on_stream(self) -> Iterator[None]:
        with torch.inference_mode(), torch.cuda.stream(self._stream):
            yield


def _to_host(output: torch.Tensor) -> torch.Tensor:
    """A copy in pinned memory of its own, which may still be on its way: the graph's output is overwritten by the next
    replay, and the answer is read later. (A size that is an output is on the host already.)
    """
    if output.device.type == "cpu":
        return output
    host = torch.empty(output.shape, dtype=output.dtype, pin_memory=True)
    return host.copy_(output, non_blocking=True)
