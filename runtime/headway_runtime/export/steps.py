"""The steps of a file, tried as a pod would take them: a text or an image goes through all of them and the programs."""

import io
import json
import math
import threading
from collections.abc import Mapping
from typing import Any

import torch
from headway_api.podconfig import Knobs

from headway_runtime import knobs
from headway_runtime.batching.engine import Engine
from headway_runtime.batching.layout import Layout
from headway_runtime.buckets import resolve_buckets
from headway_runtime.errors import FatalError, RequestError
from headway_runtime.export.errors import ExportError
from headway_runtime.export.proof import Opened
from headway_runtime.knobs import Settings
from headway_runtime.pod import Model
from headway_runtime.prepare import repack
from headway_runtime.program import Program, load_program
from headway_runtime.serving.intake import Intake
from headway_runtime.serving.steps.opening import open_pipeline
from headway_runtime.serving.steps.pipeline import Pipeline
from headway_runtime.serving.steps.stage import Stage
from headway_runtime.serving.values import BytesArray, Call, Given, Reply

TEXT = "A text to try the steps with."
EDGE = 64  # pixels of the image, where the program does not say how many
SECONDS = 60.0


def try_steps(pod: Opened) -> list[str]:
    """What was tried, as notes; none without steps. Raises ExportError when a request fails on them."""
    document = json.loads(repack.program_file(pod.directory, pod.name).read_bytes())
    if "steps" not in document:
        return []
    pipeline = _opened(pod, document)
    try:
        given = _sample(pipeline)
        left = [name for name in pipeline.inputs if name not in {f for step in pipeline.steps for f in step.fills}]
        if not given or left:
            return [f"the steps were not tried: a request has other inputs ({', '.join(left)})"]
        reply = _answer(pipeline, Given(given))
    finally:
        pipeline.stop()
    shapes = ", ".join(f"{output.name} {list(output.value.shape)}" for output in reply.outputs)
    return [f"a request of {' and '.join(given)} went through the steps: {shapes}"]


def _opened(pod: Opened, document: Mapping[str, Any]) -> Pipeline:
    def stage(name: str) -> Stage:
        return _stage(name, load_program(pod.directory, dimension_names={}, program=name))

    try:
        main = _stage(pod.name, pod.program)
        return open_pipeline(pod.directory, document, main, stage, _at_once, lambda step, seconds: None, threads=1)
    except FatalError as error:
        raise ExportError(f"a pod would refuse the steps ({error.reason}): {error.message}") from None


def _stage(name: str, program: Program) -> Stage:
    layout, buckets = Layout.of(program), resolve_buckets(program, None)
    limits = knobs.resolve(Knobs(), knobs.Bounds(largest_batch=1)).limits
    engine = Engine(program, layout, limits, lambda outcomes, record: None)
    return Stage(name, program, Model(engine, layout, Intake(program, layout, buckets), buckets))


def _at_once(function: Any, *args: Any) -> None:
    function(*args)


def _sample(pipeline: Pipeline) -> dict[str, BytesArray]:
    found: dict[str, BytesArray] = {}
    if pipeline.text is not None:
        found[pipeline.text.input] = BytesArray((1,), (TEXT.encode(),))
    if pipeline.image is not None:
        (pixels,) = pipeline.image.fills
        sizes = [size for size in pipeline.inputs[pixels]["shape"][1:] if size > 4] or [EDGE]
        found[pipeline.image.input] = BytesArray((1,), (_image(sizes[0], sizes[-1]),))
    return found


def _image(height: int, width: int) -> bytes:
    """A gradient, as PNG."""
    from PIL import Image

    values = torch.arange(height * width * 3, dtype=torch.int64).reshape(height, width, 3) % 256
    out = io.BytesIO()
    Image.fromarray(values.to(torch.uint8).numpy()).save(out, "PNG")
    return out.getvalue()


def _answer(pipeline: Pipeline, given: Given) -> Reply:
    """What a pod would answer, each program run at once."""
    told: list[Reply | RequestError | None] = []
    ended = threading.Event()

    def done(result: Reply | RequestError | None) -> None:
        told.append(result)
        ended.set()

    programs = {id(stage.model): stage.program for stage in pipeline.chain}

    def run(model: Model, settings: Settings, given: Given, call: Call) -> None:
        request = model.intake.request(given)
        outputs = programs[id(model)].run(request.inputs)
        call.done(Reply(model.intake.outputs(request, tuple(tensor.cpu() for tensor in outputs))))

    try:
        pipeline.call(given, Call(math.inf, lambda: False, done), run)
        if not ended.wait(SECONDS):
            raise ExportError(f"the steps took more than {SECONDS:g} s on one request")
        result = told[0]
    except RequestError as error:
        result = error
    except RuntimeError as error:  # whatever an operator raises
        raise ExportError(f"a program fails on a request through the steps: {error}") from error
    if not isinstance(result, Reply):
        raise ExportError(f"a request through the steps fails: {result}")
    return result
