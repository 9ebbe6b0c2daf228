"""The same for operators that read memory at places that their arguments name: bags of embeddings, Fourier transforms
of given axes, norms of slices, and single steps of recurrent networks.
"""

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

import torch

MAX_REPEATS = 1 << 20
"""Of one element; how much all of them take is bounded by the memory of the process."""

Operator = Callable[..., Any]


class OperatorArgumentError(ValueError):
    """An operator was called with arguments on which torch would read beyond a tensor."""


def need(holds: bool, what: str) -> None:
    """Raise OperatorArgumentError unless ``holds``."""
    if not holds:
        raise OperatorArgumentError(what)


def bag(operator: Operator) -> Operator:
    """weight [words, width], indices [n], offsets [bags]: bag i holds the indices from its offset to the next one's."""

    @wraps(operator)
    def call(
        weight: torch.Tensor,
        indices: torch.Tensor,
        offsets: torch.Tensor,
        scale_grad_by_freq: bool = False,
        mode: int = 0,
        sparse: bool = False,
        per_sample_weights: torch.Tensor | None = None,
        include_last_offset: bool = False,
        *padding: Any,
        **named: Any,
    ) -> Any:
        integers = {torch.int32, torch.int64}
        need(weight.dim() == 2 and weight.is_floating_point(), "a bag of embeddings that are no rows of numbers")
        need(indices.dim() == 1 and offsets.dim() == 1, "a bag of indices or offsets with several axes")
        need({indices.dtype, offsets.dtype} <= integers, "a bag of indices that are no integers")
        need(mode in (0, 1, 2), f"a bag of mode {mode}")
        need(offsets.numel() > 0 or not include_last_offset, "bags without the end of the last one")
        need(offsets.numel() > include_last_offset or not indices.numel(), "indices that are in no bag")
        if indices.numel() and not indices.is_meta:  # the shape gate has no numbers
            least, most = indices.aminmax()
            need(int(least) >= 0 and int(most) < weight.shape[0], f"an index of {weight.shape[0]} embeddings")
        if offsets.numel() and not offsets.is_meta:
            ends_well = int(offsets[0]) == 0 and int(offsets[-1]) <= indices.numel()
            need(ends_well and bool((offsets[1:] >= offsets[:-1]).all()), "bags that are not one behind the other")
        if per_sample_weights is not None:
            same = per_sample_weights.shape == indices.shape and per_sample_weights.dtype == weight.dtype
            need(same and mode == 0, "weights of a bag that do not fit its indices")
            per_sample_weights = per_sample_weights.contiguous()
        indices, offsets = indices.contiguous(), offsets.contiguous()  # some kernels step through them regardless
        rest = (scale_grad_by_freq, mode, sparse, per_sample_weights, include_last_offset, *padding)
        return operator(weight, indices, offsets, *rest, **named)

    return call


def real_to_complex(operator: Operator) -> Operator:
    """x real, transformed over the axes ``dim``."""

    @wraps(operator)
    def call(x: torch.Tensor, dim: Sequence[int], normalization: int, onesided: bool) -> Any:
        need(x.is_floating_point(), "a Fourier transform of a tensor that is not real")
        return operator(x, _axes(x, dim, normalization), normalization, onesided)

    return call


def complex_to_complex(operator: Operator) -> Operator:
    """x complex, transformed over the axes ``dim``."""

    @wraps(operator)
    def call(x: torch.Tensor, dim: Sequence[int], normalization: int, forward: bool) -> Any:
        need(x.is_complex(), "a Fourier transform of a tensor that is not complex")
        return operator(x, _axes(x, dim, normalization), normalization, forward)

    return call


