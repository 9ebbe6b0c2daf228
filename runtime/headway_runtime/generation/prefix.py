"""What a full block is known by: a hash of its tokens and of all before them. Pure.

Keys and values of a token depend on every token before it, so a block may stand for another only if both sequences are
equal from their first token on. The hash is cryptographic: who could make two prompts collide would read another
client's answers (with Python's `hash`, or xxHash, that takes minutes).
"""

from array import array
from collections.abc import Iterator
from hashlib import blake2b

from headway_runtime.prepare.decoder import BLOCK_TOKENS

DIGEST_BYTES = 32


def chain(previous: bytes, tokens: "array[int]", first: int) -> Iterator[bytes]:
    """Keys of all full blocks of `tokens` (int64) from block `first` on; `previous` is the key of the one before.

    Before the first block it is a salt: sequences with different ones have no block in common.
    """
    view = memoryview(tokens)
    for begin in range(first * BLOCK_TOKENS, len(tokens) - BLOCK_TOKENS + 1, BLOCK_TOKENS):
        digest = blake2b(previous, digest_size=DIGEST_BYTES)
        digest.update(view[begin : begin + BLOCK_TOKENS])
        previous = digest.digest()
        yield previous
