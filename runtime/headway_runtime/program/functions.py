"""What an operator's name and a constant of a prepared program stand for in torch. Only names on the list are
resolved.
"""

import math
import operator
from collections.abc import Callable
from typing import Any

import torch
import torch.ao.quantization.fx._decomposed  # registers the quantized_decomposed operators

from headway_runtime.prepare.translate import operators
from headway_runtime.program.datatypes import TORCH
from headway_runtime.program.errors import ProgramError
from headway_runtime.program.guarded import GUARDED

MAX_SIZE = 2**63
MAX_EXPONENT = 64


def _bounded(function: Callable[..., Any]) -> Callable[..., Any]:
    """Arithmetic on sizes: Python integers would grow without bound, torch's have 64 bits."""

    def call(*args: Any) -> Any:
        result = function(*args)
        if isinstance(result, int) and not -MAX_SIZE <= result < MAX_SIZE:
            raise OverflowError("a size of the program has more than 64 bits")
        return result

    return call


def _power(base: Any, exponent: Any) -> Any:
    """Of sizes, and of fractions of them: small enough to be computed before it is found to be too large."""
    if abs(exponent) > MAX_EXPONENT:
        raise OverflowError(f"a size of the program to the power of {exponent}")
    result = base**exponent
    if isinstance(result, complex):
        raise ValueError("a root of a negative size")
    return result


SCALARS: dict[str, Callable[..., Any]] = {
    "_operator.add": _bounded(operator.add),
    "_operator.sub": _bounded(operator.sub),
    "_operator.mul": _bounded(operator.mul),
    "_operator.floordiv": operator.floordiv,
    "_operator.truediv": operator.truediv,
    "_operator.mod": operator.mod,
    "_operator.pow": _bounded(_power),
    "_operator.neg": operator.neg,
    "_operator.eq": operator.eq,
    "_operator.ne": operator.ne,
    "_operator.lt": operator.lt,
    "_operator.le": operator.le,
    "_operator.gt": operator.gt,
    "_operator.ge": operator.ge,
    "_operator.and_": operator.and_,
    "_operator.or_": operator.or_,
    "math.trunc": math.trunc,
    "math.floor": math.floor,
    "math.ceil": math.ceil,
    "torch.sym_int": int,
    "torch.sym_float": float,
    "torch.sym_max": max,
    "torch.sym_min": min,
    "torch.sym_not": operator.not_,
    "torch.sym_ite": lambda condition, a, b: a if condition else b,
}


def resolve(name: str) -> Callable[..., Any]:
    """The function behind ``aten.relu.default`` or ``_operator.add``. Raises ProgramError for a name off the list."""
    if name in SCALARS:
        return SCALARS[name]
    found = torch_operator(name)
    return GUARDED[name](found) if name in GUARDED else found


def torch_operator(name: str) -> Callable[..., Any]:
    """torch's own operator of this name, without the checks of ``guarded``. Raises ProgramError."""
    if name in operators.OWN:
        message = f"{name} needs a cache: the program generates text, and runs with policy Continuous"
        raise ProgramError("Accepted", "PolicyMismatch", message, field="spec.batching.policy")
    if operators.signature(name) is None:
        raise ProgramError(
            "ArtifactVerified", "UnsafeArtifact", f"operator {name} is not on the list of safe operators"
        )
    space, function, overload = name.split(".")
    try:
        found: Callable[..., Any] = getattr(getattr(getattr(torch.ops, space), function), overload)
    except AttributeError as e:
        message = f"torch {torch.__version__} has no operator {name}; export the program with torch {operators.TORCH}"
        raise ProgramError("ArtifactVerified", "IncompatibleVersion", message) from e
    return found


def constant(device: torch.device) -> Callable[[Any], Any]:
    """Function from a constant in canonical JSON to the Python or torch value. Tensors are made on the serving
    device.
    """

    def value(item: Any) -> Any:
        if isinstance(item, list):
            return [value(i) for i in item]
        if not isinstance(item, dict):
            return item
        ((kind, content),) = item.items()
        match kind:
            case "str":
                return content
            case "float":
                return float(content)
            case "complex":
                return complex(value(content[0]), value(content[1]))
            case "dtype":
                return TORCH[content]
            case "device":
                return device
            case "layout":
                return {"strided": torch.strided}[content]
            case "memory_format":
                return _MEMORY_FORMATS[content]
        raise ProgramError("ArtifactVerified", "UnsafeArtifact", f"a constant of kind {kind}")

    return value


_MEMORY_FORMATS = {
    "contiguous_format": torch.contiguous_format,
    "channels_last": torch.channels_last,
    "channels_last_3d": torch.channels_last_3d,
    "preserve_format": torch.preserve_format,
}
