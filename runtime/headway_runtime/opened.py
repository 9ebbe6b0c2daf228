"""One program of the pod: from its prepared document to a model whose buckets are warm and whose padding is proven."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from headway_api.podconfig import BucketCost, ColdConfig
from headway_api.types import DeviceKind, Oversize, Precision

from headway_runtime import closeness, memory, parity
from headway_runtime.batching.engine import Deliver
from headway_runtime.batching.layout import Layout
from headway_runtime.buckets import Buckets
from headway_runtime.drift import Drift
from headway_runtime.engines import make_engine
from headway_runtime.errors import FatalError
from headway_runtime.fit import ceilings, check_shapes
from headway_runtime.logs import log
from headway_runtime.pod import Model, Pod
from headway_runtime.precision import MOST_ERROR, cannot, refused
from headway_runtime.prepare import repack
from headway_runtime.program import Program, ProgramError, load_program
from headway_runtime.program.load import read_document
from headway_runtime.proof.bounds import id_bounds
from headway_runtime.proof.ones import ones_by_answer, ones_by_shape
from headway_runtime.proof.padding import prove_padding
from headway_runtime.proof.rows import independent_rows
from headway_runtime.proof.samples import gather, realistic
from headway_runtime.proof.trial import Request
from headway_runtime.serving.intake import Intake
from headway_runtime.warmup import refusal, threads_restored, warm

Read = tuple[str, dict[str, Any]]
"""Name and content of a prepared document."""


@dataclass(frozen=True, slots=True)
class Opened:
    """A program on the host, before a byte of it ran. `own`: it is the one that the ModelDeployment names, to which
    `spec.batching.dimensions` and `instances` belong, and whose progress is reported.
    """

    name: str
    document: Mapping[str, Any]
    program: Program
    directory: Path
    own: bool

    def lower(self, config: ColdConfig) -> bool:
        """Whether its large weights are kept in a lower precision than they were exported in: not those of steps."""
        return self.own and config.precision is not Precision.EXPORTED


def open_program(config: ColdConfig, directory: Path, name: str | None, *, own: bool = True) -> Opened:
    """`name`: one of several; None: the only one, or the one called `model`. Raises FatalError."""
    try:
        found, document = read_document(directory, name)
    except ProgramError as error:
        raise _fatal(error) from error
    opened = Opened(found, document, _program(config, directory, (found, document), "cpu", own=own), directory, own)
    if opened.lower(config) and config.device.kind is not DeviceKind.CPU:
        why = "on a GPU only a decoder's weights are kept so; write device.kind: cpu, or precision: Exported"
        raise refused(cannot(config.precision, why))
    return opened


@threads_restored()
def ready(pod: Pod, opened: Opened, buckets: Buckets, deliver: Deliver, hand: Callable[..., None]) -> Model:
    """Hold the program against the memory that is there, warm every bucket, try what may share a run, run the golden
    samples: these first where the precision is lower, because a refusal must not wait for buckets. Raises FatalError.
    """
    config = pod.config
    device = _device(config)
    program, sizes = opened.program, config.batching.shape_buckets or {}
    buckets = ones_by_shape(program, opened.document, buckets, asked=sizes)
    buckets = _check(config, opened.document, program, buckets)
    if device != "cpu":
        document = (opened.name, dict(opened.document))
        program = _program(config, opened.directory, document, device, own=opened.own)
    exact = _as_exported(config, opened) if opened.lower(config) else None
    began = time.monotonic()
    costs: list[BucketCost] = []

    def progress(cost: BucketCost) -> None:
        costs.append(cost)
        if opened.own:
            hand(pod.warmed, cost)

    def begins(step: str) -> None:
        hand(pod.begins, step if opened.own else f"program {opened.name}: {step}")

    with torch.inference_mode():
        material = gather(opened.directory, (opened.name, opened.document), program)
        buckets = ones_by_answer(exact or program, opened.document, buckets, material, asked=sizes)
        program.start_as(exact or program)
        verified = None
        if exact is not None:
            begins(f"trying answers in {config.precision.value}")
            samples = parity.read_samples(repack.samples_file(opened.directory, opened.name))
            tried = time.monotonic()
            verified = closeness.verify(program, Layout.of(program), buckets, samples, config.precision, exact=exact)
            began += time.monotonic() - tried  # that was no warming
        if opened.own:
            hand(pod.warming, len(buckets.combinations))
        inputs_of = partial(realistic, material)
        warm(program, buckets, progress, inputs_of=inputs_of, begins=begins)
        warm_seconds = time.monotonic() - began
        begins("trying whether requests can share a run")
        rounding = 0.0 if exact is None else MOST_ERROR[config.precision]
        layout = independent_rows(exact or program, Layout.of(program), buckets, material)
        if exact is not None:
            layout = independent_rows(program, layout, buckets, material, rounding=rounding)
        asked = Request(program, layout, buckets, material, opened.document, exact, rounding)
        layout, padding = prove_padding(asked, config.batching.padding, warm_seconds=warm_seconds)
        if exact is None:
            begins("running the golden samples")
            golden = parity.load_golden(opened.directory, opened.name)
            verified = parity.verify(program, layout, buckets, golden, config.verification)
    if opened.own:
        pod.metrics.warm_seconds.set(warm_seconds)
        if verified is not None:
            hand(pod.verified, verified)
        hand(pod.compare_with, _drift(opened, program))
    begins("making the engine")
    instances = config.batching.instances if opened.own else 1
    engine, cost = make_engine(program, layout, costs, deliver, instances=instances, graphs=(buckets, inputs_of))
    return Model(
        engine, layout, Intake(program, layout, buckets, id_bounds(opened.document)), buckets, cost, tuple(padding)
    )


def _as_exported(config: ColdConfig, opened: Opened) -> Program:
    """The same program with weights as they were exported, mapped, and so no memory of this process."""
    asked = config.model_copy(update={"precision": Precision.EXPORTED})
    read = (opened.name, dict(opened.document))
    exact = _program(asked, opened.directory, read, "cpu", own=opened.own, pack=False)
    exact.start_as(opened.program)
    return exact


def _drift(opened: Opened, program: Program) -> Drift:
    """What will be compared with the samples that the artifact carries."""
    drift = Drift([spec.name for spec in program.inputs], [spec.name for spec in program.outputs])
    for sample in parity.read_samples(repack.samples_file(opened.directory, opened.name)):
        drift.expect(sample.inputs, sample.outputs)
    return drift


def _program(config: ColdConfig, directory: Path, read: Read, device: str, *, own: bool, pack: bool = True) -> Program:
    """The program, its weights mapped (on the processor), or copied to the device."""
    try:
        return load_program(
            directory,
            dimension_names=(config.batching.dimensions or {}) if own else {},
            device=device,
            read=read,
            instances=config.batching.instances if own else 1,
            pack=pack and config.device.kind is DeviceKind.CPU,
            precision=config.precision if own else Precision.EXPORTED,
        )
    except ProgramError as error:
        raise _fatal(error) from error
    except Exception as error:
        raise refusal(error, "LoadFailed", f"loading the program {read[0]}") from error


def _check(config: ColdConfig, document: Mapping[str, Any], program: Program, buckets: Buckets) -> Buckets:
    """The shape gate, and from then on a bound on what the process allocates. The buckets, with how far beyond them
    requests may go.
    """
    on_host = config.device.kind is DeviceKind.CPU
    room = memory.host_room() if on_host else memory.device_room()
    try:
        in_use = max(0, memory.in_use() - program.packed) if on_host else 0  # weights are counted by their shapes
        check_shapes(document, program, buckets, room=room, in_use=in_use)
        if config.batching.oversize is Oversize.RUN_UNPADDED:
            buckets = replace(buckets, ceilings=ceilings(document, program, buckets, room=room, in_use=in_use))
    except ProgramError as error:
        raise _fatal(error) from error
    if on_host:
        log("allocations_bounded", bytes=memory.bound_allocations(room), of=room.whose)
    return buckets


def _fatal(error: ProgramError) -> FatalError:
    return FatalError(error.reason, error.message, condition=error.condition, field=error.field)


def _device(config: ColdConfig) -> str:
    if config.device.kind is DeviceKind.CPU:
        return "cpu"
    if not torch.cuda.is_available():
        message = "spec.device.kind is gpu, and torch finds none here; check spec.device.resourceName and the image"
        raise FatalError("DeviceUnavailable", message, condition="Accepted", field="spec.device.kind")
    return "cuda"
