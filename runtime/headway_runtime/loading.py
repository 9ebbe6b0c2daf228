"""What the engine thread does before it serves: open the program and those that run before and after it, warm them all,
and make the steps around them.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from headway_runtime import processors
from headway_runtime.batching.engine import Deliver, Outcome, RunRecord
from headway_runtime.buckets import resolve_buckets
from headway_runtime.errors import FatalError
from headway_runtime.loading_generator import load_generator
from headway_runtime.logs import log
from headway_runtime.opened import open_program, ready
from headway_runtime.pod import Model, Pod
from headway_runtime.prepare.admission import check_policy
from headway_runtime.prepare.beside.steps import of_document
from headway_runtime.prepare.decoding import is_decoder
from headway_runtime.program import ProgramError
from headway_runtime.program.load import read_document
from headway_runtime.served import Served
from headway_runtime.serving.steps.opening import open_pipeline
from headway_runtime.serving.steps.stage import Stage

Hand = Callable[..., None]
"""Runs a function on the event loop: `hand(function, *args)`."""

To = Callable[..., None]
"""The same, but at once where the caller is on the event loop already."""


def load(pod: Pod, directory: Path, deliver: To, hand: Hand) -> Served:
    """Load and warm; progress goes to the pod by way of `hand`. `deliver` is called with what takes what an engine has
    made (`Pod.served`, `Pod.stepped`), and calls it on the event loop.

    Raises FatalError: a program, a bucket, a dimension, a step or the device cannot be honoured, or memory ran out.
    """
    try:
        name, document = read_document(directory, pod.config.artifact.program)
    except ProgramError as error:
        raise FatalError(error.reason, error.message, condition=error.condition, field=error.field) from error
    check_policy(pod.config, document)
    if is_decoder(document):
        return load_generator(pod, directory, name, partial(deliver, pod.stepped), hand)
    return load_model(pod, directory, partial(deliver, pod.served), hand)


def load_model(pod: Pod, directory: Path, deliver: Deliver, hand: Hand) -> Model:
    """A program whose requests are rows of a run. Raises FatalError."""
    config = pod.config
    began = time.monotonic()
    main = open_program(config, directory, config.artifact.program)
    steps = of_document(main.document)
    others = {name: open_program(config, directory, name, own=False) for name in steps.programs}
    asked = config.batching.shape_buckets or {}
    theirs = {size for other in others.values() for size in other.program.dimensions} - main.program.dimensions.keys()
    buckets = resolve_buckets(main.program, {size: values for size, values in asked.items() if size not in theirs})
    pod.metrics.load_seconds.set(time.monotonic() - began)
    hand(pod.warming, len(buckets.combinations))
    model = ready(pod, main, buckets, deliver, hand)

    def stage(name: str) -> Stage:
        role = "preprocess" if name == steps.preprocess else "postprocess"

        def serve_only(outcomes: Sequence[Outcome], record: RunRecord | None) -> None:
            hand(pod.served, outcomes, None)
            if record is not None:
                hand(pod.metrics.stepped, role, record.seconds)

        other = others[name]
        own = {size: values for size, values in asked.items() if size in other.program.dimensions}
        return Stage(name, other.program, ready(pod, other, resolve_buckets(other.program, own), serve_only, hand))

    pipeline = open_pipeline(
        directory,
        main.document,
        Stage(main.name, main.program, model),
        stage,
        hand,
        pod.metrics.stepped,
        threads=processors.compute_threads(processors.cpu_limit()),
    )
    log("loaded", seconds=round(time.monotonic() - began, 3), programs=[main.name, *others], batch=main.program.batch)
    return replace(model, pipeline=pipeline)
