"""What the engine thread does before a pod generates text: open the decoder within its share of the memory, run the
shapes of its steps, and continue the golden prompts.
"""

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
from headway_api.podconfig import ColdConfig
from headway_api.types import DeviceKind, Precision

from headway_runtime import generation_knobs, memory
from headway_runtime.errors import FatalError
from headway_runtime.generation import gate, opened
from headway_runtime.generation.delivery import Deliver
from headway_runtime.generation.opened import Opened
from headway_runtime.generation.warm import shapes, warm
from headway_runtime.generator import Generator
from headway_runtime.logs import log
from headway_runtime.pod import Pod
from headway_runtime.prepare import repack
from headway_runtime.program import ProgramError
from headway_runtime.serving.steps.tokens import open_library
from headway_runtime.warmup import refusal, threads_restored

MORE_POWER = ("give the pods more CPUs, or write precision: Int8", "spec.template.resources")

Hand = Callable[..., None]
"""Runs a function on the event loop: `hand(function, *args)`."""


@threads_restored()
def load_generator(pod: Pod, directory: Path, name: str, deliver: Deliver, hand: Hand) -> Generator:
    """Load, warm and verify; progress goes to the pod by way of `hand`.

    Raises FatalError: it does not fit, a step fails, or its answers are not those of the exporter.
    """
    began = time.monotonic()
    found = _open(pod.config, directory, name)
    pod.metrics.load_seconds.set(time.monotonic() - began)
    began = time.monotonic()
    first, then = (_warm, _verify) if pod.config.precision is Precision.EXPORTED else (_verify, _warm)
    with torch.inference_mode():  # a precision that is refused must not wait for every step's shape
        first(pod, found, hand)
        then(pod, found, hand)
    pod.metrics.warm_seconds.set(time.monotonic() - began)
    bounds = generation_knobs.Bounds(found.sequences, found.step_tokens)
    log("loaded", seconds=round(time.monotonic() - began, 3), programs=[name], kernels=found.kept.kernels)
    return Generator(found.engine(deliver), found.facts, found.settings, bounds, found.kept)


def _open(config: ColdConfig, directory: Path, name: str) -> Opened:
    tokenizer = open_library(directory / repack.TOKENIZER)
    on_host = config.device.kind is DeviceKind.CPU
    room = memory.host_room() if on_host else memory.device_room()
    if on_host:
        log("allocations_bounded", bytes=memory.bound_allocations(room), of=room.whose)
    try:
        return opened.open_decoders(config, opened.read(config, directory, name), tokenizer, room=room)
    except ProgramError as error:
        raise FatalError(error.reason, error.message, condition=error.condition, field=error.field) from error
    except FatalError:
        raise
    except Exception as error:
        raise refusal(error, "LoadFailed", f"loading the program {name}") from error


def _warm(pod: Pod, found: Opened, hand: Hand) -> None:
    settings = found.settings
    wanted = shapes(
        step_tokens=settings.step_tokens,
        sequences=settings.max_sequences,
        max_length=settings.max_length,
        blocks=found.budget.blocks,
    )
    hand(pod.warming, len(wanted))
    for shape in wanted:
        doing = f"running a step of {shape[0]} tokens of {shape[1]} sequences each"
        hand(pod.begins, doing, MORE_POWER)
        try:
            hand(pod.warmed, warm(found.decoder, shape))
            if found.draft is not None:
                warm(found.draft, shape)
        except Exception as error:
            raise refusal(error, "WarmUpFailed", doing) from error


def _verify(pod: Pod, found: Opened, hand: Hand) -> None:
    hand(pod.begins, "continuing the golden prompts", MORE_POWER)
    precision, settings = pod.config.precision, found.settings
    if precision is not Precision.EXPORTED:  # logits of every token are looked at: no more than there is room for
        settings = replace(settings, step_tokens=min(settings.step_tokens, settings.max_sequences))
    report = gate.verify(
        partial(found.answer, settings=settings),
        found.facts.decoder.golden,
        precision,
        max_length=found.facts.max_length,
        asked=pod.config.verification,
    )
    if report is not None:
        hand(pod.verified, report)
