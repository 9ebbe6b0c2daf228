"""How a pod's memory is shared out between weights, a step and the cache; what is refused, and by whom. Pure."""

import pytest
from headway_api.podconfig import ColdGeneration
from headway_api.types import CacheType
from headway_runtime.errors import FatalError
from headway_runtime.prepare.budget import Budget, Need, blocks_of, never_fits, share_out
from headway_runtime.prepare.room import Room

MIB = 1 << 20
PER_TOKEN = 46_080  # SmolLM2-135M: 30 layers, 3 heads of 64, float32
BLOCK = 16 * PER_TOKEN
GIBIBYTE = Room(1 << 30, "the container's memory limit")
LAPTOP = Room(32 << 30, "the memory of this machine", limited=False)
NEED = Need(weights=500 * MIB, step=100 * MIB, process=200 * MIB)


def share(asked: ColdGeneration, *, room: Room = GIBIBYTE, free: int = 8 << 30, context: int = 8192) -> Budget:
    return share_out(asked, NEED, bytes_per_token=PER_TOKEN, context=context, room=room, free=free)


def refusal(asked: ColdGeneration, *, room: Room = GIBIBYTE) -> FatalError:
    with pytest.raises(FatalError) as raised:
        share(asked, room=room)
    assert raised.value.condition == "Accepted"
    return raised.value


def test_the_cache_gets_what_the_weights_a_step_the_process_and_a_margin_leave_of_the_limit() -> None:
    found = share(ColdGeneration())
    assert found.blocks == (1024 - 800 - 64) * MIB // BLOCK
    assert found.bytes <= (1024 - 800 - 64) * MIB
    assert found.max_length == (found.blocks - 1) * 16, "less than the context: what fits, and block 0 is nobody's"
    assert found.left == (1024 - 800) * MIB - found.bytes


def test_a_length_that_is_asked_for_is_kept_to_and_what_fits_beyond_it_is_for_others() -> None:
    found = share(ColdGeneration(max_length=2048))
    assert (found.max_length, found.blocks) == (2048, share(ColdGeneration()).blocks)


def test_the_context_bounds_the_length_and_a_cache_is_not_larger_than_anybody_needs() -> None:
    found = share(ColdGeneration(), room=Room(64 << 30, "the container's memory limit"), context=128)
    assert found.max_length == 128
    assert found.blocks == 256 * blocks_of(128)


def test_a_machine_without_a_limit_gives_a_quarter_of_what_is_free_and_at_most_4_gib() -> None:
    assert share(ColdGeneration(), room=LAPTOP, free=2 << 30).blocks == (512 * MIB) // BLOCK
    assert share(ColdGeneration(), room=LAPTOP, free=30 << 30).blocks == (4 << 30) // BLOCK


def test_a_machine_without_a_limit_gives_more_where_one_sequence_needs_it() -> None:
    asked = ColdGeneration(max_length=8192)
    assert share(asked, room=LAPTOP, free=400 * MIB).blocks == blocks_of(8192)


def test_a_length_for_which_there_is_no_room_is_refused_with_all_its_numbers() -> None:
    error = refusal(ColdGeneration(max_length=8192))
    assert (error.reason, error.field) == ("WillNotFit", "spec.generation.maxLength")
    for told in (
        "a sequence of 8192 tokens needs 513 blocks of 720.0 KiB (46080 bytes a token",
        "weights 500.0 MiB, one step 100.0 MiB, the process itself 200.0 MiB, a margin 64.0 MiB",
        "the container's memory limit is 1.0 GiB",
        "raise spec.template.resources.limits.memory, or lower spec.generation.maxLength, or write cacheType: BFloat16",
    ):
        assert told in error.message


def test_a_cache_that_holds_no_such_sequence_is_refused_with_the_bytes_that_would_do() -> None:
    error = refusal(ColdGeneration(cache_bytes="64Mi", max_length=4096))
    assert (error.reason, error.field) == ("WillNotFit", "spec.generation.cacheBytes")
    assert "64Mi is 91 blocks of 16 tokens" in error.message
    assert f"raise spec.generation.cacheBytes to {blocks_of(4096) * BLOCK} or more" in error.message
    enough = ColdGeneration(cache_bytes=str(blocks_of(4096) * BLOCK), max_length=4096)
    assert share(enough).max_length == 4096


def test_a_cache_that_is_larger_than_the_memory_is_refused_and_one_that_fits_exactly_is_not() -> None:
    assert refusal(ColdGeneration(cache_bytes="1Gi")).field == "spec.generation.cacheBytes"
    left = GIBIBYTE.bytes - NEED.total
    assert share(ColdGeneration(cache_bytes=str(left))).blocks == left // BLOCK
    assert refusal(ColdGeneration(cache_bytes=str(left + 1))).reason == "WillNotFit"


def test_a_limit_that_the_weights_alone_exceed_is_the_field_at_fault() -> None:
    error = refusal(ColdGeneration(), room=Room(600 * MIB, "the container's memory limit"))
    assert (error.reason, error.field) == ("WillNotFit", "spec.template.resources.limits.memory")


def test_a_length_that_the_program_was_not_made_for_is_refused() -> None:
    error = refusal(ColdGeneration(max_length=8193))
    assert (error.reason, error.field) == ("LengthOutOfRange", "spec.generation.maxLength")
    assert "write at most 8192" in error.message


@pytest.mark.parametrize(
    ("asked", "weights", "room", "fits"),
    [
        (ColdGeneration(max_length=2048), 500 * MIB, GIBIBYTE, True),
        (ColdGeneration(max_length=8192), 700 * MIB, GIBIBYTE, False),
        (ColdGeneration(cache_bytes="400Mi"), 700 * MIB, GIBIBYTE, False),
        (ColdGeneration(cache_bytes="300Mi"), 700 * MIB, GIBIBYTE, True),
        (ColdGeneration(), 2000 * MIB, GIBIBYTE, False),
        (ColdGeneration(max_length=8192), 40 << 30, LAPTOP, True),  # nobody has set a limit
    ],
)
def test_before_anything_is_loaded_only_what_is_certain_is_refused(
    asked: ColdGeneration, weights: int, room: Room, fits: bool
) -> None:
    error = never_fits(asked, weights=weights, bytes_per_token=PER_TOKEN, room=room)
    assert (error is None) is fits
    if error is not None:
        assert error.reason == "WillNotFit"
        assert "one step" not in error.message


def test_a_cache_that_is_halved_already_is_not_advised() -> None:
    error = never_fits(
        ColdGeneration(max_length=8192, cache_type=CacheType.BFLOAT16),
        weights=900 * MIB,
        bytes_per_token=PER_TOKEN // 2,
        room=GIBIBYTE,
    )
    assert error is not None
    assert "cacheType" not in error.message
