"""What the engine thread does before it serves: load the program, resolve its buckets, warm them all."""

import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from headway_api.podconfig import BucketCost, ColdConfig, Knobs
from headway_api.types import DeviceKind

from headway_runtime import knobs, memory, parity
from headway_runtime.batching.costs import CostModel
from headway_runtime.batching.engine import Deliver, Engine
from headway_runtime.batching.layout import Layout
from headway_runtime.buckets import Buckets, resolve_buckets
from headway_runtime.errors import FatalError
from headway_runtime.fit import check_shapes
from headway_runtime.logs import log
from headway_runtime.pod import Model, Pod
from headway_runtime.program import Program, ProgramError, load_program
from headway_runtime.program.load import read_document
from headway_runtime.proof.padding import prove_padding
from headway_runtime.proof.rows import independent_rows
from headway_runtime.proof.samples import gather, realistic
from headway_runtime.proof.trial import Request
from headway_runtime.serving.intake import Intake
from headway_runtime.warmup import refusal, warm

Document = tuple[str, dict[str, Any]]
Hand = Callable[..., None]
"""Runs a function on the event loop: `hand(function, *args)`."""


def load(pod: Pod, directory: Path, deliver: Deliver, hand: Hand) -> Model:
    """Load and warm; progress goes to the pod by way of `hand`.

    Raises FatalError: the program, a bucket, a dimension or the device cannot be honoured, or memory ran out.
    """
    began = time.monotonic()
    name, document = _document(directory, pod.config.artifact.program)
    others = {
        other: _program(pod.config, directory, _document(directory, other), own=False)
        for other in programs_of(name, document)
        if other != name
    }
    program = _program(pod.config, directory, (name, document), own=True)
    asked = pod.config.batching.shape_buckets or {}
    buckets = resolve_buckets(program, for_program(asked, program, beside=others.values()))
    pod.metrics.load_seconds.set(time.monotonic() - began)
    hand(pod.warming, len(buckets.combinations))
    opened = _Opened(name, document, program, buckets, directory)
    model = _warmed(pod, opened, deliver, hand, instances=pod.config.batching.instances)

    def serve_only(outcomes: Sequence[Outcome], record: RunRecord | None) -> None:
        hand(pod.served, outcomes, None)

    def load_stage(other: str) -> Stage:
        known = for_program(asked, others[other])
        opened = _Opened(
            other, _document(directory, other)[1], others[other], resolve_buckets(others[other], known), directory
        )
        return Stage(other, others[other], _warmed(pod, opened, serve_only, hand, instances=1, own=False))

    threads = processors.compute_threads(processors.cpu_limit())
    pipeline = open_pipeline(directory, document, Stage(name, program, model), load_stage, hand, threads=threads)
    return replace(model, pipeline=pipeline)


def _document(config: ColdConfig, directory: Path) -> Document:
    """Name and content of the program's document."""
    try:
        return read_document(directory, config.artifact.program)
    except ProgramError as error:
        raise _fatal(error) from error


def _program(config: ColdConfig, directory: Path, document: Document, device: str) -> Program:
    """The program, its weights mapped (on the processor), or copied to the device."""
    try:
        return load_program(
            directory,
            dimension_names=config.batching.dimensions or {},
            device=device,
            read=document,
            instances=config.batching.instances,
        )
    except ProgramError as error:
        raise _fatal(error) from error
    except Exception as error:
        raise refusal(error, "LoadFailed", "loading the program") from error


def _check(config: ColdConfig, document: Mapping[str, Any], program: Program, buckets: Buckets) -> None:
    """The shape gate, and from then on a bound on what the process allocates."""
    on_host = config.device.kind is DeviceKind.CPU
    room = memory.host_room() if on_host else memory.device_room()
    try:
        check_shapes(document, program, buckets, room=room, in_use=memory.in_use() if on_host else 0)
    except ProgramError as error:
        raise _fatal(error) from error
    if on_host:
        log("allocations_bounded", bytes=memory.bound_allocations(room), of=room.whose)


def _fatal(error: ProgramError) -> FatalError:
    return FatalError(error.reason, error.message, condition=error.condition, field=error.field)


def _device(config: ColdConfig) -> str:
    if config.device.kind is DeviceKind.CPU:
        return "cpu"
    if not torch.cuda.is_available():
        message = "spec.device.kind is gpu, and torch finds none here; check spec.device.resourceName and the image"
        raise FatalError("DeviceUnavailable", message, condition="Accepted", field="spec.device.kind")
    return "cuda"
