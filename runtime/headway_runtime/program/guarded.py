"""Operators that end the process on some arguments instead of raising: their shapes and values are checked just
before the call.

Each was found by a fuzz run (``tests/hostile/fuzz_operators.py``, ``tests/hostile/test_operator_crashes.py``). Real
models need them, so they are on the list; what a program claims about shapes is not proof, what arrives here is.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch

from headway_runtime.prepare.translate import operators
from headway_runtime.program.guarded_bags import BAGS, need

MAX_SCALE = 10_000.0
"""Of an interpolation: by how much it may enlarge or shrink."""

Operator = Callable[..., Any]


def _batch_norm(operator: Operator) -> Operator:
    """x [N, C, …]; every statistic, weight and bias has C elements."""

    @wraps(operator)
    def call(
        x: torch.Tensor,
        weight: torch.Tensor | None,
        bias: torch.Tensor | None,
        mean: torch.Tensor,
        variance: torch.Tensor,
        *rest: Any,
        **named: Any,
    ) -> Any:
        need(x.dim() >= 2, "batch norm of a tensor with fewer than 2 axes")
        given = [t for t in (weight, bias, mean, variance) if t is not None]
        need(all(t.shape == (x.shape[1],) for t in given), f"batch norm of {x.shape[1]} channels with other sizes")
        return operator(x, weight, bias, mean, variance, *rest, **named)

    return call


def _recurrent(operator: Operator, gates: int) -> Operator:
    """``input`` [time, rows, features] or [rows, time, features]; state [layers * directions, rows, hidden] once or
    twice.
    """

    @wraps(operator)
    def call(
        x: torch.Tensor,
        state: Any,
        params: list[torch.Tensor],
        has_biases: bool,
        layers: int,
        dropout: float,
        train: bool,
        both: bool,
        batch_first: bool,
    ) -> Any:
        states = [state] if isinstance(state, torch.Tensor) else list(state)
        hidden = states[0].shape[-1] if states[0].dim() == 3 else 0
        directions = 2 if both else 1
        need(x.dim() == 3 and hidden > 0 and x.shape[-1] > 0, "a recurrent layer of a tensor without three axes")
        rows = x.shape[0 if batch_first else 1]
        need(
            all(s.shape == (layers * directions, rows, hidden) for s in states), "a recurrent layer with another state"
        )
        everything = [x, *states, *params]
        need(
            x.is_floating_point() and len({(t.dtype, t.device) for t in everything}) == 1,
            "a recurrent layer of mixed types",
        )
        expected: list[tuple[int, ...]] = []
        for layer in range(layers):
            features = x.shape[-1] if layer == 0 else hidden * directions
            weights = [(gates * hidden, features), (gates * hidden, hidden)]
            expected += (weights + [(gates * hidden,)] * (2 if has_biases else 0)) * directions
        need([tuple(p.shape) for p in params] == expected, "a recurrent layer with weights of other sizes")
        return operator(x, state, params, has_biases, layers, dropout, train, both, batch_first)

    return call


def _truncating_division(operator: Operator) -> Operator:
    """The least integer divided by -1 has no result, and the processor traps."""

    @wraps(operator)
    def call(a: torch.Tensor, b: Any, *, rounding_mode: str | None = None) -> Any:
        kind = torch.result_type(a, b)
        if rounding_mode == "trunc" and kind in {torch.int32, torch.int64}:
            trap = (a == torch.iinfo(kind).min) & (b == -1)
            need(not bool(trap.any()), "an integer division that overflows")
        return operator(a, b, rounding_mode=rounding_mode)

    return call


def _contiguous(operator: Operator) -> Operator:
    """On an expanded tensor the kernel reads beyond the memory it has."""

    @wraps(operator)
    def call(x: torch.Tensor, *rest: Any, **named: Any) -> Any:
        return operator(x.contiguous(), *rest, **named)

    return call


def _scaled(operator: Operator) -> Operator:
    """The place that an element comes from is its own place divided by the scale: beyond 64 bits that is anywhere."""
    order = [argument.name for argument in operator._schema.arguments]  # type: ignore[attr-defined]

    @wraps(operator)
    def call(*args: Any, **named: Any) -> Any:
        for name, value in (*zip(order, args, strict=False), *named.items()):
            if name.startswith("scale") and value is not None:
                scales = value if isinstance(value, (list, tuple)) else [value]
                need(all(1 / MAX_SCALE <= s <= MAX_SCALE for s in scales), f"{name} of {scales}")
        return operator(_with_plain_rows(args[0]), *args[1:], **named)

    return call


def _with_plain_rows(x: torch.Tensor) -> torch.Tensor:
    """Kernels for bytes take the stride of the last axis for the distance of elements, even where there is but one."""
    if x.dtype == torch.uint8 and x.dim() == 4 and x.shape[-1] == 1 and x.stride(-1) != 1:
        return x.clone(memory_format=torch.contiguous_format)
    return x


def _antialiased(operator: Operator) -> Operator:
    """x [N, C, H, W]. Where the scale is not that of the sizes, the kernel weighs elements by memory it never set."""
    scaled = _scaled(operator)

    @wraps(operator)
    def call(
        x: torch.Tensor,
        output_size: list[int],
        align_corners: bool,
        scales_h: float | None = None,
        scales_w: float | None = None,
    ) -> Any:
        for size, output, scale in zip(x.shape[2:], output_size, (scales_h, scales_w), strict=False):
            need(scale is None or abs(size * scale - output) < 1, f"a scale of {scale} from {size} to {output}")
        return scaled(x, output_size, align_corners, scales_h, scales_w)

    return call


def _attention(operator: Operator) -> Operator:
    """q [.., queries, width], k [.., keys, width], v [.., keys, values]. The kernel counts the keys of v: where k has
    fewer, it reads what lies behind k in memory.
    """

    @wraps(operator)
    def call(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *rest: Any, **named: Any) -> Any:
        need(min(q.dim(), k.dim(), v.dim()) >= 2, "attention of a tensor with fewer than 2 axes")
        need(k.shape[-2] == v.shape[-2], f"attention of {k.shape[-2]} keys to {v.shape[-2]} values")
        return operator(q, k, v, *rest, **named)

    return call


def _same_shape(operator: Operator) -> Operator:
    """Where input and target differ in shape, the mean is of memory that was never set."""

    @wraps(operator)
    def call(x: torch.Tensor, target: torch.Tensor, *rest: Any, **named: Any) -> Any:
        need(x.shape == target.shape, f"a loss of {list(x.shape)} against {list(target.shape)}")
        return operator(x, target, *rest, **named)

    return call


GUARDED: dict[str, Callable[[Operator], Operator]] = {
    "aten._native_batch_norm_legit_no_training.default": _batch_norm,
    "aten.lstm.input": lambda operator: _recurrent(operator, 4),
    "aten.gru.input": lambda operator: _recurrent(operator, 3),
    "aten.rnn_tanh.input": lambda operator: _recurrent(operator, 1),
    "aten.rnn_relu.input": lambda operator: _recurrent(operator, 1),
    **BAGS,
    **{name: _scaled for name in operators.names() if "upsample_" in name},
    "aten._upsample_bilinear2d_aa.default": _antialiased,
    "aten._upsample_bicubic2d_aa.default": _antialiased,
    "aten.binary_cross_entropy.default": _same_shape,
    "aten.scaled_dot_product_attention.default": _attention,
    "aten.median.dim": _contiguous,
    "aten.nanmedian.dim": _contiguous,
    **{
        f"aten.{name}.{overload}": _truncating_division
        for name in ("div", "div_", "divide", "divide_")
        for overload in ("Tensor_mode", "Scalar_mode")
    },
}
