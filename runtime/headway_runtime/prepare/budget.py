"""How a pod's memory is shared out: weights, one step, and what is left for keys and values. Pure.

    the container's limit
    ├── the process itself (interpreter, torch, tokenizer)
    ├── weights, as they are kept
    ├── one step: activations, logits, sampling
    ├── a margin, for what nobody foresaw
    └── the cache: `generation.cacheBytes`, or all that is left

What cannot fit is refused with its numbers before a weight is touched: by the prepare step where that is certain
(`never_fits`), and by the serving process, which has measured the rest (`share_out`).
"""

from dataclasses import dataclass

from headway_api.podconfig import ColdGeneration
from headway_api.types import CacheType
from headway_api.units import parse_size

from headway_runtime.errors import FatalError
from headway_runtime.prepare.decoder import BLOCK_TOKENS
from headway_runtime.prepare.room import MEMORY_FIELD, Room, readable

LENGTH_FIELD = "spec.generation.maxLength"
CACHE_FIELD = "spec.generation.cacheBytes"
ELEMENT_BYTES = {CacheType.FLOAT32: 4, CacheType.BFLOAT16: 2}
MARGIN = 0.05  # of the container's limit
LEAST_MARGIN = 64 << 20
SHARE_OF_FREE = 0.25  # of the memory of a machine that sets no limit
MOST_UNASKED = 4 << 30  # bytes, there
USUAL_SEQUENCES = 256  # of the longest: more than these, and as many prompts, are not kept room for unasked


@dataclass(frozen=True, slots=True)
class Need:
    """Bytes that are not the cache's: `weights` as they are kept, `step` of one run at most, `process` in use now."""

    weights: int
    step: int
    process: int

    @property
    def total(self) -> int:
        """All of it."""
        return self.weights + self.step + self.process


@dataclass(frozen=True, slots=True)
class Budget:
    """The cache: `blocks`, the first of which belongs to nobody; `max_length` tokens fit into the others. `left`: bytes
    that nothing of it uses.
    """

    blocks: int
    block_bytes: int
    max_length: int
    left: int

    @property
    def bytes(self) -> int:
        """Of the cache."""
        return self.blocks * self.block_bytes


def share_out(
    asked: ColdGeneration, need: Need, *, bytes_per_token: int, context: int, room: Room, free: int
) -> Budget:
    """`bytes_per_token`: keys and values in all layers (of a draft, too), in the cache's element type. `context`: the
    tokens that the program was made for. `free`: what the machine could give now.

    Raises FatalError: `WillNotFit`; `LengthOutOfRange` for a length that the program was not made for.
    """
    wanted = asked.max_length
    if wanted is not None and wanted > context:
        message = f"{LENGTH_FIELD}: {wanted}, and the program was made for {context} tokens; write at most {context}"
        raise FatalError("LengthOutOfRange", message, condition="Accepted", field=LENGTH_FIELD)
    block = BLOCK_TOKENS * bytes_per_token
    least = blocks_of(wanted or min(context, BLOCK_TOKENS))
    if asked.cache_bytes is None:
        cache = min(_left(need, room, free, least * block), USUAL_SEQUENCES * blocks_of(context) * block)
    else:
        cache = parse_size(asked.cache_bytes, CACHE_FIELD)
    if need.total + cache > room.bytes:
        raise _no_room(asked, need, block=block, cache=cache, room=room)
    blocks = cache // block
    if blocks < least:
        raise _too_small(asked, need, least=least, block=block, cache=cache, room=room)
    most = (blocks - 1) * BLOCK_TOKENS
    return Budget(blocks, block, wanted or min(context, most), max(0, room.bytes - need.total - blocks * block))


def blocks_of(length: int) -> int:
    """Blocks of a cache that holds one sequence of so many tokens: block 0 belongs to nobody."""
    return -(-length // BLOCK_TOKENS) + 1


def never_fits(asked: ColdGeneration, *, weights: int, bytes_per_token: int, room: Room) -> FatalError | None:
    """What is certain before anything is loaded: not even the weights and one sequence of `maxLength` fit. None when
    they may.
    """
    cache = blocks_of(asked.max_length or BLOCK_TOKENS) * BLOCK_TOKENS * bytes_per_token
    if asked.cache_bytes is not None:
        cache = max(cache, parse_size(asked.cache_bytes, CACHE_FIELD))
    if not room.limited or weights + cache <= room.bytes:
        return None
    need = Need(weights, 0, 0)
    return _no_room(asked, need, block=BLOCK_TOKENS * bytes_per_token, cache=cache, room=room)


def _left(need: Need, room: Room, free: int, least: int) -> int:
    """Bytes for a cache of which nothing was said; of a machine without a limit not more than it can spare, unless one
    sequence needs it.
    """
    if room.limited:
        return room.bytes - need.total - _margin(room)
    spare = min(int(SHARE_OF_FREE * free), MOST_UNASKED)
    return min(room.bytes - need.total, max(spare, least))


def _margin(room: Room) -> int:
    return max(LEAST_MARGIN, int(MARGIN * room.bytes))


def _too_small(asked: ColdGeneration, need: Need, *, least: int, block: int, cache: int, room: Room) -> FatalError:
    """The cache holds no sequence of the length that is asked for."""
    if asked.cache_bytes is None:
        return _no_room(asked, need, block=block, cache=least * block, room=room)
    message = (
        f"{CACHE_FIELD}: {asked.cache_bytes} is {cache // block} blocks of {BLOCK_TOKENS} tokens, and "
        f"{_sequence(asked, block)}; {_advice(asked, f'raise {CACHE_FIELD} to {least * block} or more')}"
    )
    return FatalError("WillNotFit", message, condition="Accepted", field=CACHE_FIELD)


def _no_room(asked: ColdGeneration, need: Need, *, block: int, cache: int, room: Room) -> FatalError:
    """The memory has no room for the cache."""
    field = MEMORY_FIELD if asked.max_length is None and asked.cache_bytes is None else _named(asked)
    margin = _margin(room) if room.limited and asked.cache_bytes is None and need.process else 0
    others = [("weights", need.weights), ("one step", need.step), ("the process itself", need.process)]
    parts = [f"{what} {readable(size)}" for what, size in (*others, ("a margin", margin)) if size]
    total = need.total + cache + margin
    message = (
        f"{field}: {_sequence(asked, block)}; a cache of {readable(cache)} and {', '.join(parts)} are "
        f"{readable(total)}, and {room.whose} is {readable(room.bytes)}; {_advice(asked, f'raise {MEMORY_FIELD}')}"
    )
    return FatalError("WillNotFit", message, condition="Accepted", field=field)


def _sequence(asked: ColdGeneration, block: int) -> str:
    length = asked.max_length or BLOCK_TOKENS
    return (
        f"a sequence of {length} tokens needs {blocks_of(length)} blocks of {readable(block)} "
        f"({block // BLOCK_TOKENS} bytes a token; one block belongs to nobody)"
    )


def _named(asked: ColdGeneration) -> str:
    return LENGTH_FIELD if asked.cache_bytes is None else CACHE_FIELD


def _advice(asked: ColdGeneration, first: str) -> str:
    ways = [first]
    if asked.max_length is not None:
        ways.append(f"lower {LENGTH_FIELD}")
    if asked.cache_bytes is not None and CACHE_FIELD not in first:
        ways.append(f"lower {CACHE_FIELD}")
    if asked.cache_type is not CacheType.BFLOAT16:
        ways.append("write cacheType: BFloat16, which halves the cache")
    return ", or ".join(ways)
