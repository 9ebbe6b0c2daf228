"""What must hold for the arguments of some operators beyond their types: inference form only, no randomness, bounded
constants.

Each check sees an operator's arguments by name in canonical form and raises a Refusal, or returns.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

from headway_runtime.prepare.errors import Refusal
from headway_runtime.prepare.translate import operators

MAX_CONSTANT_ELEMENTS = 1 << 27
"""Of a tensor that an operator makes from nothing but constants."""
MAX_INTEGER = 1 << 31
MAX_LIST = 1 << 16
MIN_STEP = 1e-4
"""Of ``arange`` over fractions: a smaller one makes too much of a small range."""
MAX_RNN_LAYERS = 64
MAX_POWER = 1 << 16

DROPOUTS = ("dropout", "dropout_", "feature_dropout", "feature_dropout_", "alpha_dropout", "feature_alpha_dropout")
"""Operators that hand back their first argument when they do not train."""

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


def _known_modes(args: Arguments) -> None:
    """Numbers that stand for words: with an unknown one, some kernels return memory that they never set."""
    for name in _MODES & args.keys():
        value = args[name]
        is_word = value is None or (isinstance(value, dict) and "str" in value)
        if not is_word and (type(value) is not int or not 0 <= value <= 2):
            raise Refusal("operator.value", f"{name} = {value}")


def _bounded_integers(name: str, args: Arguments) -> None:
    """No operator needs a count, a size or an axis beyond 32 bits, and torch multiplies some of them unchecked."""
    signature = operators.signature(name)
    for p in signature.parameters if signature else ():
        if p.type.startswith(("int", "SymInt")) and p.name not in _OPEN_ENDED:
            value = args.get(p.name)
            items = value if isinstance(value, list) else [value]
            if len(items) > MAX_LIST or any(type(n) is int and abs(n) > MAX_INTEGER for n in items):
                raise Refusal("operator.value", f"{p.name} = {items[:8]}")


def _bounded_sizes(args: Arguments, names: frozenset[str]) -> None:
    for name in names & args.keys():
        value = args[name]
        product = 1.0
        for item in value if isinstance(value, list) else [value]:
            product *= _magnitude(item)
            if product > MAX_CONSTANT_ELEMENTS:
                raise Refusal("operator.allocation", f"{name} = {str(value)[:80]}")


def _magnitude(item: Any) -> float:
    """Of a constant; 1 for what is known only at run time, where the shape gate bounds it."""
    if isinstance(item, dict) and "float" in item:
        return float("inf")
    return float(abs(item)) or 1.0 if type(item) in (int, float) else 1.0


# Values up to the largest integer are normal here: "to the end".
_OPEN_ENDED = {"start", "end", "min", "max", "fill_value"}
_MODES = {"reduction", "interpolation_mode", "padding_mode", "compute_mode", "normalization", "mode"}
# What decides how large a result is. Symbolic sizes are bounded where they are known.
_SIZE_WORDS = """
    size sizes output_size repeats n m N s steps num_classes window_length row col n_fft length win_length pad padding
    output_padding scale_factors scales scales_d scales_h scales_w offset diagonal sections chunks
"""
_SIZES = frozenset(_SIZE_WORDS.split())
_SIZES_OF = {
    "tile": _SIZES | {"dims"},
    "scalar_tensor": _SIZES - {"s"},  # its value
    **dict.fromkeys(["_convolution", "convolution"], _SIZES | {"stride"}),
}
# These only look at what is there; or their ``n`` counts steps.
_VIEWS = {
    "matrix_power",
    "linalg_matrix_power",
    "diff",
    "polygamma",
    "polygamma_",
    "view",
    "reshape",
    "_unsafe_view",
    "unflatten",
    "unfold",
    "sum_to_size",
    "_assert_tensor_metadata",
}


def _sizes_of(name: str) -> frozenset[str]:
    short = name.split(".")[1]
    if short in _VIEWS:
        return frozenset()
    return _SIZES | {"stride"} if short.startswith("conv_transpose") else _SIZES_OF.get(short, _SIZES)


def _arange(args: Arguments) -> None:
    start, end, step = args.get("start", 0), args["end"], args.get("step", 1)
    numbers = [n for n in (start, end, step) if type(n) in (int, float)]
    if any(abs(n) > MAX_CONSTANT_ELEMENTS for n in numbers) or (type(step) is float and abs(step) < MIN_STEP):
        raise Refusal("operator.allocation", f"arange from {start} to {end} by {step}")


def _one_hot(args: Arguments) -> None:
    if type(args.get("num_classes", -1)) is int and args.get("num_classes", -1) < 1:
        raise Refusal("operator.value", "one_hot without num_classes: the largest value of a request would size it")


def _small_power(args: Arguments) -> None:
    if type(args["n"]) is not int or abs(args["n"]) > MAX_POWER:
        raise Refusal("operator.value", f"a matrix power of {args['n']}")


CHECKS: dict[str, Check] = {
    "aten.batch_norm.default": _not_training("training"),
    "aten.instance_norm.default": _instance_norm,
    **{f"aten.{name}.default": _not_training("train") for name in DROPOUTS},
    "aten.scaled_dot_product_attention.default": _no_dropout,
    "aten.lstm.input": _recurrent(2),
    "aten.gru.input": _recurrent(0),
    "aten.rnn_tanh.input": _recurrent(0),
    "aten.rnn_relu.input": _recurrent(0),
    "aten.einsum.default": _einsum,
    "aten.arange.default": _arange,
    "aten.arange.start": _arange,
    "aten.arange.start_step": _arange,
    "aten.one_hot.default": _one_hot,
    "aten.matrix_power.default": _small_power,
    "aten.linalg_matrix_power.default": _small_power,
}


def check(name: str, args: Arguments) -> None:
    """Raise a Refusal unless the call of operator ``name`` is in its accepted form."""
    _only_unpinned(args)
    _known_modes(args)
    _bounded_sizes(args, _sizes_of(name))
    _bounded_integers(name, args)
    if name in CHECKS:
        CHECKS[name](args)
