"""Tensor data in JSON, both ways.

In: `data` is flat in row-major order, or nested like `shape`. Out: flat. JSON has no NaN and no infinity; where others
write `null` (a wrong answer) or `NaN` (not JSON), they are the strings "NaN", "Infinity" and "-Infinity", as in the
JSON form of protocol buffers, in requests and in answers. `float()` and NumPy read them as they are.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from headway_runtime.errors import InvalidRequestError

NUMPY: dict[str, np.dtype[Any]] = {
    "BOOL": np.dtype(np.bool_),
    **{f"{sign}INT{bits}": np.dtype(f"{sign}int{bits}".lower()) for sign in ("", "U") for bits in (8, 16, 32, 64)},
    "FP32": np.dtype(np.float32),
    "FP64": np.dtype(np.float64),
}
"""What JSON carries. FP16 and BF16 travel in binary only: the protocol's JSON has no spelling for them."""

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


def decode(name: str, datatype: str, shape: Sequence[int], data: object) -> Array:
    """An array of `shape`. Raises InvalidRequestError naming the input when the data does not fit."""
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


def no_json(datatype: str) -> str:
    """Why a tensor of this datatype is not served here."""
    return f"{datatype} cannot be written in JSON; it needs the protocol's binary tensor extension"


def encode(array: Array) -> Array | list[Any]:
    """What orjson writes as the flat `data` of an output."""
    flat = np.ascontiguousarray(array).reshape(-1)
    if flat.dtype.kind != "f" or np.isfinite(flat).all():
        return flat
    return [_spell(value) for value in flat.tolist()]


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
