"""The engine with a real decoder: every way to run a request gives what the decoder says step by step, alone."""

import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from headway_api.types import Precision
from headway_runtime.generation.delivery import Delivery, StepRecord
from headway_runtime.generation.engine import Engine
from headway_runtime.generation.sampling import Sampler
from headway_runtime.generation.settings import Settings
from headway_runtime.generation.values import Stream, Usage
from headway_runtime.prepare import repack
from headway_runtime.program.decoder import Decoder, open_decoder
from tokenizers import Tokenizer

from tests.decoders import tiny
from tests.unit import decoder_steps
from tests.unit.generation_desk import FOREVER, Client, ask

PLENTY = 200
CHANCE = random.Random(3)
SHARED = CHANCE.choices(range(2, 384), k=40)
PROMPTS = [
    (*SHARED[: CHANCE.choice([0, 0, 16, 40])], *CHANCE.choices(range(2, 384), k=CHANCE.randint(1, 60)))
    for _ in range(12)
]
TOKENS = 40


@dataclass(frozen=True)
class Way:
    """How requests are run: blocks of the cache, drafts of the program itself as its own draft, settings."""

    blocks: int = PLENTY
    draft: bool = False
    settings: tuple[tuple[str, Any], ...] = ()
    preempts: bool = False


WAYS = {
    "together": Way(),
    "one after the other": Way(settings=(("max_sequences", 1),)),
    "in chunks": Way(settings=(("step_tokens", 16),)),
    "without the prefix cache": Way(settings=(("prefix_cache", False),)),
    "preempted": Way(blocks=18, preempts=True),
    "with prompt lookup": Way(settings=(("drafts", 4),)),
    "with a draft program": Way(draft=True, settings=(("drafts", 3),)),
    "with all of it": Way(blocks=18, draft=True, settings=(("drafts", 3), ("step_tokens", 24)), preempts=True),
}


@pytest.fixture(scope="module", params=["llama", "gemma3"])
def prepared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp(request.param)
    return decoder_steps.prepared(tiny(folder, request.param), folder / "prepared")


def opened(directory: Path, blocks: int) -> Decoder:
    torch.set_num_threads(1)
    return open_decoder(directory, blocks=blocks, cache_dtype=torch.float32, precision=Precision.EXPORTED)


@pytest.fixture(scope="module")
def alone(prepared: Path) -> list[list[int]]:
    return [decoder_steps.greedy(opened(prepared, 16), prompt, TOKENS) for prompt in PROMPTS]


@pytest.mark.parametrize("name", WAYS)
def test_every_way_gives_the_same_tokens(prepared: Path, alone: list[list[int]], name: str) -> None:
    way = WAYS[name]
    clients = [Client() for _ in PROMPTS]
    records: list[StepRecord] = []

    def deliver(deliveries: list[Delivery], record: StepRecord | None) -> None:
        for delivery in deliveries:
            delivery.hand_over()
        if record is not None:
            records.append(record)
        if all(client.ended for client in clients):
            engine.stop()

    decoder = opened(prepared, way.blocks)
    engine = Engine(
        decoder,
        Sampler(decoder.geometry.vocabulary),
        Tokenizer.from_file(str(prepared / repack.TOKENIZER)),
        Settings(**{"max_length": 200, **dict(way.settings)}),
        deliver,  # type: ignore[arg-type]
        draft=opened(prepared, way.blocks) if way.draft else None,
    )
    for prompt, client in zip(PROMPTS, clients, strict=True):
        engine.submit(ask(prompt, TOKENS), Stream(FOREVER, FOREVER, client.pieces.extend, client.ended.append))
    engine.run()
    assert all(isinstance(client.ended[0], Usage) for client in clients)
    assert [list(client.tokens()) for client in clients] == alone
    assert bool(sum(record.preempted for record in records)) == way.preempts
    drafted, accepted = (sum(getattr(record, each) for record in records) for each in ("drafted", "accepted"))
    if way.draft:
        assert accepted > 0.95 * drafted > 0, "a program agrees with itself"
        assert len(records) < 40 or way.preempts
