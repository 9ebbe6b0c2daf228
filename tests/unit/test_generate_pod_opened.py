"""What is opened obeys its fields and knobs in the steps that it runs: sequences, tokens, prefix cache, speculation."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from headway_runtime.errors import FatalError
from headway_runtime.export.generate import export_decoder
from headway_runtime.export.generate.source import Pretrained
from headway_runtime.generation.opened import Opened
from headway_runtime.generation.values import Usage
from headway_runtime.prepare import run
from headway_runtime.prepare.room import Room

from tests.decoders import tiny_model, tiny_tokenizer
from tests.unit.generator_desk import Desk, desk, greedy, open_tiny, prepared

PROMPT = tuple(range(20, 84))  # four blocks


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepared(tmp_path_factory.mktemp("decoder"))


@pytest.fixture(scope="module")
def with_draft(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A prepared decoder whose draft is the same decoder: whatever it proposes is right."""
    folder = tmp_path_factory.mktemp("drafted")
    draft = Pretrained(tiny_model(), tiny_tokenizer())
    export_decoder(tiny_model(), tiny_tokenizer(), path=folder / "model.pt2", draft=draft)
    run.prepare((folder / "model.pt2").as_uri(), folder / "model", pinned=None, credentials=Path("/nonexistent"))
    return folder / "model"


@pytest.fixture(scope="module")
def found(directory: Path) -> Opened:
    return open_tiny(directory)


@pytest.fixture
async def running(found: Opened) -> AsyncIterator[Desk]:
    async with desk(found) as started:
        yield started


def largest(desk: Desk, histogram: str) -> float:
    """Upper bound of the largest bucket that something was counted in."""
    count = desk.metric(f"{histogram}_count")
    bounds = [
        float(sample.labels["le"])
        for family in desk.pod.metrics.registry.collect()
        for sample in family.samples
        if sample.name == f"{histogram}_bucket" and sample.value == count
    ]
    return min(bounds)


async def answered(desk: Desk, *prompts: tuple[int, ...], tokens: int = 8, n: int = 1) -> list[Usage]:
    listeners = [desk.start(greedy(*prompt, tokens=tokens, n=n))[1] for prompt in prompts]
    usages = [await listener.end() for listener in listeners]
    assert all(isinstance(usage, Usage) for usage in usages), usages
    return [usage for usage in usages if isinstance(usage, Usage)]


async def test_no_step_holds_more_sequences_or_tokens_than_the_knobs_say(running: Desk) -> None:
    running.pod.knobs_changed('{"maxBatch":3,"stepTokens":16}', "small")
    await answered(running, *[(each, *PROMPT) for each in range(2, 10)])
    assert largest(running, "headway_batch_rows") == 3
    assert largest(running, "headway_step_tokens") == 16
    running.pod.knobs_changed('{"maxBatch":8,"stepTokens":512}', "large")
    await answered(running, *[(each, *PROMPT) for each in range(12, 20)])
    assert largest(running, "headway_batch_rows") > 3
    assert largest(running, "headway_step_tokens") > 16


async def test_a_prompt_that_came_before_is_found_unless_the_knob_says_no(running: Desk) -> None:
    await answered(running, PROMPT)
    (usage,) = await answered(running, PROMPT)
    assert usage.cached == 48, "of four blocks all but the last, of which a token must run"
    running.pod.knobs_changed('{"prefixCache":false}', "off")
    (usage,) = await answered(running, PROMPT)
    assert usage.cached == 0
    assert running.metric("headway_prefix_cache_tokens_total", kind="hit") == 48


async def test_words_that_came_before_are_proposed_and_the_answer_stays_the_same(
    directory: Path, found: Opened
) -> None:
    async with desk(found) as running:
        _, plain = running.start(greedy(5, tokens=300))
        await plain.end()
    async with desk(open_tiny(directory, speculation={"method": "PromptLookup", "tokens": 3})) as running:
        _, listener = running.start(greedy(5, tokens=300))
        usage = await listener.end()
        assert isinstance(usage, Usage)
        assert listener.tokens == plain.tokens
        assert usage.accepted <= usage.drafted
        assert usage.drafted > 0
        assert running.metric("headway_drafted_tokens_total") == usage.drafted
        assert running.metric("headway_accepted_tokens_total") == usage.accepted


async def test_a_draft_of_the_same_artifact_proposes_and_takes_its_share_of_the_cache(
    with_draft: Path, found: Opened
) -> None:
    golden = found.facts.decoder.golden[0]
    opened = open_tiny(with_draft, speculation={"method": "Draft", "tokens": 4})
    assert opened.draft is not None
    assert opened.budget.block_bytes == 2 * found.budget.block_bytes
    assert opened.draft.cache.blocks == opened.decoder.cache.blocks == opened.budget.blocks
    assert opened.kept.weights_bytes == 2 * found.kept.weights_bytes
    async with desk(opened) as running:
        _, listener = running.start(greedy(*golden.prompt, tokens=len(golden.tokens)))
        usage = await listener.end()
        assert isinstance(usage, Usage)
        assert listener.tokens == list(golden.tokens)
        assert usage.accepted == usage.drafted > 0, "it is the decoder itself"
        assert running.metric("headway_run_seconds_count") < len(golden.tokens)


def test_a_memory_limit_decides_what_a_step_may_hold_and_a_small_one_is_refused(directory: Path) -> None:
    narrow = open_tiny(directory, room=Room(in_use() + (40 << 20), "a test's limit"))
    wide = open_tiny(directory, room=Room(in_use() + (4 << 30), "a test's limit"))
    assert narrow.step_tokens < wide.step_tokens
    assert narrow.sequences == wide.sequences == wide.budget.blocks - 1, "each needs a block"
    with pytest.raises(FatalError, match="the container's memory limit is") as raised:
        open_tiny(directory, room=Room(in_use() + (1 << 20), "the container's memory limit"))
    assert raised.value.reason == "WillNotFit"


def in_use() -> int:
    from headway_runtime import memory

    return memory.in_use()
