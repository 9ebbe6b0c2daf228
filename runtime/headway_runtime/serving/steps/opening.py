"""Making the steps while the pod loads: the tokenizer is read, the other programs are warmed, the threads start."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from headway_runtime.errors import FatalError
from headway_runtime.prepare import repack
from headway_runtime.prepare.beside.steps import Image, Labels, Text, of_document
from headway_runtime.prepare.wiring import chain
from headway_runtime.program import TensorSpec
from headway_runtime.serving.intake import metadata
from headway_runtime.serving.steps.crew import Hand, Timed
from headway_runtime.serving.steps.labels import LabelsStep
from headway_runtime.serving.steps.lengths import lengths_of
from headway_runtime.serving.steps.pipeline import InputStep, Pipeline
from headway_runtime.serving.steps.stage import Stage
from headway_runtime.serving.steps.text import Inputs, TextStep
from headway_runtime.serving.steps.tokens import open_tokenizer


def open_pipeline(
    directory: Path,
    document: Mapping[str, Any],
    main: Stage,
    load_stage: Callable[[str], Stage],
    hand: Hand,
    timed: Timed,
    *,
    threads: int,
) -> Pipeline:
    """The steps that a prepared program declares, which may be none.

    `load_stage` opens and warms another program of the archive. Raises FatalError.
    """
    facts = document.get("facts", {})
    steps = of_document(document)
    stages = tuple(main if name == main.name else load_stage(name) for name in chain(main.name, steps))
    inputs = _requested(stages)
    last = stages[-1]
    return Pipeline(
        text=_text(steps.text, directory, facts, stages, hand, timed, threads) if steps.text else None,
        image=_image(steps.image, stages, hand, timed, threads) if steps.image else None,
        chain=stages,
        main=main,
        labels=LabelsStep(steps.labels, facts.get("labels", ()), last.outputs),
        inputs={name: metadata(spec) for name, spec in inputs.items()},
        outputs=[*map(metadata, last.program.outputs), *_labels(steps.labels, last)],
    )


def _requested(stages: tuple[Stage, ...]) -> dict[str, TensorSpec]:
    """The inputs that no earlier program gives."""
    given: set[str] = set()
    found: dict[str, TensorSpec] = {}
    for stage in stages:
        for spec in stage.program.inputs:
            if spec.name not in given:
                found.setdefault(spec.name, spec)
        given |= set(stage.outputs)
    return found


def _text(
    declared: Text,
    directory: Path,
    facts: Mapping[str, Any],
    stages: tuple[Stage, ...],
    hand: Hand,
    timed: Timed,
    threads: int,
) -> TextStep:
    tokenizer = open_tokenizer(directory / repack.TOKENIZER)
    host = next(stage for stage in stages if declared.ids in stage.inputs)
    lengths = lengths_of(declared, host.program, host.model.layout, host.model.buckets)
    if lengths.longest <= tokenizer.special:
        message = f"texts of {lengths.longest} tokens at most, and the tokenizer adds {tokenizer.special} to every text"
        raise FatalError("UnsupportedProgram", message, condition="ArtifactVerified", field="spec.artifact.uri")
    filler = facts.get("padding", {}).get(declared.ids, tokenizer.filler)
    return TextStep(
        declared,
        tokenizer,
        Inputs(
            _input(host, declared.ids),
            _input(host, declared.mask) if declared.mask else None,
            _input(host, declared.types) if declared.types else None,
            int(filler),
        ),
        lengths,
        hand,
        timed,
        axes=stages[-1].axes(),
        outputs=stages[-1].outputs,
        threads=threads,
    )


def _image(declared: Image, stages: tuple[Stage, ...], hand: Hand, timed: Timed, threads: int) -> InputStep:
    from headway_runtime.serving.steps.image import ImageStep  # a pod without images needs no reader of them

    host = next(stage for stage in stages if declared.tensor in stage.inputs)
    return ImageStep(declared, _input(host, declared.tensor), hand, timed, threads=threads)


def _input(stage: Stage, name: str) -> TensorSpec:
    return next(spec for spec in stage.program.inputs if spec.name == name)


def _labels(declared: Labels | None, last: Stage) -> list[dict[str, Any]]:
    if declared is None:
        return []
    scores = next(spec for spec in last.program.outputs if spec.name == declared.output)
    shape = [*metadata(scores)["shape"][:-1], declared.top]
    return [
        {"name": declared.label, "datatype": "BYTES", "shape": shape},
        {"name": declared.score, "datatype": "FP32", "shape": shape},
    ]
