"""Packed weights, at every level that this processor has: how near they are to the truth, and how steady."""

from collections.abc import Iterator

import pytest
import torch
from headway_api.types import Precision
from headway_runtime.kernels import linear
from headway_runtime.kernels.linear import pack_with
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.kernel_levels import LEVELS, error, library, same_bits

FLOAT_BOUND = 1e-5
"""Of float32; measured: below 1e-6."""
BFLOAT16_BOUND = 0.012
"""Weights and x are each within 2**-9 of what they were; sums of random signs stay far below the worst case."""
INT8_BOUND = 0.03
"""A byte is within half of 1/127 of the greatest of its 64, in weights and x; measured over random rows: 0.012."""
EMULATION_BOUND = 2e-5
"""Between native code and plain torch with the same bytes: only sums of groups are rounded differently."""
ANY = [None, *LEVELS]


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def packed(level: int | None, weight: torch.Tensor, precision: Precision, threads: int = 1) -> linear.Packed:
    """None: plain torch."""
    return pack_with(None if level is None else library(level, threads), weight, precision)


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


rows = st.one_of(st.integers(1, 20), st.sampled_from([31, 64, 95, 96, 97, 200]))
widths = st.one_of(st.integers(1, 70), st.sampled_from([127, 128, 130, 192, 576, 1025, 2100]))


@settings(max_examples=60, deadline=None)
@given(m=rows, n=widths, k=widths, biased=st.booleans(), seed=st.integers(0, 1000))
@pytest.mark.parametrize("level", LEVELS)
def test_float32_is_as_exact_as_float32_is(level: int, m: int, n: int, k: int, biased: bool, seed: int) -> None:
    x, weight, bias = normal(m, k, seed=seed), normal(n, k, seed=seed + 1), normal(n, seed=seed + 2)
    answer = packed(level, weight, Precision.EXPORTED)(x, bias if biased else None)
    expected = x.double() @ weight.double().T + (bias.double() if biased else 0)
    scale = (x.double().abs() @ weight.double().abs().T).max() + bias.abs().max()
    assert float((answer - expected).abs().max() / scale) < FLOAT_BOUND


@settings(max_examples=60, deadline=None)
@given(m=rows, n=widths, k=widths, biased=st.booleans(), seed=st.integers(0, 1000))
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("precision", [Precision.BFLOAT16, Precision.INT8])
def test_native_code_is_a_fast_form_of_plain_torch(
    level: int, precision: Precision, m: int, n: int, k: int, biased: bool, seed: int
) -> None:
    x, weight, bias = normal(m, k, seed=seed), normal(n, k, seed=seed + 1), normal(n, seed=seed + 2)
    given_bias = bias if biased else None
    answer, plain = (packed(each, weight, precision)(x, given_bias) for each in (level, None))
    scale = (x.double().abs() @ weight.double().abs().T).max() + bias.abs().max()
    assert float((answer - plain).abs().max() / scale) < EMULATION_BOUND


@pytest.mark.parametrize("level", ANY)
@pytest.mark.parametrize(("precision", "bound"), [(Precision.BFLOAT16, BFLOAT16_BOUND), (Precision.INT8, INT8_BOUND)])
@pytest.mark.parametrize("shape", [(1, 576, 576), (5, 100, 1536), (16, 64, 2048), (3, 7, 33)])
def test_lower_precisions_stay_near_the_truth(
    level: int | None, precision: Precision, bound: float, shape: tuple[int, int, int]
) -> None:
    m, n, k = shape
    x, weight = normal(m, k), normal(n, k, seed=1)
    x[:, 0] *= 20  # one of 64 is large; the others keep their own scales
    expected = x.double() @ weight.double().T
    answer = packed(level, weight, precision)(x)
    assert float((answer - expected).norm() / expected.norm()) < bound


@pytest.mark.parametrize("level", LEVELS)
def test_bytes_are_multiplied_exactly(level: int) -> None:
    """Whole numbers within 127, with 127 in each group: nothing is rounded anywhere, the greatest sums included."""
    k = 512
    x = torch.full((3, k), 127.0)
    weight = torch.full((70, k), 127.0)
    weight[1::2] = -127.0
    weight[:, 1::3] = 64.0
    x[1, 1::2] = -127.0
    answer = packed(level, weight, Precision.INT8)(x)
    assert torch.equal(answer, (x.double() @ weight.double().T).float())


