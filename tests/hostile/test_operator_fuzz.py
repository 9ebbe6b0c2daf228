"""Every operator on the list, called with hostile arguments: it may raise, and does not end the process.

This is a sample of what ``python -m tests.hostile.fuzz_operators`` does.
"""

import random

import pytest
import torch
from headway_runtime.prepare.translate import operators
from headway_runtime.program import functions

from tests.hostile import fuzz_arguments, fuzz_operators
from tests.hostile.forked import Forked

BUDGET = 15.0
"""CPU seconds."""
SUSPECTS = ("embedding_bag", "lstm", "gru", "rnn_", "upsample", "as_strided", "_fft_", "median", "index_put", "scatter")
"""Where memory is read or written at places that arguments name."""


def test_no_operator_dies_of_hostile_arguments() -> None:
    names = sorted(operators.names())
    random.Random(1).shuffle(names)  # within the budget, not always the same ones
    assert [str(f) for f in fuzz_operators.fuzz(names, calls=10, seed=11, budget=BUDGET, twice=True)] == []


def test_operators_that_name_places_in_memory_do_not_die_of_hostile_arguments() -> None:
    names = sorted(n for n in operators.names() if any(s in n for s in SUSPECTS))
    assert [str(f) for f in fuzz_operators.fuzz(names, calls=60, seed=12, budget=BUDGET)] == []


@pytest.mark.parametrize("beyond", [4, -1])
def test_a_read_beyond_a_guarded_tensor_ends_the_child(beyond: int) -> None:
    """What makes the two tests above see a read of one element too far."""

    def work(number: int) -> int:
        guarded = fuzz_arguments.Guarded().copy(torch.ones(4, dtype=torch.uint8), at_end=beyond > 0)
        fuzz_arguments.ctypes.string_at(guarded.data_ptr() + beyond, 1)
        return 0

    assert [d.fate for d in Forked(1, work, seconds=2, memory=1 << 40).run()] == ["SIGSEGV"]


def test_a_result_of_memory_that_was_never_set_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(functions, "resolve", lambda name: lambda *args, **named: torch.empty(16))
    found = list(fuzz_operators.fuzz(["aten.relu.default"], calls=3, seed=1, twice=True))
    assert [f.fate for f in found] == ["a result of memory that was never set"]


def test_a_result_in_the_memory_of_an_argument_is_seen() -> None:
    x = torch.ones(3)
    assert fuzz_operators.shares_unsaid("aten.add.Tensor", {"self": x}, x[1:])
    assert not fuzz_operators.shares_unsaid("aten.add.Tensor", {"self": x}, x + 1)
    assert not fuzz_operators.shares_unsaid("aten.view.default", {"self": x}, x.view(3, 1))


@pytest.mark.parametrize("name", ["aten.as_strided.default", "aten.as_strided_scatter.default"])
@pytest.mark.parametrize(
    ("size", "stride", "offset"),
    [([5], [1], 0), ([4], [1], 1), ([2], [4], 0), ([1], [1], 4), ([2], [2**31], 0), ([4], [1], -1), ([2], [-1], 1)],
)
def test_a_view_never_reaches_outside_of_its_storage(
    name: str, size: list[int], stride: list[int], offset: int
) -> None:
    x = torch.ones(4)
    given = (
        [x, size, stride, offset] if name == "aten.as_strided.default" else [x, torch.ones(size), size, stride, offset]
    )
    with torch.inference_mode(), pytest.raises(RuntimeError):
        functions.resolve(name)(*given)
