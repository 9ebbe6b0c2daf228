"""Calls on which torch itself ends the process: through our resolver they raise. Each runs in a forked child, to be
sure.
"""

from typing import Any

import pytest
import torch
from headway_runtime.prepare.errors import Refusal
from headway_runtime.prepare.translate import preconditions
from headway_runtime.program import functions
from headway_runtime.program.guarded_bags import OperatorArgumentError

from tests.hostile.forked import fate
from tests.hostile.fuzz_arguments import Guarded

X = torch.randn(2, 3, 4, 4)
LEAST, LEAST_32 = torch.tensor([-(2**63)]), torch.tensor([-(2**31)], dtype=torch.int32)
LSTM, GRU = [(16, 3), (16, 4), (16,), (16,)], [(12, 3), (12, 4), (12,), (12,)]


def zeros(*shape: int) -> torch.Tensor:
    return torch.zeros(shape)


def recurrent(
    kind: str, shapes: list[tuple[int, ...]], *, features: int = 3, hidden: int = 4, rows: int = 2
) -> list[Any]:
    state = zeros(1, rows, hidden)
    params = [torch.randn(s) for s in shapes]
    return [
        zeros(5, 2, features),
        [state, state] if kind == "lstm" else state,
        params,
        True,
        1,
        0.0,
        False,
        False,
        False,
    ]


CRASHES: dict[str, tuple[str, list[Any], dict[str, Any]]] = {
    "statistics of too few channels": (
        "aten._native_batch_norm_legit_no_training.default",
        [X, zeros(3), zeros(3), zeros(1), zeros(0), 0.1, 1e-5],
        {},
    ),
    "a weight of too few channels": (
        "aten._native_batch_norm_legit_no_training.default",
        [X, zeros(1), None, zeros(3), zeros(3), 0.1, 1e-5],
        {},
    ),
    "the least integer by -1": ("aten.div.Tensor_mode", [LEAST, torch.tensor([-1])], {"rounding_mode": "trunc"}),
    "the least integer by the number -1": ("aten.div.Scalar_mode", [LEAST, -1], {"rounding_mode": "trunc"}),
    "the least integer in place": (
        "aten.div_.Tensor_mode",
        [LEAST_32.clone(), LEAST_32 * 0 - 1],
        {"rounding_mode": "trunc"},
    ),
    **{
        f"an interpolation by {scale}": (
            "aten.upsample_nearest1d.default",
            [torch.ones(2, 3, 3, dtype=torch.uint8), [3]],
            {"scales": scale},
        )
        for scale in (1e-30, -1.0, float("nan"), float("inf"))
    },
    "an interpolation by a list of scales": (
        "aten.upsample_nearest2d.vec",
        [X, None, [2.0, 1e-30]],
        {},
    ),
    "a smoothed interpolation by another scale than its sizes": (
        "aten._upsample_bicubic2d_aa.default",
        [X, [7, 7], False, 1.0, None],
        {},
    ),
    "a loss against a target of another shape": ("aten.binary_cross_entropy.default", [zeros(1), zeros(0, 4)], {}),
    "lstm with short weights": ("aten.lstm.input", recurrent("lstm", [(16, 3), (7,), (16,), (7,)]), {}),
    "lstm with another input": ("aten.lstm.input", recurrent("lstm", LSTM, features=7), {}),
    "lstm with another state": ("aten.lstm.input", recurrent("lstm", LSTM, hidden=9), {}),
    "lstm with another number of rows": ("aten.lstm.input", recurrent("lstm", LSTM, rows=1), {}),
    "gru with short weights": ("aten.gru.input", recurrent("gru", [(12, 3), (12, 4), (7,), (12,)]), {}),
}


TABLE, WORDS = torch.randn(40, 8), torch.arange(12)
for _padding in ({}, {"padding_idx": 3}):
    for _ends, _offsets in ((False, []), (True, [0])):
        _bags = [TABLE, WORDS, torch.tensor(_offsets, dtype=torch.int64), False, 2, False, None, _ends]
        CRASHES[f"indices in no bag, {_ends} {_padding}"] = ("aten._embedding_bag.default", _bags, _padding)


