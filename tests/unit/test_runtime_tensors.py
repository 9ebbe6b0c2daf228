"""Tensors in JSON: what is read, what is refused, and that nothing is read or written wrongly."""

import json
import tracemalloc
from typing import Any

import numpy as np
import orjson
import pytest
from headway_runtime.errors import InvalidRequestError
from headway_runtime.protocols.tensors import NUMPY, decode, encode
from hypothesis import given
from hypothesis import strategies as st

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=2), inner, max_size=2),
    max_leaves=12,
)


@pytest.mark.parametrize(
    ("datatype", "shape", "data", "expected"),
    [
        ("FP32", [2, 2], [1, 2.5, 3, 4], [[1, 2.5], [3, 4]]),
        ("FP32", [2, 2], [[1, 2.5], [3, 4]], [[1, 2.5], [3, 4]]),
        ("INT64", [2], [2**63 - 1, -(2**63)], [2**63 - 1, -(2**63)]),
        ("UINT64", [1], [2**64 - 1], [2**64 - 1]),
        ("INT8", [2], [-128, 127], [-128, 127]),
        ("BOOL", [2], [True, False], [True, False]),
        ("FP64", [3], ["NaN", "-Infinity", 0.1], [float("nan"), float("-inf"), 0.1]),
        ("FP64", [1], [2**70], [float(2**70)]),
        ("INT32", [0, 3], [], np.zeros((0, 3))),
        ("FP32", [], [1.5], 1.5),
    ],
)
@pytest.mark.parametrize("fast", [False, True])
def test_data_is_read_flat_or_nested(
    datatype: str, shape: list[int], data: list[Any], expected: object, fast: bool
) -> None:
    array = decode("x", datatype, shape, data, numbers_only=fast and datatype != "BOOL")
    assert (array.dtype, array.shape) == (NUMPY[datatype], tuple(shape))
    np.testing.assert_array_equal(array, np.array(expected, dtype=NUMPY[datatype]).reshape(shape))


@pytest.mark.parametrize(
    ("datatype", "data", "says"),
    [
        ("INT8", [128], "outside INT8, -128 to 127"),
        ("UINT8", [-1], "outside UINT8, 0 to 255"),
        ("INT64", [2**63], "outside INT64"),
        ("INT64", [2**70], "outside INT64"),
        ("INT64", [1.0], "whole numbers"),
        ("INT64", [True], "whole numbers"),
        ("FP32", [1e39], "outside FP32"),
        ("FP32", [True], "numbers"),
        ("FP32", ["1.5"], "found '1.5'"),
        ("FP32", [None], "found 'None'"),
        ("BOOL", [1], "true or false"),
        ("FP32", [[1], [1, 2]], "not a regular array"),
        ("FP32", [1, 2], "holds 2 values; shape [1] needs 1"),
        ("FP32", {"a": 1}, "must be an array of numbers"),
        ("FP16", [1], "binary tensor extension"),
        ("int64", [1], "'int64' is no datatype"),
        ("INT64", [True, 1], "whole numbers"),
        ("FP32", [True, 1.5], "found 'True'"),
        ("FP32", [[1.0], "NaN"], "found '[1.0]'"),
        ("INT64", [2**63, -1], "outside INT64"),
        ("BOOL", ["true"], "true or false"),
    ],
)  # fmt: skip
def test_data_that_does_not_fit_is_refused_with_the_input_and_what_is_allowed(
    datatype: str, data: object, says: str
) -> None:
    with pytest.raises(InvalidRequestError) as refusal:
        decode("x", datatype, [1], data)
    assert "input 'x'" in str(refusal.value)
    assert says in str(refusal.value)


@pytest.mark.parametrize(
    ("shape", "data", "says"),
    [
        ([0, 2**39, 2**39], [], "is not possible"),
        ([1] * 65, [1], "65 axes"),
        ([1], json.loads("[" * 200 + "1" + "]" * 200), "nested more than 32 levels"),
    ],
    ids=["product", "axes", "nesting"],
)
def test_a_shape_that_numpy_cannot_hold_is_the_request_s_fault(shape: list[int], data: list[Any], says: str) -> None:
    with pytest.raises(InvalidRequestError, match=says):
        decode("x", "FP32", shape, data)


@pytest.mark.parametrize("datatype", ["INT64", "FP32", "BOOL"])
def test_a_long_text_among_numbers_does_not_multiply_by_their_count(datatype: str) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(InvalidRequestError, match="must hold"):
            decode("x", datatype, [20_001], [1] * 20_000 + ["a" * 2_000])
        assert tracemalloc.get_traced_memory()[1] < 10 * 2**20
    finally:
        tracemalloc.stop()


@given(st.sampled_from(sorted(NUMPY)), st.lists(st.integers(0, 3), max_size=3), JSON)
def test_any_json_is_read_or_refused(datatype: str, shape: list[int], data: object) -> None:
    try:
        array = decode("x", datatype, shape, data)
    except InvalidRequestError:
        return
    assert (array.dtype, array.shape) == (NUMPY[datatype], tuple(shape))


@given(
    st.sampled_from(sorted(NUMPY)),
    st.lists(st.integers(0, 3), max_size=3),
    st.recursive(
        st.none() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=3) | st.integers(-3, 300),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=2), inner, max_size=2),
        max_leaves=12,
    ),
    st.booleans(),
)
def test_the_fast_way_reads_what_the_thorough_one_reads(
    datatype: str, shape: list[int], data: object, nest: bool
) -> None:
    if nest and isinstance(data, list):  # in the shape that is wanted, more often than chance would have it
        shape = list(np.shape(np.array(data, dtype=object)))[:4]

    def read(fast: bool) -> object:
        try:
            return decode("x", datatype, shape, data, numbers_only=fast)
        except InvalidRequestError as error:
            return str(error)

    fast, thorough = read(True), read(False)
    if isinstance(fast, np.ndarray) and isinstance(thorough, np.ndarray):
        assert (fast.dtype, fast.shape) == (thorough.dtype, thorough.shape)
        np.testing.assert_array_equal(fast, thorough)
    else:
        assert fast == thorough


@given(st.lists(st.floats(width=32), max_size=8), st.sampled_from(["FP32", "FP64"]))
def test_what_is_written_is_read_back_exactly_not_a_number_and_infinity_included(
    values: list[float], datatype: str
) -> None:
    array = np.array(values, dtype=NUMPY[datatype])
    text = encode(array)
    assert b"null" not in text
    np.testing.assert_array_equal(decode("x", datatype, [len(values)], orjson.loads(text)), array)


def test_an_output_that_is_not_contiguous_is_written_in_row_major_order() -> None:
    array = np.arange(6, dtype=np.float32).reshape(2, 3).T
    assert orjson.loads(encode(array)) == [0, 3, 1, 4, 2, 5]
