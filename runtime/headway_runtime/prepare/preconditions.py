"""What must hold for the arguments of some operators beyond their types: inference form only, no randomness, bounded
constants.

Each check sees an operator's arguments by name in canonical form and raises a Refusal, or returns.
"""

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

from headway_runtime.prepare.errors import Refusal

MAX_CONSTANT_ELEMENTS = 1 << 28
MAX_RNN_LAYERS = 64
MAX_POWER = 1 << 16

Arguments = Mapping[str, Any]
Check = Callable[[Arguments], None]


def _not_training(argument: str) -> Check:
    def check(args: Arguments) -> None:
        if args.get(argument) is not False:
            raise Refusal("operator.training", f"{argument} is set")

    return check


def _instance_norm(args: Arguments) -> None:
    if args.get("use_input_stats") is not False and (
        args.get("running_mean") is not None or args.get("running_var") is not None
    ):
        raise Refusal("operator.training", "instance_norm updates its running statistics")


def _no_dropout(args: Arguments) -> None:
    if args.get("dropout_p", 0.0) not in (0, 0.0):
        raise Refusal("operator.training", "attention dropout is active")


def _recurrent(states: int) -> Check:
    def check(args: Arguments) -> None:
        layers, both, biases = args["num_layers"], args["bidirectional"], args["has_biases"]
        if args["train"] is not False or type(layers) is not int or not 1 <= layers <= MAX_RNN_LAYERS:
            raise Refusal("operator.training" if args["train"] is not False else "operator.value", "a recurrent layer")
        if not isinstance(both, bool) or not isinstance(biases, bool):
            raise Refusal("operator.value", "a recurrent layer with symbolic options")
        per_layer = 4 if biases else 2
        if len(args["params"]) != layers * (2 if both else 1) * per_layer:
            raise Refusal("operator.value", f"{len(args['params'])} weights for {layers} recurrent layers")
        if states and len(args["hx"]) != states:
            raise Refusal("operator.value", f"{len(args['hx'])} hidden states")

    return check


def _einsum(args: Arguments) -> None:
    equation = args["equation"]["str"]
    if not re.match(r"[A-Za-z.,> -]{1,128}\Z", equation, re.ASCII):
        raise Refusal("operator.value", equation)


def _only_unpinned(args: Arguments) -> None:
    if args.get("pin_memory") not in (None, False):
        raise Refusal("operator.value", "pin_memory")


def _bounded_constants(args: Arguments) -> None:
    for name, value in args.items():
        items = value if isinstance(value, list) else [value] if name in _COUNTS else []
        sizes = [abs(n) for n in items if type(n) in (int, float) and n]
        if math.prod(sizes) > MAX_CONSTANT_ELEMENTS:
            raise Refusal("operator.allocation", f"{name} = {items[:8]}")


# Operators that make a tensor as large as a constant says. Symbolic sizes are bounded where they are known.
_FACTORY = re.compile(
    r"aten\.(new_)?(full|zeros|ones|arange|linspace|logspace|eye|tril_indices|triu_indices|repeat|tile|expand|"
    r"broadcast_to|\w+_window|one_hot|vander|linalg_vander|repeat_interleave|pad|constant_pad_nd|reflection_pad\w*|"
    r"replication_pad\w*|_?upsample_\w+|_?adaptive_\w+)\.",
    re.ASCII,
)
_COUNTS = {"end", "steps", "n", "m", "N", "repeats", "num_classes", "window_length", "row", "col"}


def _small_power(args: Arguments) -> None:
    if type(args["n"]) is not int or abs(args["n"]) > MAX_POWER:
        raise Refusal("operator.value", f"a matrix power of {args['n']}")


CHECKS: dict[str, Check] = {
    "aten.batch_norm.default": _not_training("training"),
    "aten.instance_norm.default": _instance_norm,
    "aten.dropout.default": _not_training("train"),
    "aten.scaled_dot_product_attention.default": _no_dropout,
    "aten.lstm.input": _recurrent(2),
    "aten.gru.input": _recurrent(0),
    "aten.einsum.default": _einsum,
    "aten.matrix_power.default": _small_power,
    "aten.linalg_matrix_power.default": _small_power,
}


def check(name: str, args: Arguments) -> None:
    """Raise a Refusal unless the call of operator ``name`` is in its accepted form."""
    _only_unpinned(args)
    if _FACTORY.match(name):
        _bounded_constants(args)
    if name in CHECKS:
        CHECKS[name](args)
