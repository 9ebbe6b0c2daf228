"""Hot knobs of a pod that generates text: pure."""

import pytest
from headway_api.podconfig import Knobs
from headway_api.types import NonFinite
from headway_runtime import generation_knobs, knobs
from headway_runtime.generation_knobs import Bounds

WIDE = Bounds(10_000, 100_000)


def resolve(text: str, bounds: Bounds = WIDE) -> knobs.Settings:
    return generation_knobs.resolve(knobs.parse(text), bounds)


def test_without_a_word_64_sequences_run_in_steps_of_256_tokens_and_nothing_is_clamped() -> None:
    settings = resolve("{}")
    assert (settings.limits.max_batch, settings.step_tokens, settings.prefix_cache) == (64, 256, True)
    assert (settings.limits.max_wait, settings.cache_bytes, settings.clamped) == (0.0, 0, ())
    assert settings.effective == {
        "maxBatch": 64,
        "stepTokens": 256,
        "prefixCache": True,
        "queue": {"capacity": 512, "bytes": "256Mi", "timeout": "2s"},
        "nonFinite": "Allow",
        "requestBytes": "64Mi",
    }


def test_what_is_written_is_obeyed() -> None:
    settings = resolve(
        '{"maxBatch":3,"stepTokens":32,"prefixCache":false,"queue":{"capacity":7,"bytes":"1Mi","timeout":"5s"},'
        '"nonFinite":"Reject","requestBytes":"1Mi"}'
    )
    limits = settings.limits
    assert (limits.max_batch, limits.capacity, limits.bytes) == (3, 7, 1 << 20)
    assert (settings.step_tokens, settings.prefix_cache, settings.queue_timeout) == (32, False, 5.0)
    assert (settings.non_finite, settings.request_bytes, settings.clamped) == (NonFinite.REJECT, 1 << 20, ())


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ('{"maxWait":"20ms"}', "spec.batching.maxWait"),
        ('{"latencyTarget":"50ms"}', "spec.batching.latencyTarget"),
        ('{"cacheBytes":"1Mi"}', "spec.batching.cache.bytes"),
    ],
)
def test_what_has_no_meaning_with_continuous_is_said_not_to_be_used(text: str, field: str) -> None:
    settings = resolve(text)
    (clamp,) = settings.clamped
    assert (clamp.field, clamp.effective) == (field, "not used")
    assert clamp.message.startswith(f"{field}: ")
    assert "is not used" in clamp.message
    assert settings.latency_target is None
    assert settings.cache_bytes == 0


@pytest.mark.parametrize("text", ['{"maxWait":"2ms"}', '{"maxWait":"0ms"}', '{"cacheBytes":"0"}'])
def test_defaults_of_what_has_no_meaning_need_no_words(text: str) -> None:
    assert resolve(text).clamped == ()


def test_no_more_is_in_effect_than_the_memory_lets_a_step_hold_and_the_reason_is_said() -> None:
    settings = resolve('{"maxBatch":100,"stepTokens":4096,"requestBytes":"2Gi"}', Bounds(20, 512, "no more fit"))
    assert (settings.limits.max_batch, settings.step_tokens, settings.request_bytes) == (20, 512, 1 << 30)
    assert [clamp.message for clamp in settings.clamped] == [
        "spec.batching.maxBatch: 100 is 20 in effect: no more fit",
        "spec.generation.stepTokens: 4096 is 512 in effect: no more fit",
        "spec.limits.requestBytes: 2Gi is 1Gi in effect: no larger request is read",
    ]


def test_a_default_that_does_not_fit_is_lowered_without_a_word() -> None:
    settings = resolve("{}", Bounds(20, 128))
    assert (settings.limits.max_batch, settings.step_tokens, settings.clamped) == (20, 128, ())


@pytest.mark.parametrize(
    ("asked", "field"),
    [
        (Knobs(step_tokens=512), "spec.generation.stepTokens"),
        (Knobs(prefix_cache=False), "spec.generation.prefixCache"),
    ],
)
def test_a_program_that_generates_no_text_says_that_knobs_of_generation_are_not_used(asked: Knobs, field: str) -> None:
    settings = knobs.resolve(asked, knobs.Bounds(1))
    (clamp,) = settings.clamped
    assert (clamp.field, clamp.effective) == (field, "not used")
    assert "generates no text" in clamp.message
