"""Where torch's shape functions do not serve the gate: operators that depend on data, that would loop over a size, or
whose result depends on strides.

Strides are the kernels' affair: a convolution may answer in another memory format than its shape function says, and a
program that views the result was right when it was exported. So only sizes are held against a program.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch

META = torch.device("meta")

Rule = Callable[..., Any]


def _same_memory(x: torch.Tensor, shape: list[int]) -> torch.Tensor | None:
    """``x`` in another shape on the same storage, if that has room for all elements (an expanded tensor's has not)."""
    if x.is_complex() or x.untyped_storage().nbytes() < x.numel() * x.element_size():
        return None
    strides = [math.prod(max(1, n) for n in shape[axis + 1 :]) for axis in range(len(shape))]
    return x.as_strided(shape, strides, 0)


def _sizes(numel: int, shape: list[int]) -> list[int]:
    """The shape with its -1 replaced; an impossible one is left to torch to complain about."""
    known = math.prod(n for n in shape if n != -1)
    return [numel // known if n == -1 and known else n for n in shape]


def _view(operator: Rule) -> Rule:
    """May be a view of its argument, whatever its strides are here; a real copy is then an upper bound."""

    def call(x: torch.Tensor, shape: list[int]) -> Any:
        wanted = _sizes(x.numel(), shape)
        fits = all(n >= 0 for n in wanted) and math.prod(wanted) == x.numel()
        found = _same_memory(x, wanted) if fits else None
        return operator(x, shape) if found is None else found

    return call


def _contiguous(operator: Rule) -> Rule:
    def call(x: torch.Tensor, **named: Any) -> Any:
        found = _same_memory(x, list(x.shape))
        return operator(x, **named) if found is None else found

    return call


def _flatten(operator: Rule) -> Rule:
    def call(x: torch.Tensor, start_dim: int = 0, end_dim: int = -1) -> Any:
        shape = operator(torch.empty_strided(x.shape, _dense(x.shape), device=META), start_dim, end_dim).shape
        found = _same_memory(x, list(shape))
        return operator(x, start_dim, end_dim) if found is None else found

    return call


def _dense(shape: torch.Size) -> list[int]:
    return [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]


def _as_other(operator: Rule) -> Rule:
    def call(x: torch.Tensor, other: torch.Tensor) -> Any:
        found = _same_memory(x, list(other.shape)) if x.numel() == other.numel() else None
        return operator(x, other) if found is None else found

    return call


def _recurrent(_: Rule) -> Rule:
    """The results of a recurrent layer whose arguments ``guarded`` has checked: torch would go through all steps."""

    def call(
        x: torch.Tensor, state: Any, params: Any, biases: bool, layers: int, dropout: float, train: bool, both: bool,
        batch_first: bool,
    ) -> Any:  # fmt: skip
        states = [state] if isinstance(state, torch.Tensor) else list(state)
        outputs = x.new_empty([*x.shape[:2], states[0].shape[2] * (2 if both else 1)])
        return (outputs, *(s.new_empty(s.shape) for s in states))

    return call


def _batch_norm(operator: Rule) -> Rule:
    """In inference form the statistics that it would save are empty."""

    def call(x: torch.Tensor, *rest: Any, **named: Any) -> Any:
        return (operator(x, *rest, **named)[0], x.new_empty(0), x.new_empty(0))

    return call


def _choose_per_token(_: Rule) -> Rule:
    """Scale and zero point of each row, in the input's type unless that is too small."""

    def call(x: torch.Tensor, dtype: torch.dtype) -> Any:
        kind = x.dtype if x.is_floating_point() and x.dtype != torch.float16 else torch.float32
        return tuple(x.new_empty((*x.shape[:-1], 1), dtype=kind) for _ in range(2))

    return call


def _dequantize_per_token(_: Rule) -> Rule:
    def call(x: torch.Tensor, scales: torch.Tensor, zeros: torch.Tensor, *rest: Any, **named: Any) -> Any:
        return ((x - zeros) * scales).to(named.get("output_dtype", rest[3] if len(rest) > 3 else torch.float32))

    return call


RULES: Mapping[str, Callable[[Rule], Rule]] = {
    **{f"aten.{name}.default": _view for name in ("view", "reshape", "_unsafe_view")},
    **{f"aten.{name}.default": _as_other for name in ("view_as", "reshape_as")},
    "aten.contiguous.default": _contiguous,
    "aten.flatten.using_ints": _flatten,
    "aten._native_batch_norm_legit_no_training.default": _batch_norm,
    "quantized_decomposed.choose_qparams_per_token.default": _choose_per_token,
    "quantized_decomposed.dequantize_per_token.default": _dequantize_per_token,
    **{f"aten.{name}.input": _recurrent for name in ("lstm", "gru", "rnn_tanh", "rnn_relu")},
}


def _unbound(x: torch.Tensor, dim: int = 0) -> int:
    return int(x.shape[dim])


def _split(x: torch.Tensor, size: int, dim: int = 0) -> int:
    return max(1, -(-x.shape[dim] // size)) if size > 0 else 1


def _chunked(x: torch.Tensor, chunks: int, dim: int = 0) -> int:
    n = x.shape[dim]
    return -(-n // -(-n // chunks)) if n and chunks > 0 else chunks


def _sections(_: torch.Tensor, sections: int, *__: Any, **___: Any) -> int:
    return sections


PIECES: Mapping[str, Callable[..., int]] = {
    "aten.unbind.int": _unbound,
    "aten.split.Tensor": _split,
    "aten.unsafe_split.Tensor": _split,
    "aten.chunk.default": _chunked,
    "aten.unsafe_chunk.default": _chunked,
    "aten.tensor_split.sections": _sections,
    "aten.hsplit.int": _sections,
    "aten.vsplit.int": _sections,
    "aten.dsplit.int": _sections,
}
"""How many tensors an operator answers with: asked before it makes them, because it may be as many as a size."""


def _names(text: str) -> frozenset[str]:
    return frozenset(f"aten.{name}" for name in text.split())


DATA = _names("""
    item.default _local_scalar_dense.default nonzero.default nonzero_numpy.default argwhere.default where.default
    masked_select.default unique_consecutive.default unique_dim.default unique_dim_consecutive.default
    repeat_interleave.Tensor tensor_split.tensor_indices_or_sections
""")
"""Results whose number or size depends on data: nothing is known of them here."""

OTHERWISE = _names("ldexp.Tensor huber_loss.default linalg__powsum.default")
"""torch's shape functions of these answer with another element type than the operators: their results are unknown."""

STRICTER = _names("""
    __lshift__.Scalar __lshift__.Tensor __rshift__.Scalar __rshift__.Tensor where.Scalar where.ScalarOther
    where.ScalarSelf where.self pow_.Scalar roll.default tril_indices.default triu_indices.default elu.default
    elu_.default
""")
"""torch's shape functions of these refuse what the operators take (a predicate of bytes, shifted booleans): their
refusal says nothing. Found by ``tests/unit/test_shape_gate_operators.py``.
"""
