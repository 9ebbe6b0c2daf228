"""Tensor data of the binary tensor extension, both ways: little-endian, row-major, without gaps.

BYTES is a sequence of elements, each preceded by its length in 4 bytes. FP16 and BF16 are two bytes a number. Source:
https://github.com/triton-inference-server/server/blob/main/docs/protocol/extension_binary_data.md
"""

import math
from collections.abc import Sequence

import numpy as np
import torch

from headway_runtime.errors import InvalidRequestError
from headway_runtime.program.datatypes import BY_PROTOCOL
from headway_runtime.protocols.tensors import NUMPY, check_texts
from headway_runtime.serving.values import BytesArray, Value

_FORMS = {**NUMPY, "FP16": np.dtype(np.float16)}  # NumPy is quicker than torch; it has no BF16
_LENGTH = 4  # bytes before each element of BYTES


def decode(name: str, datatype: str, shape: Sequence[int], body: bytes | bytearray, start: int, stop: int) -> Value:
    """A tensor of what stands in `body` from `start` to `stop`; of a bytearray, where it is aligned, without a copy.

    Raises InvalidRequestError.
    """
    if datatype == "BYTES":
        return BytesArray(tuple(shape), _elements(name, math.prod(shape), body, start, stop))
    dtype = BY_PROTOCOL.get(datatype)
    if dtype is None:
        raise InvalidRequestError(f"input {name!r}: 'datatype' {datatype[:20]!r} is not one of the protocol's")
    count = math.prod(shape)
    if count * dtype.itemsize != stop - start:
        raise InvalidRequestError(
            f"input {name!r}: 'binary_data_size' is {stop - start}; {datatype} of shape {list(shape)} has"
            f" {count * dtype.itemsize} bytes"
        )
    if count == 0:
        return _empty(name, shape, dtype)
    if not isinstance(body, bytearray) or start % dtype.itemsize:  # a bytearray is aligned, as malloc's memory is
        body, start = bytearray(memoryview(body)[start:stop]), 0
    form = _FORMS.get(datatype)
    if form is None:
        return torch.frombuffer(body, dtype=dtype, count=count, offset=start).view(tuple(shape))
    array = np.frombuffer(body, form, count, start)
    if datatype == "BOOL" and array.view(np.uint8).max() > 1:
        raise InvalidRequestError(f"input {name!r}: a byte of BOOL is neither 0 nor 1")
    return torch.from_numpy(array.reshape(shape))


def encode(value: Value) -> bytes:
    """The bytes of an output."""
    if isinstance(value, BytesArray):
        return b"".join(part for item in value.items for part in (len(item).to_bytes(_LENGTH, "little"), item))
    if value.dtype is torch.bfloat16:  # which NumPy has not
        value = value.contiguous().view(torch.int16)
    content: bytes = value.numpy().tobytes()
    return content


def _elements(name: str, count: int, body: bytes | bytearray, start: int, stop: int) -> tuple[bytes, ...]:
    if count * _LENGTH > stop - start:
        raise InvalidRequestError(f"input {name!r}: {stop - start} bytes are too few for {count} elements of BYTES")
    check_texts(name, count)
    items: list[bytes] = []
    at = start
    for _ in range(count):
        begin = at + _LENGTH
        at = begin + int.from_bytes(body[at:begin], "little")
        if begin > stop or at > stop:
            raise InvalidRequestError(
                f"input {name!r}: element {len(items)} of BYTES is longer than 'binary_data_size'"
            )
        items.append(bytes(body[begin:at]))
    if at != stop:
        raise InvalidRequestError(f"input {name!r}: {stop - at} bytes are left after {count} elements of BYTES")
    return tuple(items)


def _empty(name: str, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    try:
        return torch.empty(tuple(shape), dtype=dtype)
    except RuntimeError as error:  # sizes beyond what an address holds
        raise InvalidRequestError(f"input {name!r}: 'shape' {list(shape)} is not possible: {error}") from None
