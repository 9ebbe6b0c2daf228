"""Tensor data in JSON, both ways.

In: `data` is flat in row-major order, or nested like `shape`. Out: flat. JSON has no NaN and no infinity; where others
write `null` (a wrong answer) or `NaN` (not JSON), they are the strings "NaN", "Infinity" and "-Infinity", as in the
JSON form of protocol buffers, in requests and in answers. `float()` and NumPy read them as they are.
"""

import math
import struct
from collections.abc import Sequence
from functools import lru_cache
from itertools import chain
from typing import Any

import numpy as np
import orjson

from headway_runtime.errors import InvalidRequestError
from headway_runtime.protocols.pieces import Numbers, fair

NUMPY: dict[str, np.dtype[Any]] = {
    "BOOL": np.dtype(np.bool_),
    **{f"{sign}INT{bits}": np.dtype(f"{sign}int{bits}".lower()) for sign in ("", "U") for bits in (8, 16, 32, 64)},
    "FP32": np.dtype(np.float32),
    "FP64": np.dtype(np.float64),
}
"""What JSON carries. FP16 and BF16 travel in binary only: the protocol's JSON has no spelling for them."""

IN_BINARY_ONLY = frozenset({"FP16", "BF16"})

_CODES = {"INT8": "b", "INT16": "h", "INT32": "i", "INT64": "q", "FP32": "f", "FP64": "d"}
_CODES |= {f"U{name}": code.upper() for name, code in _CODES.items() if name.startswith("INT")}

PIECE = 2**15  # numbers that are written at once

MAX_TEXTS = 2**17  # elements of BYTES: far more than a queue admits

MAX_AXES = 32  # NumPy has 64; no program has more than 16

_TYPES: dict[str, frozenset[type]] = {
    "b": frozenset({bool}),
    "i": frozenset({int}),
    "u": frozenset({int}),
    "f": frozenset({int, float}),
}
_WANTED = {"b": "true or false", "i": "whole numbers", "u": "whole numbers of 0 or more", "f": "numbers"}
_SPECIAL = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}

Array = np.ndarray[Any, np.dtype[Any]]


def decode(name: str, datatype: str, shape: Sequence[int], data: object, *, numbers_only: bool = False) -> Array:
    """An array of `shape`. Raises InvalidRequestError naming the input when the data does not fit.

    `numbers_only`: there is no `true` and no `false` in the data, which the fast way would take for numbers.
    """
    if numbers_only:
        array = _packed(datatype, shape, data)
        if array is not None:
            return array
    wanted = NUMPY.get(datatype)
    if wanted is None:
        raise InvalidRequestError(f"input {name!r}: {no_json(datatype)}")
    if not isinstance(data, list):
        raise InvalidRequestError(f"input {name!r}: 'data' must be an array of {_WANTED[wanted.kind]}")
    if len(shape) > MAX_AXES:
        raise InvalidRequestError(f"input {name!r}: 'shape' has {len(shape)} axes; at most {MAX_AXES} are read")
    array = _cast(name, datatype, _parse(name, datatype, data, _TYPES[wanted.kind]), wanted)
    if array.shape == tuple(shape):
        return array
    count = int(np.prod(shape, dtype=object))
    if array.ndim == 1 and array.size == count:
        return _reshape(name, array, shape)
    found = f"{array.size} values" if array.ndim == 1 else f"an array of shape {list(array.shape)}"
    raise InvalidRequestError(
        f"input {name!r}: 'data' holds {found}; shape {list(shape)} needs {count}, flat or nested in that shape"
    )


def decode_parts(name: str, datatype: str, shape: Sequence[int], numbers: Numbers) -> Array:
    """The same of an array that was lifted out of its document."""
    wanted = NUMPY.get(datatype)
    if wanted is None:
        raise InvalidRequestError(f"input {name!r}: {no_json(datatype)}")
    if not numbers.fits(shape):
        raise InvalidRequestError(f"input {name!r}: 'data' must be flat, or nested as shape {list(shape)} is")
    try:
        parts = [decode(name, datatype, [len(part)], part) for part in fair(numbers.parts())]
    except orjson.JSONDecodeError as error:
        raise InvalidRequestError(f"input {name!r}: 'data' is not JSON: {error}") from None
    array, count = np.concatenate(parts), math.prod(shape)
    if array.size != count:
        raise InvalidRequestError(
            f"input {name!r}: 'data' holds {array.size} values; shape {list(shape)} needs {count}"
        )
    return array.reshape(shape)


def no_json(datatype: str) -> str:
    """Why a tensor of this datatype is not served here."""
    if datatype not in IN_BINARY_ONLY:
        return f"{datatype!r} is no datatype; those are {', '.join(NUMPY)}, FP16, BF16 and BYTES"
    return f"{datatype} cannot be written in JSON; it needs the protocol's binary tensor extension"


def texts(name: str, shape: Sequence[int], data: object) -> tuple[bytes, ...]:
    """The elements of a tensor of BYTES, which JSON has as texts. Raises InvalidRequestError."""
    flat: Any = data
    try:
        while isinstance(flat, list) and flat and isinstance(flat[0], list):
            flat = list(chain.from_iterable(flat))
        items = tuple([item.encode() for item in flat]) if isinstance(flat, list) else None
    except (AttributeError, TypeError, UnicodeEncodeError):
        items = None
    if items is None:
        raise InvalidRequestError(f"input {name!r}: 'data' must be an array of texts for BYTES")
    check_texts(name, len(items))
    if len(items) != math.prod(shape):
        raise InvalidRequestError(
            f"input {name!r}: 'data' holds {len(items)} texts; shape {list(shape)} needs {math.prod(shape)}"
        )
    return items


