"""Hot knobs: parsing, clamping, and the watch over a volume that the kubelet swaps."""

import asyncio
from pathlib import Path

import pytest
from headway_api.podconfig import Knobs, knobs_hash
from headway_api.types import NonFinite
from headway_runtime.batching.policy import Limits, Policy, Ticket
from headway_runtime.batching.target import Within
from headway_runtime.knobs import POLL_SECONDS, Bounds, KnobsError, parse, resolve, unknown, watch

from tests.unit.pod_process import mount, until

THIRTY_TWO = Bounds(32)


def milliseconds(rows: int, sizes: tuple[int, ...]) -> float:
    """5 ms for a run, and 1 ms for each row, of 8 tokens."""
    return 0.005 + 0.001 * rows * (sizes[0] / 8 if sizes else 1)


def test_knobs_become_the_limits_of_the_policy() -> None:
    text = '{"maxBatch": 4, "maxWait": "1.5ms", "queue": {"capacity": 9, "bytes": "1Ki", "timeout": "3s"}, "newer": 1}'
    settings = resolve(parse(text), THIRTY_TWO)
    assert settings.limits == Limits(4, 0.0015, 9, 1024)
    assert settings.queue_timeout == 3
    assert settings.effective == {
        "maxBatch": 4,
        "maxWait": "1.5ms",
        "queue": {"capacity": 9, "bytes": "1Ki", "timeout": "3s"},
        "nonFinite": "Allow",
        "requestBytes": "64Mi",
    }
    assert settings.clamped == ()


def test_keys_that_are_passed_over_are_named() -> None:
    assert unknown('{"maxBatch": 4, "max_wait": "1ms", "queue": {"capacity": 1}, "latencyTarget": "5ms"}') == []
    assert unknown('{"maxBach": 4, "queue": {"capcity": 1, "bytes": "1Ki"}, "new": {"er": 1}}') == [
        "maxBach",
        "queue.capcity",
        "new",
    ]


def test_without_a_max_batch_the_largest_bucket_rules() -> None:
    assert resolve(Knobs(), THIRTY_TWO).limits.max_batch == 32


@pytest.mark.parametrize(
    ("knobs", "field", "effective"),
    [
        ('{"maxBatch": 33}', "spec.batching.maxBatch", "32"),
        ('{"maxWait": "31s"}', "spec.batching.maxWait", "30s"),
        ('{"queue": {"timeout": "1h"}}', "spec.batching.queue.timeout", "30s"),
        ('{"requestBytes": "2Gi"}', "spec.limits.requestBytes", "1Gi"),
    ],
)
def test_what_cannot_be_honoured_is_clamped_with_a_message(knobs: str, field: str, effective: str) -> None:
    (clamp,) = resolve(parse(knobs), THIRTY_TWO).clamped
    assert (clamp.field, clamp.effective) == (field, effective)
    assert clamp.message.startswith(f"{field}: {clamp.asked} is {effective} in effect")


def test_a_program_that_cannot_be_batched_says_why_a_batch_is_clamped() -> None:
    settings = resolve(parse('{"maxBatch": 2}'), Bounds(1, not_batchable="it sums"))
    assert settings.limits.max_batch == 1
    assert "it sums" in settings.clamped[0].message


def test_every_other_knob_is_read_and_reported() -> None:
    text = '{"cacheBytes": "1Mi", "nonFinite": "Reject", "requestBytes": "2Mi", "latencyTarget": "20ms"}'
    settings = resolve(parse(text), THIRTY_TWO)
    assert (settings.cache_bytes, settings.request_bytes, settings.latency_target) == (2**20, 2**21, 0.02)
    assert settings.non_finite is NonFinite.REJECT
    assert {k: v for k, v in settings.effective.items() if k not in ("maxBatch", "maxWait", "queue")} == {
        "nonFinite": "Reject",
        "requestBytes": "2Mi",
        "latencyTarget": "20ms",
        "cache": {"bytes": "1Mi"},
    }


def test_a_latency_target_keeps_a_run_to_the_rows_whose_measured_cost_fits() -> None:
    measured = Bounds(32, cost=milliseconds)
    settings = resolve(parse('{"latencyTarget": "20ms"}'), measured)
    assert (settings.limits.max_batch, settings.effective["maxBatch"], settings.clamped) == (15, 15, ())
    assert resolve(parse('{"latencyTarget": "1s"}'), measured).limits.max_batch == 32
    settings = resolve(parse('{"latencyTarget": "20ms", "maxBatch": 20}'), measured)
    assert settings.limits.max_batch == 15
    assert settings.clamped[0].message == (
        "spec.batching.maxBatch: 20 is 15 in effect: a run of more rows takes longer than spec.batching.latencyTarget"
    )


def test_where_sizes_differ_the_smallest_say_how_many_rows_fit_and_the_cost_holds_larger_ones_to_the_target() -> None:
    settings = resolve(parse('{"latencyTarget": "20ms"}'), Bounds(32, cost=milliseconds, least=(4,), most=(64,)))
    assert (settings.limits.max_batch, settings.clamped) == (30, ())
    within = Within(milliseconds, 0.020)
    assert within(15, (8,)) == milliseconds(15, (8,))
    assert within(16, (8,)) > 100 * within(15, (8,))
    assert within(1, (8000,)) == milliseconds(1, (8000,)), "one row always runs"


@pytest.mark.parametrize("length", [4, 8, 32])
def test_the_policy_starts_no_run_beyond_the_target_whatever_the_sizes(length: int) -> None:
    policy = Policy(Limits(30, 0.0, 1000, 10**6), Within(milliseconds, 0.020))
    for number in range(60):
        size = length if number % 2 else max(1, length // 2)
        policy.admit(Ticket(number, "a", 1, 1, 0.0, 60.0, (size,)))
    runs = 0
    while len(policy):
        plan = policy.plan(1.0)
        runs += 1
        longest = max(ticket.sizes[0] for ticket in plan.tickets)
        assert milliseconds(len(plan.tickets), (longest,)) <= 0.020
        policy.start(plan)
    assert runs < 30, "and it does batch"


def test_a_target_that_one_row_cannot_meet_is_said() -> None:
    settings = resolve(parse('{"latencyTarget": "10ms"}'), Bounds(32, cost=milliseconds, least=(8,), most=(80,)))
    (clamp,) = settings.clamped
    assert (clamp.field, clamp.effective) == ("spec.batching.latencyTarget", "15ms")
    assert settings.limits.max_batch == 5


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "the file"),
        ("[]", "the file"),
        ('{"latencyTarget": "0.5ms"}', "spec.batching.latencyTarget"),
        ('{"cacheBytes": "some"}', "spec.batching.cache.bytes"),
        ('{"requestBytes": "1", "nonFinite": "Maybe"}', "nonFinite"),
        ('{"requestBytes": ""}', "spec.limits.requestBytes"),
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
            await asyncio.to_thread(until, lambda text=text: seen and seen[-1][0] == text, "what was mounted")
            assert seen[-1] == (text, knobs_hash(text))
        await asyncio.sleep(3 * POLL_SECONDS)
        assert len(seen) == 3, "an unchanged file is not read again"
        (tmp_path / "..data").unlink()
        await asyncio.to_thread(until, lambda: failed, "that it is missing")
        assert "knobs.json" in failed[-1]
        assert len(seen) == 3
    finally:
        watcher.cancel()
