"""Shapes of the operators that most models are made of, for their common forms.

torch's own shape functions of these are Python that imports its compiler first: 86 MB and a second and a half in every
pod. A rule answers None in any form that it does not know, or that may be wrong, and torch's is then asked: a rule
never refuses. Each is held against torch's operators in ``tests/unit/test_shape_gate_operators.py``.
"""

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import torch
from torch import Tensor

from headway_runtime.program import functions
from headway_runtime.program.shape_gate.same import SAME
from headway_runtime.program.shape_gate.sizes import axes_of, broadcast, fits, like, one_type, per_channel, summed_type

Rule = Callable[..., Any]


UNTAGGED = frozenset(
    f"aten.{name}.{kind}" for name in ("__and__", "__or__", "__xor__") for kind in ("Tensor", "Scalar")
) | {"aten.where.ScalarOther", "aten.where.ScalarSelf", "aten.hardswish_.default"}
"""Operators that are pointwise, though torch does not tag them."""


@cache
def pointwise(name: str) -> Rule | None:
    """The rule of an operator that torch tags as pointwise: sizes broadcast, and the element type is what the operator
    itself answers on single elements.
    """
    if name in functions.SCALARS or name == "aten.prelu.default":
        return None
    operator: Any = functions.torch_operator(name)
    tagged = torch.Tag.pointwise in operator.tags or name in UNTAGGED
    if not tagged or [str(r.type) for r in operator._schema.returns] != ["Tensor"]:
        return None
    in_place = operator._schema.is_mutable

    def call(*args: Any, **named: Any) -> Tensor | None:
        tensors = [a for a in (*args, *named.values()) if isinstance(a, Tensor)]
        shape = broadcast(*(t.shape for t in tensors))
        if not tensors or shape is None or any(isinstance(a, list) for a in (*args, *named.values())):
            return None
        if in_place:
            return tensors[0] if tensors[0] is args[0] and tuple(tensors[0].shape) == shape else None
        dtype = _probed(name, _probe(args), _probe(tuple(named.items())))
        return None if dtype is None else like(tensors[0], shape, dtype)

    return call


def _probe(values: tuple[Any, ...]) -> tuple[Any, ...]:
    """Arguments with element type and rank instead of tensors."""
    return tuple(
        ("tensor", v.dtype, v.dim()) if isinstance(v, Tensor) else _probe(v) if isinstance(v, tuple) else (type(v), v)
        for v in values
    )


@cache
def _probed(name: str, args: tuple[Any, ...], named: tuple[Any, ...]) -> torch.dtype | None:
    """Element type of the result, by a call on single elements; None when that fails."""

    def value(v: tuple[Any, ...]) -> Any:
        return torch.ones((1,) * v[2], dtype=v[1]) if v[0] == "tensor" else v[1]

    keywords = {key[1]: value(v) for key, v in named}
    keywords.pop("device", None)
    try:
        result: Tensor = functions.torch_operator(name)(*(value(v) for v in args), **keywords)
    except Exception:
        return None
    return result.dtype


def _linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor | None:
    known = weight.dim() == 2 and x.dim() >= 1 and x.shape[-1] == weight.shape[1] and one_type(x, weight, bias)
    return like(x, (*x.shape[:-1], weight.shape[0])) if known and per_channel(bias, weight.shape[0]) else None


def _mm(a: Tensor, b: Tensor) -> Tensor | None:
    return _matmul(a, b) if a.dim() == b.dim() == 2 else None


def _bmm(a: Tensor, b: Tensor) -> Tensor | None:
    return _matmul(a, b) if a.dim() == b.dim() == 3 and a.shape[0] == b.shape[0] else None


def _matmul(a: Tensor, b: Tensor) -> Tensor | None:
    if a.dim() < 2 or b.dim() < 2 or a.shape[-1] != b.shape[-2] or not one_type(a, b):
        return None
    batch = broadcast(a.shape[:-2], b.shape[:-2])
    return None if batch is None else like(a, (*batch, a.shape[-2], b.shape[-1]))


def _plus_product(product: Rule) -> Rule:
    def call(x: Tensor, a: Tensor, b: Tensor, beta: Any = 1, alpha: Any = 1) -> Tensor | None:
        found: Tensor | None = product(a, b)
        return found if found is not None and one_type(x, a) and fits(x.shape, found.shape) else None

    return call


def _attention(
    q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None = None, dropout_p: float = 0.0, is_causal: bool = False,
    **_: Any,
) -> Tensor | None:  # fmt: skip
    alike = q.dim() == k.dim() == v.dim() and q.dim() >= 3 and q.shape[:-2] == k.shape[:-2] == v.shape[:-2]
    if not alike or q.shape[-1] != k.shape[-1] or k.shape[-2] != v.shape[-2] or not one_type(q, k, v):
        return None
    if attn_mask is not None and not fits(attn_mask.shape, (*q.shape[:-1], k.shape[-2])):
        return None
    return like(q, (*q.shape[:-1], v.shape[-1]))