def complex_to_real(operator: Operator) -> Operator:
    """x complex with half of the last axis of ``dim``, whose real form has ``last`` elements."""

    @wraps(operator)
    def call(x: torch.Tensor, dim: Sequence[int], normalization: int, last: int) -> Any:
        need(x.is_complex(), "a Fourier transform of a tensor that is not complex")
        axes = _axes(x, dim, normalization)
        need(last >= 1 and x.shape[axes[-1]] == last // 2 + 1, f"a Fourier transform to {last} elements")
        return operator(x, axes, normalization, last)

    return call


def _axes(x: torch.Tensor, dim: Sequence[int], normalization: int) -> list[int]:
    need(0 < len(dim) <= x.dim() and all(-x.dim() <= d < x.dim() for d in dim), "a Fourier transform of other axes")
    axes = [d % x.dim() for d in dim]
    need(len(set(axes)) == len(axes) and all(x.shape[d] > 0 for d in axes), "a Fourier transform of an axis twice")
    need(normalization in (0, 1, 2), "a Fourier transform with another normalization")
    return axes


def cell(gates: int) -> Callable[[Operator], Operator]:
    """x [rows, features], each state [rows, hidden], weights [gates * hidden, …]."""

    def guard(operator: Operator) -> Operator:
        @wraps(operator)
        def call(
            x: torch.Tensor,
            state: Any,
            of_input: torch.Tensor,
            of_state: torch.Tensor,
            *biases: torch.Tensor | None,
            **named: torch.Tensor | None,
        ) -> Any:
            states = [state] if isinstance(state, torch.Tensor) else list(state)
            need(x.dim() == 2 and len(states) == (2 if gates == 4 else 1), "a recurrent step of other tensors")
            hidden = states[0].shape[-1] if states[0].dim() == 2 else 0
            need(all(s.shape == (x.shape[0], hidden) for s in states), "a recurrent step with another state")
            shapes = [of_input.shape == (gates * hidden, x.shape[1]), of_state.shape == (gates * hidden, hidden)]
            given = [b for b in (*biases, *named.values()) if b is not None]
            shapes += [b.shape == (gates * hidden,) for b in given]
            need(all(shapes) and hidden > 0, "a recurrent step with weights of other sizes")
            everything = [x, *states, of_input, of_state, *given]
            same = len({(t.dtype, t.device) for t in everything}) == 1
            need(same and x.is_floating_point(), "a recurrent step of mixed types")
            return operator(x, state, of_input, of_state, *biases, **named)

        return call

    return guard


def weight_norm(operator: Operator) -> Operator:
    """v of any shape; g with one length for each slice of v along ``dim``."""

    @wraps(operator)
    def call(v: torch.Tensor, g: torch.Tensor, dim: int = 0) -> Any:
        need(v.dim() > 0 and 0 <= dim < v.dim(), "a weight norm along another axis")
        lengths = [n if axis == dim else 1 for axis, n in enumerate(v.shape)]
        need(list(g.shape) == lengths and v.numel() > 0, "a weight norm with other lengths")
        need(v.is_floating_point() and (v.dtype, v.device) == (g.dtype, g.device), "a weight norm of mixed types")
        return operator(v.contiguous(), g.contiguous(), dim)  # it reads beyond those that are expanded

    return call


def repeat(operator: Operator) -> Operator:
    """x [.., n, ..], repeats [n] or one for all."""

    @wraps(operator)
    def call(x: torch.Tensor, repeats: torch.Tensor, dim: int | None = None, **named: Any) -> Any:
        length = x.numel() if dim is None else x.shape[dim]
        integers = repeats.dtype in {torch.int32, torch.int64}
        need(integers and repeats.dim() <= 1 and repeats.numel() in (1, length), "repeats that do not fit a tensor")
        if not repeats.is_meta and repeats.numel():
            need(int(repeats.min()) >= 0 and int(repeats.max()) <= MAX_REPEATS, "a number of repeats")
        return operator(x, repeats, dim, **named)

    return call


def one_row_norm(operator: Operator) -> Operator:
    """x [1, C, …], normalised by its own statistics. With more rows, each row's answer would depend on the others."""

    @wraps(operator)
    def call(x: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None, *rest: Any, **named: Any) -> Any:
        need(x.dim() >= 2 and x.shape[0] == 1, "a batch norm that mixes the rows of its batch; call .eval() and export")
        given = [t for t in (weight, bias) if t is not None]
        need(all(t.shape == (x.shape[1],) for t in given), f"a norm of {x.shape[1]} channels with other sizes")
        return operator(x, weight, bias, *rest, **named)

    return call


BAGS: dict[str, Callable[[Operator], Operator]] = {
    "aten.embedding_bag.default": bag,
    "aten.embedding_bag.padding_idx": bag,
    "aten._embedding_bag.default": bag,
    "aten._embedding_bag_forward_only.default": bag,
    "aten._fft_r2c.default": real_to_complex,
    "aten._fft_c2c.default": complex_to_complex,
    "aten._fft_c2r.default": complex_to_real,
    "aten._native_batch_norm_legit.no_stats": one_row_norm,
    "aten.repeat_interleave.self_Tensor": repeat,
    "aten._weight_norm.default": weight_norm,
    "aten._weight_norm_interface.default": weight_norm,
    "aten.lstm_cell.default": cell(4),
    "aten.gru_cell.default": cell(3),
    "aten.rnn_tanh_cell.default": cell(1),
    "aten.rnn_relu_cell.default": cell(1),
}