@settings(max_examples=40, deadline=None)
@given(m=st.integers(2, 40), n=widths, k=widths, threads=st.sampled_from([1, 2, 3]), data=st.data())
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("precision", list(Precision))
def test_a_row_has_the_same_bits_whatever_is_beside_it(
    level: int, precision: Precision, m: int, n: int, k: int, threads: int, data: st.DataObject
) -> None:
    x, weight = normal(m, k), normal(n, k, seed=1)
    together = packed(level, weight, precision)(x)
    first = data.draw(st.integers(0, m - 1))
    last = data.draw(st.integers(first + 1, m))
    assert same_bits(packed(level, weight, precision, threads)(x[first:last]), together[first:last])


@settings(max_examples=40, deadline=None)
@given(
    lengths=st.lists(st.integers(0, 130), min_size=1, max_size=9),
    more=st.integers(0, 3),
    n=widths,
    k=widths,
    threads=st.sampled_from([1, 2]),
)
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("precision", list(Precision))
def test_rows_that_are_multiplied_have_the_bits_of_all_together_and_the_others_are_nought(
    level: int, precision: Precision, lengths: list[int], more: int, n: int, k: int, threads: int
) -> None:
    size = max(lengths) + more
    x, weight, bias = normal(len(lengths), size, k), normal(n, k, seed=1), normal(n, seed=2)
    product = packed(level, weight, precision, threads)
    every, some = product(x, bias), product(x, bias, torch.tensor(lengths))
    for row, length in enumerate(lengths):
        assert same_bits(some[row, :length], every[row, :length])
        assert not bool(some[row, length:].any())


def test_what_is_left_out_may_hold_anything() -> None:
    x = normal(2, 4, 64)
    x[0, 2:] = float("nan")
    y = packed(None if not LEVELS else LEVELS[-1], normal(64, 64), Precision.EXPORTED)(x, None, torch.tensor([2, 4]))
    assert bool(y.isfinite().all())


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(
    "lengths",
    [
        torch.tensor([1, 2, 3]),
        torch.tensor([1, 5]),
        torch.tensor([-1, 2]),
        torch.tensor([[1], [2]]),
        torch.tensor([1, 2], dtype=torch.int32),
        torch.tensor([1, 9, 2, 9])[::2],
        torch.empty(0, dtype=torch.int64),
    ],
    ids=["three rows", "too long", "negative", "two axes", "other type", "not side by side", "none"],
)
def test_lengths_that_are_not_those_of_x_are_refused(level: int, lengths: torch.Tensor) -> None:
    with pytest.raises(RuntimeError, match="lengths"):
        packed(level, normal(64, 64), Precision.EXPORTED)(normal(2, 4, 64), None, lengths)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("precision", list(Precision))
def test_threads_change_nothing(level: int, precision: Precision) -> None:
    x, weight = normal(9, 576), normal(3000, 576, seed=1)
    one, two = (packed(level, weight, precision, threads)(x) for threads in (1, 2))
    assert same_bits(one, two)


@pytest.mark.parametrize("level", ANY)
@pytest.mark.parametrize("precision", list(Precision))
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_a_row_that_is_not_finite_shows_it(level: int | None, precision: Precision, bad: float) -> None:
    x = normal(3, 130)
    x[1, 129] = bad
    answer = packed(level, normal(5, 130, seed=1), precision)(x)
    assert not answer[1].isfinite().any()
    assert answer[[0, 2]].isfinite().all()


@pytest.mark.parametrize("level", ANY)
@pytest.mark.parametrize("precision", list(Precision))
def test_zeros_and_specks_are_no_trouble(level: int | None, precision: Precision) -> None:
    weight = torch.zeros(4, 70)
    weight[1] = 1e-38
    weight[2] = 3.0
    x = torch.zeros(2, 70)
    x[1] = 1e-35
    answer = packed(level, weight, precision)(x)
    assert answer.isfinite().all()
    assert float(answer.abs().max()) < 1e-30


