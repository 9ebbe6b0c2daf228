"""What a sequence holds of the pool: it grows, is found again, gives up. Pure."""

from collections.abc import Iterable

from headway_runtime.generation.blocks import BlockPool
from headway_runtime.generation.sequence import Sequence, blocks_for
from headway_runtime.prepare.decoder import BLOCK_TOKENS


def grow(pool: BlockPool, sequence: Sequence, upto: int) -> int:
    """Take blocks for the tokens before `upto`, as far as there are any; returns before which token they end."""
    for _ in range(blocks_for(upto) - len(sequence.blocks)):
        if not pool.available:
            break
        sequence.blocks.append(pool.take())
    return min(upto, len(sequence.blocks) * BLOCK_TOKENS)


def found(pool: BlockPool, sequence: Sequence) -> list[int]:
    """Blocks in the pool that hold the beginning of a sequence."""
    blocks = []
    for number in range(sequence.reusable):
        block = pool.find(sequence.key(number))
        if block is None:
            break
        blocks.append(block)
    return blocks


def reuse(pool: BlockPool, sequence: Sequence) -> None:
    """Share what is found: it need not be computed again."""
    blocks = found(pool, sequence)
    for block in blocks:
        pool.share(block)
    sequence.blocks.extend(blocks)
    sequence.sealed = len(blocks)
    sequence.computed = len(blocks) * BLOCK_TOKENS


def seal(pool: BlockPool, sequence: Sequence) -> None:
    """Let what is full be found. What is not computed, or was refused, lies behind it."""
    for number in range(sequence.sealed, sequence.computed // BLOCK_TOKENS):
        sequence.blocks[number] = pool.seal(sequence.blocks[number], sequence.key(number))
        sequence.sealed += 1


def give_up(pool: BlockPool, sequence: Sequence) -> None:
    """Release all blocks, the last one first: the beginning is to be found for longest."""
    for block in reversed(sequence.blocks):
        pool.release(block)
    del sequence.blocks[:]
    sequence.computed = sequence.sealed = 0


def committed(running: Iterable[Sequence]) -> int:
    """Blocks that those who run will still take for what they have to run."""
    return sum(
        [
            max(0, blocks_for(len(sequence.tokens)) - len(sequence.blocks))
            for sequence in running
            if sequence.pending > 1
        ]
    )
