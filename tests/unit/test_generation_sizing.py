"""The arithmetic of keys and values, with the figures that everybody knows. Memory of devices is in GiB."""

import pytest
from headway_runtime.generation import sizing
from headway_runtime.generation.lengths import ENOUGH, RecentLengths, quantile
from headway_runtime.prepare.decoder import BLOCK_TOKENS, DecoderGeometry, LayerGeometry

KIB, MIB, GIB, GB = 1 << 10, 1 << 20, 1 << 30, 10**9
FP16, INT8 = 2, 1
LLAMA_2_7B = sizing.uniform(layers=32, heads=32, kv_heads=32, head_dim=128, vocabulary=32_000)
OPT_13B = sizing.uniform(layers=40, heads=40, kv_heads=40, head_dim=128, vocabulary=50_272)
PARAMETERS = 7 * 10**9


def test_a_token_of_llama_2_7b_takes_512_kib_and_one_of_opt_13b_800() -> None:
    assert LLAMA_2_7B.bytes_per_token(FP16) == 512 * KIB
    assert OPT_13B.bytes_per_token(FP16) == 800 * KIB


def test_sixteen_sequences_of_1024_tokens_and_the_weights_take_22_6_gb_and_half_in_int8() -> None:
    cache = 16 * sizing.sequence_bytes(LLAMA_2_7B, 1024, FP16)
    assert cache == 8 * GIB
    assert sizing.total_bytes(PARAMETERS, FP16, cache) / GB == pytest.approx(22.6, abs=0.05)
    small = 16 * sizing.sequence_bytes(LLAMA_2_7B, 1024, INT8)
    assert sizing.total_bytes(PARAMETERS, INT8, small) / GB == pytest.approx(11.3, abs=0.05)


def test_a_chat_of_512_tokens_takes_256_mib_and_about_260_fit_in_66_gb() -> None:
    assert sizing.sequence_bytes(LLAMA_2_7B, 512, FP16) == 256 * MIB
    blocks = sizing.blocks_in(66 * GIB, LLAMA_2_7B, FP16)
    assert sizing.sequences_in(blocks - 1, 512) == 263  # one block belongs to nobody


def test_a_request_of_16k_tokens_takes_8_6_gb_and_7_fit_in_60_gb() -> None:
    assert sizing.sequence_bytes(LLAMA_2_7B, 16_384, FP16) / GB == pytest.approx(8.6, abs=0.05)
    blocks = sizing.blocks_in(60 * GIB, LLAMA_2_7B, FP16)
    assert sizing.sequences_in(blocks - 1, 16_384) == 7


def test_shared_key_heads_and_windows_count_as_they_are() -> None:
    smollm2 = sizing.uniform(layers=30, heads=9, kv_heads=3, head_dim=64, vocabulary=49_152)
    assert smollm2.bytes_per_token(4) == 45 * KIB
    mixed = DecoderGeometry((LayerGeometry(0, 8, 8, 64, 0), LayerGeometry(1, 8, 2, 128, 512)), 100)
    assert mixed.bytes_per_token(2) == 2 * 2 * (8 * 64 + 2 * 128)


def test_a_sequence_takes_whole_blocks() -> None:
    per_token = LLAMA_2_7B.bytes_per_token(FP16)
    assert sizing.sequence_bytes(LLAMA_2_7B, 1, FP16) == BLOCK_TOKENS * per_token
    assert sizing.sequence_bytes(LLAMA_2_7B, 17, FP16) == 2 * BLOCK_TOKENS * per_token
    assert sizing.sequences_in(10, 17) == 5
    assert sizing.sequences_in(1, 17) == 0


def test_a_static_batch_uses_32_5_percent_of_its_slots_where_a_continuous_one_uses_nearly_all() -> None:
    """One answer of 100 tokens beside three of 10: the four hold their slots until the longest is complete."""
    batch = (100, 10, 10, 10)
    assert sizing.static_slot_use(batch, 4) == 0.325
    assert sizing.static_slot_use(batch * 8, 4) == 0.325
    assert sizing.continuous_slot_use(batch * 8, 4) == pytest.approx(0.8667, abs=1e-4)
    assert sizing.continuous_slot_use(batch * 100, 4) > 0.98


def lengths(*counted: tuple[int, int]) -> list[int]:
    return sorted(length for length, count in counted for _ in range(count))


def test_a_max_length_that_nobody_needs_is_suggested_to_be_lowered() -> None:
    seen = lengths((200, 90), (700, 10))
    assert sizing.suggested_max_length(seen, max_length=8192, context=8192) == 1024
    assert sizing.suggested_max_length(seen, max_length=2048, context=8192) == 1024
    assert sizing.suggested_max_length(seen, max_length=1024, context=8192) is None


def test_one_that_cuts_answers_short_is_suggested_to_be_raised_as_far_as_the_model_goes() -> None:
    seen = lengths((200, 95), (512, 5))
    assert sizing.suggested_max_length(seen, max_length=512, context=8192) == 1024
    assert sizing.suggested_max_length(seen, max_length=512, context=768) == 768
    assert sizing.suggested_max_length(seen, max_length=512, context=512) is None


def test_nothing_is_said_of_a_few_sequences() -> None:
    recent = RecentLengths()
    for length in range(1, ENOUGH):
        recent.add(length)
    assert recent.latest() == []
    recent.add(50)
    assert recent.latest()[-1] == ENOUGH - 1
    assert quantile(recent.latest(), 0.5) == 50
    assert quantile(recent.latest(), 0.99) == 99
    assert quantile(recent.latest(), 1.0) == 99
