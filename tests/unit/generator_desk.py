"""A pod that generates text, without its process: a real tiny decoder, opened as a pod opens it."""

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch
from headway_api.podconfig import ColdConfig
from headway_runtime.generation import opened
from headway_runtime.generation.delivery import Delivery, StepRecord
from headway_runtime.generation.opened import Opened
from headway_runtime.generation.settings import Settings
from headway_runtime.generation.values import Generate, Stream
from headway_runtime.prepare import repack, run
from headway_runtime.prepare.room import Room
from headway_runtime.serving.steps.tokens import open_library

from tests.decoders import tiny

ROOM = Room(4 << 30, "a test's memory limit")


@cache
def prepared(folder: Path, family: str = "llama") -> Path:
    """The prepared directory of a tiny decoder, made once in `folder`."""
    target = folder / f"{family}-model"
    uri = tiny(folder, family).as_uri()
    run.prepare(uri, target, pinned=None, credentials=Path("/nonexistent"))
    return target


def config(**parts: Any) -> ColdConfig:
    """A cold configuration of a pod."""
    cold = {"model": "chat", "namespace": "test", "revision": "0a1b2c3d", "artifact": {"uri": "file:///model.pt2"}}
    return ColdConfig.model_validate({**cold, "device": {"kind": "cpu"}, **parts})


def open_tiny(directory: Path, /, *, room: Room = ROOM, **generation: Any) -> Opened:
    """As the loading thread does; `generation` is the manifest's."""
    torch.set_num_threads(1)
    cold = config(generation={"cacheBytes": "1Mi", **generation})
    tokenizer = open_library(directory / repack.TOKENIZER)
    return opened.open_decoders(cold, opened.read(cold, directory, None), tokenizer, room=room)


def answer(found: Opened, requests: Sequence[tuple[Generate, Stream]], settings: Settings | None = None) -> None:
    """Run an engine in this thread until all are ended."""
    left = len(requests)

    def here(deliveries: Sequence[Delivery], _: StepRecord | None) -> None:
        nonlocal left
        for delivery in deliveries:
            delivery.hand_over()
            left -= delivery.ended
        if not left:
            engine.stop()

    engine = found.engine(here, settings)
    for generate, stream in requests:
        engine.submit(generate, stream)
    engine.run()