@pytest.mark.parametrize("name", sorted(CRASHES))
def test_a_call_that_would_end_the_process_raises(name: str) -> None:
    operator, args, kwargs = CRASHES[name]
    assert fate(lambda: functions.resolve(operator)(*args, **kwargs)) == "raised"


def test_the_same_operators_still_compute() -> None:
    divide = functions.resolve("aten.div.Tensor_mode")
    assert divide(torch.tensor([-7, 8]), torch.tensor([2, -1]), rounding_mode="trunc").tolist() == [-3, -8]
    norm = functions.resolve("aten._native_batch_norm_legit_no_training.default")
    mean, variance = torch.randn(3), torch.rand(3) + 1
    expected = torch.nn.functional.batch_norm(X, mean, variance, None, None, False, 0.1, 1e-5)
    assert torch.equal(norm(X, None, None, mean, variance, 0.1, 1e-5)[0], expected)
    assert functions.resolve("aten.lstm.input")(*recurrent("lstm", LSTM))[0].shape == (5, 2, 4)
    assert functions.resolve("aten.gru.input")(*recurrent("gru", GRU))[0].shape == (5, 2, 4)


@pytest.mark.parametrize("name", ["aten.median.dim", "aten.nanmedian.dim"])
def test_a_median_of_an_expanded_tensor_stays_inside_of_it(name: str) -> None:
    memory = Guarded()

    def medians() -> None:
        for size in range(1, 9):
            x = memory.copy(torch.ones(1, size), at_end=True).expand(5, size)
            functions.resolve(name)(x, 0)
            functions.resolve(name)(x.t(), 1)

    assert fate(medians) == "returned"


@pytest.mark.parametrize("name", ["aten._embedding_bag.default", "aten.embedding_bag.padding_idx"])
def test_no_bags_of_no_indices_are_an_answer(name: str) -> None:
    none = torch.zeros(0, dtype=torch.int64)
    found = functions.resolve(name)(TABLE, none, none, False, 0, False, None, False, 3)
    assert found[0].shape == (0, 8)


def test_bags_with_offsets_that_are_expanded_are_those_of_a_copy() -> None:
    memory = Guarded()
    offsets = memory.copy(torch.zeros(1, dtype=torch.int64), at_end=True).expand(3)

    def bags() -> None:
        bag = functions.resolve("aten._embedding_bag.default")
        assert torch.equal(bag(TABLE, WORDS, offsets)[0], bag(TABLE, WORDS, offsets.clone())[0])

    assert fate(bags) == "returned"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_attention_to_more_values_than_keys_raises_instead_of_reading_behind_the_keys(dtype: torch.dtype) -> None:
    attention = functions.resolve("aten.scaled_dot_product_attention.default")
    q, k, v = torch.randn(1, 2, 4, 8, dtype=dtype), torch.randn(1, 2, 3, 8, dtype=dtype), torch.eye(64, dtype=dtype)
    with pytest.raises(OperatorArgumentError, match="3 keys to 64 values"):
        attention(q, k, v.expand(1, 2, 64, 64))
    with pytest.raises(OperatorArgumentError, match="3 keys to 64 values"):
        attention(q[0], k[0], v.expand(2, 64, 64), None, 0.0, True)
    assert attention(q, k, v[:3].expand(1, 2, 3, 64)).shape == (1, 2, 4, 64)
    assert attention(q, k, v[:3].expand(1, 1, 3, 64)).shape == (1, 2, 4, 64)


@pytest.mark.parametrize("power", [-(2**63), 2**40, {"v": "v0"}])
def test_a_matrix_power_that_never_ends_is_refused(power: object) -> None:
    with pytest.raises(Refusal, match=r"operator\.value"):
        preconditions.check("aten.linalg_matrix_power.default", {"self": {"v": "i0"}, "n": power})