def check_texts(name: str, count: int) -> None:
    """Each element of BYTES costs as much as a short request. Raises InvalidRequestError when they are too many."""
    if count > MAX_TEXTS:
        raise InvalidRequestError(f"input {name!r}: {count} elements of BYTES; at most {MAX_TEXTS} are read")


def encode(array: Array) -> bytes:
    """The flat `data` of an output, as JSON."""
    flat = array.ravel()
    if flat.size > PIECE:  # in pieces, with pauses for other threads
        pieces = (encode(flat[at : at + PIECE])[1:-1] for at in fair(range(0, flat.size, PIECE)))
        return b"[%b]" % b",".join(pieces)
    text = orjson.dumps(flat, option=orjson.OPT_SERIALIZE_NUMPY)
    if b"null" not in text:  # which is how orjson writes what is not finite
        return text
    return orjson.dumps([_spell(value) for value in flat.tolist()])


def _packed(datatype: str, shape: Sequence[int], data: object) -> Array | None:
    """The fast way, for data of numbers of the right kind and in range; None for all else.

    `struct` checks kind and range of each value as it packs it, at a third of what NumPy takes for a list.
    """
    code = _CODES.get(datatype)
    if code is None or not isinstance(data, list) or not data:
        return None
    count = math.prod(shape)
    try:
        if type(data[0]) is list:
            if len(data) != shape[0]:
                return None
            for size in shape[1:]:
                if set(map(len, data)) != {size}:
                    return None
                data = list(chain.from_iterable(data))
        if len(data) != count:
            return None
        array = np.empty(shape, NUMPY[datatype])
        _packer(code, count).pack_into(array.data, 0, *data)
    except (struct.error, TypeError, OverflowError, IndexError):
        return None
    return array


@lru_cache(256)
def _packer(code: str, count: int) -> struct.Struct:
    return struct.Struct(f"{count}{code}")


def _parse(name: str, datatype: str, data: list[Any], allowed: frozenset[type]) -> Array:
    """The values as NumPy reads them, once each is known to be a number of the kind that is wanted.

    NumPy alone would not do: given one long text among many numbers, it makes every element as large as the text.
    """
    found = _types(name, data, 1)
    if found <= allowed:
        try:
            return np.array(data)
        except (ValueError, OverflowError) as error:
            raise InvalidRequestError(f"input {name!r}: 'data' is not a regular array of {datatype}: {error}") from None
    if float in allowed:
        return _with_special(name, data)
    raise InvalidRequestError(f"input {name!r}: 'data' must hold {_WANTED[NUMPY[datatype].kind]} for {datatype}")


def _types(name: str, data: list[Any], depth: int) -> set[type]:
    """The types of the values in a nested list, lists apart."""
    found: set[type] = set(map(type, data))
    if list in found:
        if depth == MAX_AXES:
            raise InvalidRequestError(f"input {name!r}: 'data' is nested more than {MAX_AXES} levels deep")
        found.remove(list)
        for item in data:
            if type(item) is list:
                found |= _types(name, item, depth + 1)
    return found


def _cast(name: str, datatype: str, array: Array, wanted: np.dtype[Any]) -> Array:
    if array.dtype == wanted:
        return array
    if wanted.kind in "iu" and array.size:
        if array.dtype.kind == "f":  # what NumPy makes of negative numbers beside some of more than 63 bits
            raise InvalidRequestError(f"input {name!r}: a value is outside {datatype}")
        limits = np.iinfo(wanted)
        if int(array.min()) < limits.min or int(array.max()) > limits.max:
            raise InvalidRequestError(f"input {name!r}: a value is outside {datatype}, {limits.min} to {limits.max}")
    try:
        with np.errstate(over="raise"):
            return array.astype(wanted)
    except FloatingPointError:
        raise InvalidRequestError(
            f"input {name!r}: a value is outside {datatype}, at most {np.finfo(wanted).max:.4g}"
        ) from None


def _reshape(name: str, array: Array, shape: Sequence[int]) -> Array:
    try:
        return array.reshape(shape)
    except ValueError as error:  # no elements, and sizes beyond what an address holds
        raise InvalidRequestError(f"input {name!r}: 'shape' {list(shape)} is not possible: {error}") from None


def _with_special(name: str, data: list[Any]) -> Array:
    """Numbers among which "NaN", "Infinity" or "-Infinity" stand."""
    try:
        array = np.array(data, dtype=object)
    except ValueError as error:
        raise InvalidRequestError(f"input {name!r}: 'data' is not a regular array of numbers: {error}") from None
    return np.array([_number(name, value) for value in array.reshape(-1)], dtype=np.float64).reshape(array.shape)


def _number(name: str, value: object) -> float:
    if isinstance(value, str) and value in _SPECIAL:
        return _SPECIAL[value]
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    raise InvalidRequestError(f"input {name!r}: 'data' must hold numbers; found {str(value)[:40]!r}")


def _spell(value: float) -> float | str:
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "Infinity" if value > 0 else "-Infinity"
    return value
