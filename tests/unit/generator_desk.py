"""A pod that generates text, without its process: a real tiny decoder, opened as a pod opens it."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import torch
from headway_api.podconfig import ColdConfig
from headway_api.types import Precision
from headway_runtime.batching.tickets import Priority
from headway_runtime.errors import RequestError
from headway_runtime.generation import opened
from headway_runtime.generation.delivery import Delivery, StepRecord
from headway_runtime.generation.opened import Opened
from headway_runtime.generation.values import Generate, Piece, Sampling, Stream, Usage
from headway_runtime.generation_knobs import Bounds
from headway_runtime.generator import Generator
from headway_runtime.metrics import Metrics
from headway_runtime.origin import Origin
from headway_runtime.pod import Pod
from headway_runtime.prepare import repack, run
from headway_runtime.prepare.room import Room
from headway_runtime.serving.generate import GenerateService
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


def open_tiny(
    directory: Path, /, *, room: Room = ROOM, precision: Precision = Precision.EXPORTED, **generation: Any
) -> Opened:
    """As the loading thread does; `generation` is the manifest's."""
    torch.set_num_threads(1)
    cold = config(precision=precision, generation={"cacheBytes": "1Mi", **generation})
    tokenizer = open_library(directory / repack.TOKENIZER)
    return opened.open_decoders(cold, opened.read(cold, directory, None), tokenizer, room=room)


@dataclass
class Listener:
    """What one stream got, and when it ended."""

    pieces: list[Piece] = field(default_factory=list)
    outcomes: list[Usage | RequestError | None] = field(default_factory=list)
    begun: asyncio.Event = field(default_factory=asyncio.Event)
    over: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def tokens(self) -> list[int]:
        """Of answer 0."""
        return [token for piece in self.pieces if piece.index == 0 for token in piece.tokens]

    def stream(self, *, first_by: float = 60.0, within: float = 60.0, priority: Priority = Priority.NORMAL) -> Stream:
        """Seconds from now."""
        now = time.monotonic()
        return Stream(now + within, now + first_by, self._made, self._ended, priority)

    def _made(self, pieces: tuple[Piece, ...]) -> None:
        self.pieces += pieces
        self.begun.set()

    def _ended(self, outcome: Usage | RequestError | None) -> None:
        assert not self.outcomes, "ended twice"
        self.outcomes.append(outcome)
        self.over.set()

    async def end(self) -> Usage | RequestError | None:
        """What it ended with."""
        async with asyncio.timeout(60):
            await self.over.wait()
        return self.outcomes[0]


@dataclass
class Desk:
    """A pod whose engine runs in a thread, once it is started."""

    pod: Pod
    service: GenerateService
    generator: Generator
    thread: threading.Thread

    def metric(self, name: str, **labels: str) -> float:
        """A sample; 0 when it is not there."""
        return self.pod.metrics.registry.get_sample_value(name, labels) or 0.0

    def start(self, generate: Generate, **circumstances: Any) -> tuple[int, Listener]:
        """Of a stream that listens."""
        listener = Listener()
        return self.service.start(generate, listener.stream(**circumstances)), listener


def greedy(*prompt: int, tokens: int = 8, n: int = 1) -> Generate:
    """The likeliest tokens after these."""
    return Generate(prompt, tokens, Sampling(temperature=0.0), n)


@asynccontextmanager
async def desk(found: Opened, knobs: str = "{}", *, started: bool = True) -> AsyncIterator[Desk]:
    """Serve what was opened; `started` False leaves its thread asleep."""
    loop, me = asyncio.get_running_loop(), threading.get_ident()
    pod = Pod(config(), Metrics(), Origin())

    def to_loop(function: Callable[..., None], *args: object) -> None:
        if threading.get_ident() == me:
            function(*args)
        else:
            loop.call_soon_threadsafe(function, *args)

    def deliver(deliveries: Sequence[Delivery], record: StepRecord | None) -> None:
        to_loop(pod.stepped, deliveries, record)

    bounds = Bounds(found.sequences, found.step_tokens)
    generator = Generator(found.engine(deliver), found.facts, found.settings, bounds, found.kept)
    pod.install(generator)
    pod.knobs_changed(knobs, "test")
    assert pod.report().knobs.error is None, pod.report().knobs.error
    thread = threading.Thread(target=generator.run, daemon=True)
    if started:
        thread.start()
    try:
        yield Desk(pod, GenerateService(pod), generator, thread)
    finally:
        generator.stop()
        if thread.ident is None:
            thread.start()
        await loop.run_in_executor(None, thread.join, 60)
        assert not thread.is_alive()