def _reduced(kind: Callable[[Tensor], torch.dtype | None], *, empty: bool) -> Rule:
    """Over the axes of a list. ``kind`` gives the element type, None for those that are not known; ``empty``: whether
    there is a result of no elements.
    """

    def call(x: Tensor, dim: Any = None, keepdim: bool = False, dtype: torch.dtype | None = None) -> Tensor | None:
        axes = axes_of(x, [dim] if isinstance(dim, int) else dim)
        found = dtype or kind(x)
        if axes is None or found is None or not (empty or x.numel()):
            return None
        sizes = [1 if i in axes else n for i, n in enumerate(x.shape) if keepdim or i not in axes]
        return like(x, sizes, found)

    return call


def _arg(x: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor | None:
    return None if dim is None else _reduced(lambda _: torch.int64, empty=False)(x, dim, keepdim)


def _floating(x: Tensor) -> torch.dtype | None:
    return x.dtype if x.is_floating_point() else None


def _topk(x: Tensor, k: int, dim: int = -1, *_: Any, **__: Any) -> tuple[Tensor, Tensor] | None:
    axes = axes_of(x, [dim])
    if axes is None or k < 0 or k > x.shape[dim]:
        return None
    shape = [k if i in axes else n for i, n in enumerate(x.shape)]
    return like(x, shape), like(x, shape, torch.int64)


def _embedding(weight: Tensor, indices: Tensor, *_: Any, **__: Any) -> Tensor | None:
    known = weight.dim() == 2 and indices.dtype in {torch.int32, torch.int64}
    return like(weight, (*indices.shape, weight.shape[1])) if known else None


def _cat(tensors: list[Tensor], dim: int = 0) -> Tensor | None:
    first = tensors[0] if tensors else None
    if first is None or not one_type(*tensors) or not first.dim() or not -first.dim() <= dim < first.dim():
        return None
    axis = dim % first.dim()
    rests = {(*t.shape[:axis], *t.shape[axis + 1 :]) for t in tensors if t.dim() == first.dim()}
    if len(rests) != 1 or any(t.dim() != first.dim() for t in tensors):
        return None
    return like(first, (*first.shape[:axis], sum(t.shape[axis] for t in tensors), *first.shape[axis + 1 :]))


def _stack(tensors: list[Tensor], dim: int = 0) -> Tensor | None:
    first = tensors[0] if tensors else None
    if first is None or not one_type(*tensors) or len({t.shape for t in tensors}) > 1:
        return None
    if not -first.dim() - 1 <= dim <= first.dim():
        return None
    axis = dim % (first.dim() + 1)
    return like(first, (*first.shape[:axis], len(tensors), *first.shape[axis:]))


def _index(x: Tensor, indices: list[Tensor | None]) -> Tensor | None:
    """Whole numbers only; a mask counts its elements. Adjacent indexed axes stay where they were, others come first."""
    given = [i for i, t in enumerate(indices) if t is not None]
    found = [t for t in indices if t is not None]
    shape = broadcast(*(t.shape for t in found))
    known = given and len(indices) <= x.dim() and all(t.dtype in {torch.int32, torch.int64} for t in found)
    if not known or shape is None or (0 in x.shape and 0 not in shape):
        return None
    rest = [n for i, n in enumerate(x.shape) if i not in given]
    at = given[0] if given[-1] - given[0] == len(given) - 1 else 0
    return like(x, (*rest[:at], *shape, *rest[at:]))


def _gather(x: Tensor, dim: int, index: Tensor, **_: Any) -> Tensor | None:
    axes = axes_of(x, [dim])
    if axes is None or index.dtype != torch.int64 or x.dim() != index.dim():
        return None
    inside = all(i in axes or n <= x.shape[i] for i, n in enumerate(index.shape))
    return like(x, index.shape) if inside else None


FAST: Mapping[str, Rule] = {
    **SAME,
    "aten.linear.default": _linear,
    "aten.mm.default": _mm,
    "aten.bmm.default": _bmm,
    "aten.matmul.default": _matmul,
    "aten.addmm.default": _plus_product(_mm),
    "aten.baddbmm.default": _plus_product(_bmm),
    "aten.scaled_dot_product_attention.default": _attention,
    "aten.mean.dim": _reduced(_floating, empty=True),
    "aten.sum.dim_IntList": _reduced(summed_type, empty=True),
    "aten.amax.default": _reduced(lambda x: x.dtype, empty=False),
    "aten.amin.default": _reduced(lambda x: x.dtype, empty=False),
    "aten.argmax.default": _arg,
    "aten.argmin.default": _arg,
    "aten.topk.default": _topk,
    "aten.embedding.default": _embedding,
    "aten.cat.default": _cat,
    "aten.stack.default": _stack,
    "aten.index.Tensor": _index,
    "aten.gather.default": _gather,
}
