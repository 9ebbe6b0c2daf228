"""The binary tensor extension: every datatype, both ways, and every way in which its lengths can be wrong."""

import struct
from typing import Any

import numpy as np
import orjson
import pytest
import torch
from headway_runtime.errors import InvalidRequestError
from headway_runtime.program.datatypes import BY_PROTOCOL
from headway_runtime.protocols import binary, oip
from headway_runtime.serving.values import BytesArray, Output, Reply
from hypothesis import given
from hypothesis import strategies as st

IDENTITY = oip.identify("m", "r")


def body(*tensors: tuple[dict[str, Any], bytes], **document: Any) -> tuple[bytes, int]:
    """A request with these inputs in binary, and the length of its JSON."""
    inputs = [{**entry, "parameters": {"binary_data_size": len(data)}} for entry, data in tensors]
    text = orjson.dumps({"inputs": inputs, **document})
    return text + b"".join(data for _, data in tensors), len(text)


def entry(datatype: str, shape: list[int], name: str = "x") -> dict[str, Any]:
    return {"name": name, "datatype": datatype, "shape": shape}


@pytest.mark.parametrize("datatype", sorted(BY_PROTOCOL))
@pytest.mark.parametrize("kind", [bytes, bytearray])
@pytest.mark.parametrize("shape", [[2, 3], [6], [1], [], [0, 3]])
@pytest.mark.parametrize("shift", range(0, 9, 3))
def test_every_datatype_is_read_and_written(datatype: str, kind: type, shape: list[int], shift: int) -> None:
    dtype = BY_PROTOCOL[datatype]
    value = torch.arange(int(np.prod(shape)), dtype=torch.float32).reshape(shape).to(dtype)
    whole, length = body((entry(datatype, shape), binary.encode(value)), id="i" * shift)
    question = oip.decode(kind(whole), length)
    read = question.given.inputs["x"]
    assert isinstance(read, torch.Tensor)
    assert (read.dtype, list(read.shape)) == (dtype, shape)
    assert torch.equal(read, value)
    assert read.numel() == 0 or read.data_ptr() % dtype.itemsize == 0, "aligned"


def test_a_large_body_is_not_copied_when_it_is_aligned() -> None:
    value = torch.arange(4, dtype=torch.float32)
    document = {"inputs": [{**entry("FP32", [4]), "parameters": {"binary_data_size": 16}}], "pad": ""}
    document["pad"] = " " * (-len(orjson.dumps(document)) % 4)
    text = orjson.dumps(document)
    whole = bytearray(text + binary.encode(value))
    read = oip.decode(whole, len(text)).given.inputs["x"]
    whole[-4:] = struct.pack("<f", 9.0)
    assert isinstance(read, torch.Tensor)
    assert read.tolist() == [0.0, 1.0, 2.0, 9.0]


@given(st.lists(st.binary(max_size=20), max_size=5))
def test_texts_are_read_and_written(items: list[bytes]) -> None:
    value = BytesArray((len(items),), tuple(items))
    whole, length = body((entry("BYTES", [len(items)]), binary.encode(value)))
    assert oip.decode(whole, length).given.inputs["x"] == value
    whole, length = body((entry("INT8", [1], "before"), b"\x01"), (entry("BYTES", [len(items)]), binary.encode(value)))
    assert oip.decode(bytearray(whole), length).given.inputs["x"] == value


def test_texts_in_json_are_flat_or_nested() -> None:
    for data in (["a", "é"], [["a"], ["é"]]):
        document = {"inputs": [{**entry("BYTES", [2, 1]), "data": data}]}
        read = oip.decode(orjson.dumps(document)).given.inputs["x"]
        assert read == BytesArray((2, 1), (b"a", "é".encode()))
    for data in ([1, 2], ["a"], "ab", [["a"], 3], None):
        document = {"inputs": [{**entry("BYTES", [2, 1]), "data": data}]}
        with pytest.raises(InvalidRequestError, match="input 'x'"):
            oip.decode(orjson.dumps(document))


GOOD, LENGTH = body((entry("FP32", [2]), b"\0" * 8), (entry("BYTES", [1], "t"), b"\x01\0\0\0a"))


