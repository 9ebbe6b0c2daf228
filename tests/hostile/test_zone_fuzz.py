"""Operators read and write their own tensors only: known cases, and a short search. The long one is
``python -m tests.hostile.fuzz_zones``.
"""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from headway_runtime.program import functions

from tests.hostile import fuzz_zones, zoo
from tests.hostile.fuzz_zones import Altered, Change

SECONDS = 8.0

HEADS = torch.randn(1, 2, 7, 8)
TABLE, WORDS = torch.randn(40, 8), torch.arange(12)
BYTES = torch.arange(40, dtype=torch.uint8).reshape(1, 2, 4, 5)
ROWS = torch.randn(3)


def case(name: str, *args: Any, changes: tuple[tuple[int, Change], ...]) -> Altered:
    return (f"aten.{name}", args, {}), changes


KNOWN: dict[str, Altered] = {
    "fewer keys than values": case(
        "scaled_dot_product_attention.default", HEADS, HEADS, HEADS, changes=((1, ("size", 2, 1)),)
    ),
    "expanded offsets": case(
        "_embedding_bag.default", TABLE, WORDS, torch.tensor([0, 3, 7]), changes=((2, ("expanded", 0)),)
    ),
    "an expanded direction": case(
        "_weight_norm_interface.default", ROWS, ROWS.abs(), 0, changes=((0, ("expanded", 0)),)
    ),
    "expanded lengths": case("_weight_norm_interface.default", ROWS, ROWS.abs(), 0, changes=((1, ("expanded", 0)),)),
    **{
        f"a column of bytes through {name}": case(
            name, BYTES[..., :1], [3, 3], False, None, None, changes=((0, ("transposed",)),)
        )
        for name in ("upsample_bilinear2d.default", "_upsample_bilinear2d_aa.default", "_upsample_bicubic2d_aa.default")
    },
}


@pytest.mark.parametrize("name", sorted(KNOWN))
def test_an_operator_that_left_its_tensors_does_so_no_more(name: str) -> None:
    assert fuzz_zones.code(KNOWN[name]) == 0


def test_the_zones_show_what_an_operator_reads_without_its_guard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(functions, "resolve", functions.torch_operator)
    assert len(list(fuzz_zones.fuzz(list(KNOWN.values())))) == len(KNOWN)


@pytest.mark.parametrize("program", ["decoder", "bag_last_offset", "clicks_decomposed"])
def test_the_calls_of_a_program_stay_within_their_tensors(program: str, exported: Callable[[str], Path]) -> None:
    inputs = zoo.PROGRAMS[program].args, dict(zoo.PROGRAMS[program].kwargs)
    calls = fuzz_zones.calls_of(exported(program), inputs)
    several = [call for call in calls if len(fuzz_zones.tensors((call[1], call[2]))) > 1]
    rng = random.Random(program)
    cases = [altered for call in several for altered in fuzz_zones.alterations(call, rng)]
    rng.shuffle(cases)
    assert len(cases) > 50
    assert list(fuzz_zones.fuzz(cases, budget=SECONDS)) == []
