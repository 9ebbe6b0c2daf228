"""The tensors of a step, as `prepare.decoder` says they are."""

from array import array

import torch
from headway_runtime.generation.assembly import Assembly, Part
from headway_runtime.prepare.decoder import INPUTS


def test_parts_are_joined_without_padding() -> None:
    tokens = array("q", range(100, 140))
    joined = Assembly().join(
        [
            Part(tokens, array("i", [7, 3, 9]), 30, 5, 1),  # the rest of a prompt, to go on from its last token
            Part(array("q", [1, 2, 3]), array("i", [4, 8]), 2, 1, 3, (50, 51)),  # an answer and two drafts
            Part(tokens, array("i", [5]), 0, 4, 0),  # a part of a prompt
            Part(tokens, array("i", [6, 2]), 14, 4, 4),  # one whose logits are all wanted
        ]
    )
    assert joined.token_ids.tolist() == [130, 131, 132, 133, 134, 3, 50, 51, 100, 101, 102, 103, 114, 115, 116, 117]
    assert joined.positions.tolist() == [30, 31, 32, 33, 34, 2, 3, 4, 0, 1, 2, 3, 14, 15, 16, 17]
    assert joined.slot_mapping.tolist()[:5] == [3 * 16 + 14, 3 * 16 + 15, 9 * 16, 9 * 16 + 1, 9 * 16 + 2]
    assert joined.slot_mapping.tolist()[5:12] == [4 * 16 + n for n in (2, 3, 4)] + [5 * 16 + n for n in range(4)]
    assert joined.slot_mapping.tolist()[12:] == [6 * 16 + 14, 6 * 16 + 15, 2 * 16, 2 * 16 + 1]
    assert joined.block_tables.tolist() == [[7, 3, 9], [4, 0, 0], [5, 0, 0], [6, 2, 0]]  # 8 is not needed yet
    assert joined.seq_lens.tolist() == [35, 5, 4, 18]
    assert joined.query_start_loc.tolist() == [0, 5, 8, 12, 16]
    assert joined.logits_idx.tolist() == [4, 5, 6, 7, 12, 13, 14, 15]
    for (name, dtype, _), tensor in zip(INPUTS, joined, strict=True):
        assert tensor.dtype is getattr(torch, dtype), name
        assert tensor.is_contiguous(), name


def test_a_step_that_wants_no_logits_asks_for_one_row() -> None:
    assembly = Assembly()
    part = Part(array("q", range(40)), array("i", [1, 2, 3]), 0, 40, 0)
    assert assembly.join([part]).logits_idx.tolist() == [0]
    assert assembly.join([part, part._replace(wanted=1)]).logits_idx.tolist() == [79]
