"""What the engine thread does before it serves: load the program, resolve its buckets, warm them all."""

import time
from collections.abc import Callable
from pathlib import Path

import torch
from headway_api.podconfig import BucketCost, ColdConfig, Knobs
from headway_api.types import DeviceKind

from headway_runtime import knobs, memory, parity
from headway_runtime.batching.engine import Deliver, Engine
from headway_runtime.batching.layout import Layout
from headway_runtime.buckets import Buckets, resolve_buckets
from headway_runtime.errors import FatalError
from headway_runtime.fit import check_shapes
from headway_runtime.logs import log
from headway_runtime.pod import Model, Pod
from headway_runtime.program import Program, ProgramError, load_program
from headway_runtime.program.load import read_document
from headway_runtime.proof.rows import independent_rows
from headway_runtime.serving.intake import Intake
from headway_runtime.warmup import refusal, warm

Hand = Callable[..., None]
"""Runs a function on the event loop: `hand(function, *args)`."""


def load(pod: Pod, directory: Path, deliver: Deliver, hand: Hand) -> Model:
    """Load and warm; progress goes to the pod by way of `hand`.

    Raises FatalError: the program, a bucket, a dimension or the device cannot be honoured, or memory ran out.
    """
    config = pod.config
    device = _device(config)
    began = time.monotonic()
    program = _program(config, directory, "cpu")
    buckets = resolve_buckets(program, config.batching.shape_buckets)
    _check(config, directory, program, buckets)
    if device != "cpu":
        program = _program(config, directory, device)
    loaded = time.monotonic()
    pod.metrics.load_seconds.set(loaded - began)
    log("program_loaded", seconds=round(loaded - began, 3), buckets=len(buckets.combinations), batch=program.batch)
    hand(pod.warming, len(buckets.combinations))

    def progress(cost: BucketCost) -> None:
        hand(pod.warmed, cost)

    with torch.inference_mode():
        warm(program, buckets, progress)
        layout = independent_rows(program, Layout.of(program), buckets)
        pod.metrics.warm_seconds.set(time.monotonic() - loaded)
        golden = parity.load_golden(directory, config.artifact.program)
        verified = parity.verify(program, layout, buckets, golden, config.verification)
    if verified is not None:
        hand(pod.verified, verified)
    largest = 1 if layout.batch is None else buckets.largest(layout.batch)
    engine = Engine(program, layout, knobs.resolve(Knobs(), largest).limits, deliver)
    return Model(engine, layout, Intake(program, layout, buckets), buckets)


def _program(config: ColdConfig, directory: Path, device: str) -> Program:
    """The program, its weights mapped (on the processor), or copied to the device."""
    try:
        return load_program(
            directory,
            dimension_names=config.batching.dimensions or {},
            device=device,
            program=config.artifact.program,
        )
    except ProgramError as error:
        raise _fatal(error) from error
    except Exception as error:
        raise refusal(error, "LoadFailed", "loading the program") from error


def _check(config: ColdConfig, directory: Path, program: Program, buckets: Buckets) -> None:
    """The shape gate, and from then on a bound on what the process allocates."""
    on_host = config.device.kind is DeviceKind.CPU
    room = memory.host_room() if on_host else memory.device_room()
    try:
        _, document = read_document(directory, config.artifact.program)
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