@pytest.mark.parametrize("level", ANY)
def test_leading_axes_strides_and_types_are_the_callers(level: int | None) -> None:
    weight, bias = normal(6, 32), normal(6, seed=1)
    multiply = packed(level, weight, Precision.EXPORTED)
    x = normal(2, 32, 3).transpose(1, 2)
    assert error(multiply(x, bias), torch.nn.functional.linear(x, weight, bias)) < 1e-5
    assert multiply(normal(32)).shape == (6,)
    assert multiply(torch.empty(0, 32)).shape == (0, 6)
    half = multiply(x.bfloat16(), bias.bfloat16())
    assert half.dtype == torch.bfloat16
    assert error(half, torch.nn.functional.linear(x, weight, bias)) < 0.05


@pytest.mark.parametrize("level", ANY)
def test_a_view_that_negates_its_memory_is_read_as_what_it_says(level: int | None) -> None:
    """As the imaginary part of a conjugate is."""
    multiply = packed(level, normal(6, 32), Precision.EXPORTED)
    x, bias = (torch._neg_view(normal(*shape)) for shape in ((3, 32), (6,)))
    assert x.is_neg()
    assert torch.equal(multiply(x), multiply(x.clone()))
    assert torch.equal(multiply(x, bias), multiply(x, bias.clone()))


@pytest.mark.parametrize("level", ANY)
def test_weights_exported_in_bfloat16_stay_so(level: int | None) -> None:
    weight = normal(128, 64).bfloat16()
    multiply = packed(level, weight, Precision.EXPORTED)
    x = normal(3, 64, seed=1).bfloat16()
    assert multiply.bytes == 128 * 64 * 2
    assert error(multiply(x.float()), x.double() @ weight.double().T) < 1e-5


def test_bytes_are_counted() -> None:
    weight = normal(128, 128)
    assert packed(LEVELS[0], weight, Precision.EXPORTED).bytes == 128 * 128 * 4
    assert packed(LEVELS[0], weight, Precision.BFLOAT16).bytes == 128 * 128 * 2
    assert packed(LEVELS[0], weight, Precision.INT8).bytes == 128 * 128 + 128 * 2 * 2  # a scale for each 64


@pytest.mark.parametrize("precision", list(Precision))
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("shape", [(1, 1), (1, 300), (300, 1), (65, 65), (2, 70_000)])
def test_what_a_weight_will_take_is_known_before(
    shape: tuple[int, int], dtype: torch.dtype, precision: Precision
) -> None:
    """One output, or one input, takes many times of what the file has."""
    assert linear.bytes_of(*shape, dtype, precision) == linear.pack(normal(*shape).to(dtype), precision).bytes


@pytest.mark.parametrize("level", ANY)
@pytest.mark.parametrize("precision", list(Precision))
def test_other_shapes_are_refused(level: int | None, precision: Precision) -> None:
    multiply = packed(level, normal(6, 32), precision)
    with pytest.raises(RuntimeError, match="32"):
        multiply(normal(2, 31))
    with pytest.raises(RuntimeError):
        multiply(normal(2, 32), normal(5))
    with pytest.raises(RuntimeError):
        multiply(torch.tensor(1.0))
    with pytest.raises(RuntimeError):
        multiply(torch.empty(2, 32, device="meta"))


def test_weights_that_cannot_be_packed_are_refused() -> None:
    for weight in (normal(3), torch.ones(2, 2, dtype=torch.int8), torch.empty(0, 4)):
        with pytest.raises(RuntimeError, match="floating"):
            linear.pack(weight, Precision.EXPORTED)
    weight = normal(4, 4)
    weight[1, 1] = float("inf")
    with pytest.raises(RuntimeError, match="not finite"):
        linear.pack(weight, Precision.INT8)


def test_a_row_too_long_for_the_kernels_is_computed_all_the_same() -> None:
    weight = normal(2, 70_000)
    x = normal(1, 70_000, seed=1)
    assert error(linear.pack(weight, Precision.EXPORTED)(x), x.double() @ weight.double().T) < 1e-4