@pytest.mark.parametrize(
    ("whole", "length", "says"),
    [
        (GOOD, len(GOOD) + 1, "and the body has"),
        (GOOD[:-1], LENGTH, "bytes are left"),
        (GOOD + b"x", LENGTH, "1 bytes follow the tensors"),
        (GOOD, LENGTH - 1, "not JSON"),
        (GOOD, 0, "not JSON"),
        (*body((entry("FP32", [3]), b"\0" * 8)), "of shape [3] has 12 bytes"),
        (*body((entry("FP33", [2]), b"\0" * 8)), "is not one of the protocol's"),
        (*body((entry("BOOL", [2]), b"\1\2")), "neither 0 nor 1"),
        (*body((entry("FP32", [2**39, 2**39, 0]), b"")), "not possible"),
        (*body((entry("BYTES", [2]), b"\1\0\0\0a")), "too few"),
        (*body((entry("BYTES", [1]), b"\2\0\0\0a")), "longer than"),
        (*body((entry("BYTES", [1]), b"\1\0\0\0ab")), "1 bytes are left after 1 elements"),
        (*body((entry("BYTES", [2**39]), b"\1\0\0\0a")), "too few"),
        (*body(({**entry("FP32", [2]), "data": [1, 2]}, b"\0" * 8)), "both 'data' and 'binary_data_size'"),
    ],
)
def test_lengths_that_do_not_fit_are_refused(whole: bytes, length: int, says: str) -> None:
    with pytest.raises(InvalidRequestError) as refusal:
        oip.decode(whole, length)
    assert says in str(refusal.value)


@pytest.mark.parametrize("size", ["8", -1, 1.5, True, 2**70])
def test_a_size_that_is_no_size_is_refused(size: object) -> None:
    document = {"inputs": [{**entry("FP32", [2]), "parameters": {"binary_data_size": size}}]}
    try:
        text = orjson.dumps(document)
    except TypeError:
        text = b'{"inputs":[{"name":"x","datatype":"FP32","shape":[2],"parameters":{"binary_data_size":%d}}]}' % 2**70
    with pytest.raises(InvalidRequestError, match="binary_data_size"):
        oip.decode(text + b"\0" * 8, len(text))


def test_an_output_is_in_binary_when_it_is_asked_for_so() -> None:
    values = (torch.tensor([1.5, 2.5]), torch.tensor([1, 2], dtype=torch.bfloat16), torch.tensor([True]))
    reply = Reply(tuple(Output(n, d, v) for n, d, v in zip("abc", ("FP32", "BF16", "BOOL"), values, strict=True)))
    good = [{**entry("FP32", [1]), "data": [1]}]
    some = [{"name": "a"}, {"name": "b", "parameters": {"binary_data": True}}]
    everything = {"parameters": {"binary_data_output": True}}
    for document, in_binary in (
        (everything, "abc"),
        ({"outputs": [*some, {"name": "c"}]}, "b"),
        ({"outputs": some, **everything}, "abc"),
        ({"outputs": [{"name": "a", "parameters": {"binary_data": False}}], **everything}, "bc"),
    ):
        written = oip.encode(oip.decode(orjson.dumps({"inputs": good, **document})), reply, IDENTITY)
        whole = b"".join(written.parts)
        assert written.length == len(whole)
        at = written.json_length
        assert at is not None
        for output in orjson.loads(whole[:at])["outputs"]:
            assert ("data" in output) == (output["name"] not in in_binary)
            if output["name"] in in_binary:
                size = output["parameters"]["binary_data_size"]
                value = values["abc".index(output["name"])]
                assert binary.encode(value) == whole[at : at + size]
                at += size
        assert at == len(whole)


def test_an_output_that_is_a_view_is_written_in_row_major_order() -> None:
    for dtype in (torch.float32, torch.bfloat16):
        view = torch.arange(6, dtype=dtype).reshape(2, 3).T
        assert binary.encode(view) == binary.encode(view.contiguous())


def test_what_json_cannot_hold_is_refused_in_json() -> None:
    question = oip.decode(orjson.dumps({"inputs": [{**entry("FP32", [1]), "data": [1]}]}))
    for output, says in (
        (Output("y", "BF16", torch.zeros(1, dtype=torch.bfloat16)), "BF16 cannot be written in JSON"),
        (Output("y", "BYTES", BytesArray((1,), (b"\xff",))), "is not text"),
    ):
        with pytest.raises(InvalidRequestError, match=says):
            oip.encode(question, Reply((output,)), IDENTITY)


@given(st.data())
def test_any_damage_is_read_or_refused(data: st.DataObject) -> None:
    whole = bytearray(GOOD)
    for _ in range(data.draw(st.integers(1, 3))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    del whole[data.draw(st.integers(len(whole) - 4, len(whole))) :]
    try:
        oip.decode(bytes(whole), data.draw(st.sampled_from([LENGTH, LENGTH - 1, LENGTH + 1, 0, len(GOOD)])))
    except InvalidRequestError:
        return
