"""Tensors in gRPC messages, both ways."""

import struct

import numpy as np
import pytest
import torch
from headway_runtime.errors import InvalidRequestError, UnsupportedEncodingError
from headway_runtime.program.datatypes import BY_PROTOCOL
from headway_runtime.protocols import binary
from headway_runtime.protocols.grpc import tensors
from headway_runtime.protocols.grpc.proto import inference_pb2 as pb
from headway_runtime.serving.values import BytesArray, Output, Reply, Value

TYPED = [name for name in BY_PROTOCOL if name not in ("FP16", "BF16")]


def sample(datatype: str) -> torch.Tensor:
    """[2, 3] of values that other datatypes do not have, as far as there are some."""
    dtype = BY_PROTOCOL[datatype]
    if dtype is torch.bool:
        return torch.tensor([[True, False, True], [False, False, True]])
    if dtype.is_floating_point:
        return torch.tensor([[1.5, -2.25, float("inf")], [0.0, -0.0, 1e-3]], dtype=torch.float64).to(dtype)
    limits = torch.iinfo(dtype)
    values = [limits.min, limits.max, 0, 1, 2, 3]
    return torch.from_numpy(np.array(values, dtype=datatype.lower()).reshape(2, 3))


def raw_of(value: torch.Tensor) -> bytes:
    """The bytes in memory, which are the protocol's on a little-endian machine."""
    return bytes(value.contiguous().view(torch.uint8).numpy().tobytes())


def request(*entries: tuple[str, str, list[int]], raw: tuple[bytes, ...] = ()) -> pb.ModelInferRequest:
    found = pb.ModelInferRequest(raw_input_contents=raw)
    for name, datatype, shape in entries:
        found.inputs.add(name=name, datatype=datatype, shape=shape)
    return found


def same(found: Value, expected: torch.Tensor) -> bool:
    return isinstance(found, torch.Tensor) and found.dtype == expected.dtype and torch.equal(found, expected)


@pytest.mark.parametrize("datatype", BY_PROTOCOL)
def test_raw_tensors_of_every_datatype_are_read_and_written(datatype: str) -> None:
    value = sample(datatype)
    given = tensors.given(request(("x", datatype, [2, 3]), raw=(raw_of(value),)))
    assert given.outputs is None
    assert same(given.inputs["x"], value)
    assert binary.encode(value) == raw_of(value)


@pytest.mark.parametrize("datatype", TYPED)
def test_typed_tensors_of_every_datatype_that_has_a_field_are_read_and_written(datatype: str) -> None:
    value = sample(datatype)
    asked = request(("x", datatype, [2, 3]))
    getattr(asked.inputs[0].contents, tensors.FIELDS[datatype]).extend(value.reshape(-1).tolist())
    assert same(tensors.given(asked).inputs["x"], value)
    answer = pb.ModelInferResponse()
    tensors.fill(answer, Reply((Output("y", datatype, value),)), raw=False)
    assert not answer.raw_output_contents
    assert list(answer.outputs[0].shape) == [2, 3]
    assert list(getattr(answer.outputs[0].contents, tensors.FIELDS[datatype])) == value.reshape(-1).tolist()


@pytest.mark.parametrize("datatype", ["FP16", "BF16"])
def test_half_precision_has_no_contents_and_makes_the_whole_answer_raw(datatype: str) -> None:
    with pytest.raises(InvalidRequestError, match=f"'x': {datatype} has no contents; send raw_input_contents"):
        tensors.given(request(("x", datatype, [1])))
    answer = pb.ModelInferResponse()
    outputs = (Output("a", "FP32", torch.ones(2)), Output("b", datatype, sample(datatype)))
    tensors.fill(answer, Reply(outputs), raw=False)
    assert list(answer.raw_output_contents) == [raw_of(torch.ones(2)), raw_of(sample(datatype))]
    assert not any(output.HasField("contents") for output in answer.outputs)


@pytest.mark.parametrize("datatype", ["FP32", "BF16", "BOOL"])
def test_scalars_slices_and_tensors_without_elements_are_written_in_row_major_order(datatype: str) -> None:
    scalar, none = sample(datatype)[0, 0], sample(datatype)[:0]
    sliced = sample(datatype)[:, 1:]
    assert binary.encode(scalar) == raw_of(scalar.reshape(1))
    assert binary.encode(none) == b""
    assert binary.encode(sliced) == raw_of(sliced.clone())
    given = tensors.given(request(("x", datatype, [0, 3]), ("z", datatype, []), raw=(b"", raw_of(scalar.reshape(1)))))
    assert [tuple(value.shape) for value in given.inputs.values()] == [(0, 3), ()]


def test_a_byte_that_is_no_truth_is_refused() -> None:
    given = tensors.given(request(("x", "BOOL", [3]), raw=(b"\x00\x01\x01",)))
    assert same(given.inputs["x"], torch.tensor([False, True, True]))
    with pytest.raises(InvalidRequestError, match="'x': a byte of BOOL is neither 0 nor 1"):
        tensors.given(request(("x", "BOOL", [3]), raw=(b"\x00\x02\xff",)))


