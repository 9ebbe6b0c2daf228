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
    config = pod.config
    device = _device(config)
    began = time.monotonic()
    document = _document(config, directory)
    program = _program(config, directory, document, "cpu")
    buckets = resolve_buckets(program, config.batching.shape_buckets)
    _check(config, document[1], program, buckets)
    if device != "cpu":
        program = _program(config, directory, document, device)
    loaded = time.monotonic()
    pod.metrics.load_seconds.set(loaded - began)
    log("program_loaded", seconds=round(loaded - began, 3), buckets=len(buckets.combinations), batch=program.batch)
    hand(pod.warming, len(buckets.combinations))

    costs: list[BucketCost] = []

    def progress(cost: BucketCost) -> None:
        costs.append(cost)
        hand(pod.warmed, cost)

    def begins(step: str) -> None:
        hand(pod.begins, step)

    with torch.inference_mode():
        material = gather(directory, document, program)
        warm(program, buckets, progress, inputs_of=partial(realistic, material), begins=begins)
        begins("trying whether requests can share a run")
        warm_seconds = time.monotonic() - loaded
        pod.metrics.warm_seconds.set(warm_seconds)
        layout = independent_rows(program, Layout.of(program), buckets)
        asked = Request(program, layout, buckets, material, (directory, document[1]))
        layout, padding = prove_padding(asked, config.batching.padding, warm_seconds=warm_seconds)
        begins("running the golden samples")
        golden = parity.load_golden(directory, config.artifact.program)
        verified = parity.verify(program, layout, buckets, golden, config.verification)
    if verified is not None:
        hand(pod.verified, verified)
    cost = CostModel.of(costs, layout.batch, layout.padded)
    limits = knobs.resolve(Knobs(), knobs.Bounds(largest_batch=1)).limits  # until the pod's own are applied
    engine = Engine(program, layout, limits, deliver, instances=config.batching.instances, cost=cost)
    return Model(engine, layout, Intake(program, layout, buckets), buckets, cost, tuple(padding))


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
