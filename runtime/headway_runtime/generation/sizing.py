"""How much memory keys and values take, and how many sequences fit: arithmetic. Pure.

A token of a sequence takes 2 x layers x key heads x head size x bytes of an element, for as long as the sequence runs.
"""

from collections.abc import Sequence

from headway_runtime.prepare.decoder import BLOCK_TOKENS, DecoderGeometry, LayerGeometry

ROUND_TO = 256  # tokens: what `maxLength` is suggested in
MARGIN = 1.25
CUT_SHORT = 0.01  # of the sequences: when as many end at `maxLength`, it is too short


def uniform(*, layers: int, heads: int, kv_heads: int, head_dim: int, vocabulary: int) -> DecoderGeometry:
    """A decoder whose layers are all alike, as most published ones are."""
    shape = [LayerGeometry(number, heads, kv_heads, head_dim, 0) for number in range(layers)]
    return DecoderGeometry(tuple(shape), vocabulary)


def sequence_bytes(geometry: DecoderGeometry, tokens: int, element_bytes: int) -> int:
    """Keys and values of one sequence, whole blocks."""
    return -(-tokens // BLOCK_TOKENS) * BLOCK_TOKENS * geometry.bytes_per_token(element_bytes)


def blocks_in(cache_bytes: int, geometry: DecoderGeometry, element_bytes: int) -> int:
    """Blocks of a cache of so many bytes, the one that belongs to nobody among them."""
    return cache_bytes // (BLOCK_TOKENS * geometry.bytes_per_token(element_bytes))


def sequences_in(blocks: int, tokens: int) -> int:
    """Sequences of so many tokens that fit at the same time into so many blocks, which can all be used."""
    return blocks // -(-tokens // BLOCK_TOKENS)


def total_bytes(parameters: int, weight_bytes: int, cache_bytes: int) -> int:
    """Weights, with so many bytes each, and cache."""
    return parameters * weight_bytes + cache_bytes


def static_slot_use(answers: Sequence[int], slots: int) -> float:
    """Share of the slots' steps in which a token is made, when each batch of `slots` answers (of these lengths, in
    this order) runs until its longest is complete.
    """
    batches = [answers[begin : begin + slots] for begin in range(0, len(answers), slots)]
    return sum(answers) / (slots * sum(max(batch) for batch in batches))


def continuous_slot_use(answers: Sequence[int], slots: int) -> float:
    """The same when the next answer begins as soon as a slot is free."""
    ends = [0] * slots
    for length in answers:
        first = min(range(slots), key=ends.__getitem__)
        ends[first] += length
    return sum(answers) / (slots * max(ends))


def suggested_max_length(lengths: Sequence[int], *, max_length: int, context: int) -> int | None:
    """`maxLength` by the lengths of sequences seen lately, ascending. None: it is good as it is.

    Too many that end there: twice as much, as far as the model was made for it. Far more than was ever used: what was,
    and a quarter more, because a bound that nobody needs lets one request push out all others.
    """
    cut_short = sum(length >= max_length for length in lengths)
    if cut_short >= CUT_SHORT * len(lengths):
        return min(context, 2 * max_length) if max_length < context else None
    enough = -int(-MARGIN * lengths[-1] // ROUND_TO) * ROUND_TO
    return enough if 2 * enough <= max_length else None