def test_texts_are_read_and_written_typed_and_raw() -> None:
    items = (b"", "zwölf".encode(), b"\x00\x01")
    packed = b"".join(struct.pack("<I", len(item)) + item for item in items)
    typed = request(("x", "BYTES", [3, 1]))
    typed.inputs[0].contents.bytes_contents.extend(items)
    expected = BytesArray((3, 1), items)
    assert tensors.given(typed).inputs["x"] == expected
    assert tensors.given(request(("x", "BYTES", [3, 1]), raw=(packed,))).inputs["x"] == expected
    assert binary.encode(expected) == packed
    answer = pb.ModelInferResponse()
    tensors.fill(answer, Reply((Output("y", "BYTES", expected),)), raw=False)
    assert tuple(answer.outputs[0].contents.bytes_contents) == items


@pytest.mark.parametrize(
    "packed", [b"", b"\1\0\0\0", b"\1\0\0", b"\1\0\0\0ab", b"\0\0\0\0\0\0\0\0", b"\xff\xff\xff\xffa", b"\0" * 4000]
)
def test_raw_texts_that_do_not_fit_the_shape_are_refused(packed: bytes) -> None:
    with pytest.raises(InvalidRequestError, match=r"'x': .*BYTES"):
        tensors.given(request(("x", "BYTES", [1]), raw=(packed,)))


@pytest.mark.parametrize(
    ("datatype", "shape", "raw", "says"),
    [
        ("FP32", [2], b"1234", r"4 bytes; shape \[2\] of FP32 needs 8"),
        ("FP32", [-1], b"1234", "has a size that no tensor has"),
        ("FP32", [2**40], b"", "has a size that no tensor has"),
        ("FP32", [2**39, 2**39], b"1234", "needs 1208925819614629174706176"),
        ("FP32", [1] * 33, b"1234", "33 axes; at most 32"),
        ("FLOAT", [1], b"1234", "datatype 'FLOAT' is none of BOOL, .*BYTES"),
        ("", [1], b"1234", "datatype '' is none of"),
    ],
)
def test_raw_bytes_that_do_not_fit_are_refused_naming_the_input(
    datatype: str, shape: list[int], raw: bytes, says: str
) -> None:
    with pytest.raises(InvalidRequestError, match=f"input 'x': .*{says}"):
        tensors.given(request(("x", datatype, shape), raw=(raw,)))


def test_numbers_that_do_not_fit_are_refused_naming_the_input() -> None:
    asked = request(("x", "INT8", [1]))
    asked.inputs[0].contents.int_contents.append(128)
    with pytest.raises(InvalidRequestError, match="'x': a value is outside INT8, -128 to 127"):
        tensors.given(asked)
    asked = request(("x", "FP32", [2]))
    asked.inputs[0].contents.fp64_contents.extend([1, 2])
    with pytest.raises(InvalidRequestError, match=r"needs 2 fp32_contents; there are 2 fp64_contents"):
        tensors.given(asked)


def test_contents_beside_raw_bytes_a_name_twice_and_a_wrong_count_are_refused() -> None:
    asked = request(("x", "FP32", [1]), raw=(b"1234",))
    asked.inputs[0].contents.fp32_contents.append(1)
    with pytest.raises(InvalidRequestError, match="'x' has contents, beside raw_input_contents"):
        tensors.given(asked)
    with pytest.raises(InvalidRequestError, match="'x' is given twice"):
        tensors.given(request(("x", "FP32", [1]), ("x", "FP32", [1]), raw=(b"1234", b"1234")))
    with pytest.raises(InvalidRequestError, match="1 raw_input_contents for 2 inputs"):
        tensors.given(request(("x", "FP32", [1]), ("y", "FP32", [1]), raw=(b"1234",)))
    asked = request(("x", "FP32", [1]), raw=(b"1234",))
    for _ in range(2):
        asked.outputs.add(name="y")
    with pytest.raises(InvalidRequestError, match="'y' is asked for twice"):
        tensors.given(asked)


def test_shared_memory_is_refused_for_inputs_and_outputs() -> None:
    asked = request(("x", "FP32", [1]))
    asked.inputs[0].parameters["shared_memory_region"].string_param = "region"
    with pytest.raises(UnsupportedEncodingError, match="'x': shared memory"):
        tensors.given(asked)
    asked = request(("x", "FP32", [1]), raw=(b"1234",))
    asked.outputs.add(name="y").parameters["shared_memory_region"].string_param = "region"
    with pytest.raises(UnsupportedEncodingError, match="'y': shared memory"):
        tensors.given(asked)


def test_the_wanted_outputs_are_those_that_are_named() -> None:
    asked = request(("x", "FP32", [1]), raw=(b"1234",))
    asked.outputs.add(name="b")
    asked.outputs.add(name="a")
    assert tensors.given(asked).outputs == ("b", "a")


def test_the_best_classes_are_asked_for_by_a_number() -> None:
    asked = request(("x", "FP32", [1]), raw=(b"1234",))
    asked.outputs.add(name="a").parameters["classification"].int64_param = 3
    assert tensors.given(asked).classes == {"a": 3}
    asked.outputs[0].parameters["classification"].int64_param = 0
    with pytest.raises(InvalidRequestError, match="'a': 'classification' must be a number of classes"):
        tensors.given(asked)


def test_what_else_there_is_to_say_comes_as_parameters() -> None:
    answer = pb.ModelInferResponse()
    tensors.fill(answer, Reply((), parameters={"tokens": 7}), raw=True)
    assert answer.parameters["tokens"].int64_param == 7
