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

_KINDS = {"b": "b", "i": "iu", "u": "iu", "f": "iuf"}
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
    array = _parse(name, datatype, data)
    if array.dtype.kind in "UO" and wanted.kind == "f":
        array = _with_special(name, data)
    array = _cast(name, datatype, array, wanted)
    if array.shape == tuple(shape):
        return array
    count = int(np.prod(shape, dtype=object))
    if array.ndim == 1 and array.size == count:
        return array.reshape(shape)
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


def _parse(name: str, datatype: str, data: list[Any]) -> Array:
    try:
        return np.array(data)
    except (ValueError, OverflowError) as error:
        raise InvalidRequestError(f"input {name!r}: 'data' is not a regular array of {datatype}: {error}") from None


def _cast(name: str, datatype: str, array: Array, wanted: np.dtype[Any]) -> Array:
    if array.dtype == wanted:
        return array
    if array.dtype.kind not in _KINDS[wanted.kind] and array.size:
        raise InvalidRequestError(f"input {name!r}: 'data' must hold {_WANTED[wanted.kind]} for {datatype}")
    if wanted.kind in "iu" and array.size:
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


def _with_special(name: str, data: list[Any]) -> Array:
    """Numbers among which "NaN", "Infinity" or "-Infinity" stand; NumPy alone would read them all as text."""
    array = np.array(data, dtype=object)
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
