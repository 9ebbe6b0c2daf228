"""Arguments of operators: from the file's tagged unions, held against the operator's own parameter type, into
canonical JSON.

Canonical form: numbers, booleans, null and lists stand for themselves; everything else is an object with one key:
``{"v": "v3"}`` a value of the graph, ``{"str": …}``, ``{"dtype": …}``, ``{"layout": …}``, ``{"memory_format": …}``,
``{"device": …}``, ``{"float": "inf"}``, ``{"complex": [re, im]}``.
"""

import re
from functools import cache
from typing import Any, Protocol

from headway_runtime.prepare.container import tensors
from headway_runtime.prepare.errors import Refusal

_TEXT = re.compile(r"[ -~]{0,128}\Z", re.ASCII)
_LIST = re.compile(r"(\w+\??)\[(\d*)\]\Z", re.ASCII)
_WORDS = {"Infinity": "inf", "-Infinity": "-inf", "NaN": "nan"}

_NUMBERS = {"as_int", "as_float", "as_bool", "as_complex", "as_sym_int", "as_sym_float", "as_sym_bool"}
_MEMBERS: dict[str, set[str]] = {
    "Tensor": {"as_tensor"} | _NUMBERS,  # torch accepts a Python number where a tensor is due
    "Scalar": _NUMBERS,
    "int": {"as_int", "as_sym_int"},
    "SymInt": {"as_int", "as_sym_int"},
    "float": {"as_float", "as_int", "as_sym_float", "as_sym_int"},
    "bool": {"as_bool", "as_sym_bool"},
    "str": {"as_string"},
    "ScalarType": {"as_scalar_type"},
    "Layout": {"as_layout"},
    "MemoryFormat": {"as_memory_format"},
    "Device": {"as_device"},
}
_LISTS: dict[str, set[str]] = {
    "Tensor": {"as_tensors"},
    "Tensor?": {"as_tensors", "as_optional_tensors"},
    "int": {"as_ints", "as_sym_ints"},
    "SymInt": {"as_ints", "as_sym_ints"},
    "float": {"as_floats", "as_sym_floats"},
    "bool": {"as_bools", "as_sym_bools"},
    "Scalar": {"as_ints", "as_floats", "as_bools"},
}


class Scope(Protocol):
    """Where names of values are looked up: gives the canonical name, checked to be of ``kind`` (tensor, int, float,
    bool).
    """

    def use(self, name: str, kind: str) -> str: ...


@cache
def _accepted(type_: str) -> frozenset[str]:
    if type_.endswith("?"):
        extra = {"as_none"} | ({"as_optional_tensor"} if type_ == "Tensor?" else set())
        return _accepted(type_[:-1]) | extra
    match = _LIST.match(type_)
    if match is None:
        return frozenset(_MEMBERS.get(type_, ()))
    element, count = match.groups()
    single = _MEMBERS[element] if count and element in {"int", "SymInt"} else set()  # int[2] takes one number for both
    return frozenset(_LISTS.get(element, set()) | single)


def translate(argument: dict[str, Any], type_: str, scope: Scope) -> Any:
    """Canonical form of an argument for a parameter of torch type ``type_``. Raises Refusal ``operator.arguments``."""
    (member, value), *_ = argument.items()
    if member not in _accepted(type_):
        raise Refusal("operator.arguments", f"{member} where {type_} is due")
    return untyped(member, value, scope)


def untyped(member: str, value: Any, scope: Scope) -> Any:
    """Canonical form of any member of the argument union (except graphs, which only higher-order operators have)."""
    match member:
        case "as_none":
            return None
        case "as_int" | "as_bool" | "as_ints" | "as_bools":
            return value
        case "as_float":
            return number(value)
        case "as_floats":
            return [number(v) for v in value]
        case "as_complex":
            return {"complex": [number(value["real"]), number(value["imag"])]}
        case "as_string":
            return {"str": _text(value)}
        case "as_tensor":
            return {"v": scope.use(value["name"], "tensor")}
        case "as_tensors":
            return [{"v": scope.use(v["name"], "tensor")} for v in value]
        case "as_optional_tensor":
            return _optional(value, scope)
        case "as_optional_tensors":
            return [_optional(v, scope) for v in value]
        case "as_sym_int" | "as_sym_float" | "as_sym_bool":
            return _symbolic(value, member.removeprefix("as_sym_"), scope)
        case "as_sym_ints" | "as_sym_floats" | "as_sym_bools":
            return [_symbolic(v, member.removeprefix("as_sym_")[:-1], scope) for v in value]
        case "as_scalar_type":
            return {"dtype": tensors.dtype(value)}
        case "as_layout":
            return {"layout": _known(tensors.LAYOUTS, value, "tensor.layout")}
        case "as_memory_format":
            return {"memory_format": _known(tensors.MEMORY_FORMATS, value, "tensor.layout")}
        case "as_device":
            return {"device": tensors.device(value)}
    raise Refusal("operator.arguments", member)


def number(value: float | str) -> Any:
    """A float; JSON has no infinities, torch writes them as words."""
    if isinstance(value, str):
        return {"float": _WORDS[value]}
    return float(value)


def _text(value: str) -> str:
    if not _TEXT.match(value):
        raise Refusal("operator.value", value)
    return value


def _optional(value: dict[str, Any], scope: Scope) -> Any:
    return None if "as_none" in value else {"v": scope.use(value["as_tensor"]["name"], "tensor")}


def _symbolic(value: dict[str, Any], kind: str, scope: Scope) -> Any:
    (member, content), *_ = value.items()
    if member == "as_name":
        return {"v": scope.use(content, kind)}
    return number(content) if member == "as_float" else content


def _known(table: dict[int, str], value: int, rule: str) -> str:
    if value not in table:
        raise Refusal(rule, value)
    return table[value]
