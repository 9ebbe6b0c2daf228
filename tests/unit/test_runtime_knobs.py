"""Hot knobs: parsing, clamping, and the watch over a volume that the kubelet swaps."""

import asyncio
from pathlib import Path

import pytest
from headway_api.podconfig import Knobs, knobs_hash
from headway_runtime.batching.policy import Limits
from headway_runtime.knobs import POLL_SECONDS, KnobsError, parse, resolve, watch

from tests.unit.pod_process import mount


def test_knobs_become_the_limits_of_the_policy() -> None:
    text = '{"maxBatch": 4, "maxWait": "1.5ms", "queue": {"capacity": 9, "bytes": "1Ki", "timeout": "3s"}, "newer": 1}'
    settings = resolve(parse(text), 32)
    assert settings.limits == Limits(4, 0.0015, 9, 1024)
    assert settings.queue_timeout == 3
    assert settings.effective == {
        "maxBatch": 4,
        "maxWait": "1.5ms",
        "queue": {"capacity": 9, "bytes": "1Ki", "timeout": "3s"},
    }
    assert settings.clamped == ()


def test_without_a_max_batch_the_largest_bucket_rules() -> None:
    assert resolve(Knobs(), 32).limits.max_batch == 32


@pytest.mark.parametrize(
    ("knobs", "field", "effective"),
    [
        ('{"maxBatch": 33}', "spec.batching.maxBatch", "32"),
        ('{"maxWait": "31s"}', "spec.batching.maxWait", "30s"),
        ('{"queue": {"timeout": "1h"}}', "spec.batching.queue.timeout", "30s"),
    ],
)
def test_what_cannot_be_honoured_is_clamped_with_a_message(knobs: str, field: str, effective: str) -> None:
    (clamp,) = resolve(parse(knobs), 32).clamped
    assert (clamp.field, clamp.effective) == (field, effective)
    assert clamp.message.startswith(f"{field}: {clamp.asked} is {effective} in effect")


def test_a_program_that_cannot_be_batched_says_why_a_batch_is_clamped() -> None:
    settings = resolve(parse('{"maxBatch": 2}'), 1, not_batchable="it sums")
    assert settings.limits.max_batch == 1
    assert "it sums" in settings.clamped[0].message


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "the file"),
        ("[]", "the file"),
        ('{"maxBatch": 0}', "maxBatch"),
        ('{"maxWait": "fast"}', "spec.batching.maxWait: 'fast' is not a duration"),
        ('{"queue": {"capacity": -1}}', "queue.capacity"),
        ('{"queue": {"bytes": "lots"}}', "queue.bytes"),
        ('{"queue": {"timeout": 3}}', "queue.timeout"),
        ('{"queue": {"bytes": "' + "9" * 400 + 'Ti"}}', "spec.batching.queue.bytes: '9"),
    ],
)
def test_a_bad_file_is_refused_with_where_and_why(text: str, says: str) -> None:
    with pytest.raises(KnobsError) as refusal:
        parse(text)
    assert says in str(refusal.value)


async def test_every_swap_of_the_volume_is_seen_once_and_a_missing_file_is_said(tmp_path: Path) -> None:
    seen: list[tuple[str, str]] = []
    failed: list[str] = []
    watcher = asyncio.create_task(
        watch(tmp_path / "knobs.json", lambda text, name: seen.append((text, name)), failed.append)
    )
    try:
        for number in range(3):
            text = f'{{"maxBatch": {number + 1}}}'
            mount(tmp_path, text)
            for _ in range(200):
                if seen and seen[-1][0] == text:
                    break
                await asyncio.sleep(0.02)
            assert seen[-1] == (text, knobs_hash(text))
        await asyncio.sleep(3 * POLL_SECONDS)
        assert len(seen) == 3, "an unchanged file is not read again"
        (tmp_path / "..data").unlink()
        for _ in range(200):
            if failed:
                break
            await asyncio.sleep(0.02)
        assert "knobs.json" in failed[-1]
        assert len(seen) == 3
    finally:
        watcher.cancel()
