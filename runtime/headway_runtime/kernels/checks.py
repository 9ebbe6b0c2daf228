"""What must hold before attention touches memory. The metadata comes from our engine, the rest from a stranger's
program: shapes and element types are compared with the geometry, and every slot, block and length with the cache.
"""

from typing import NamedTuple

import torch

from headway_runtime.prepare.decoder import BLOCK_TOKENS, LayerGeometry

_MOST = 3.4e38  # what float32 holds
_WHOLE = (1 << 31) - 1  # more tokens than a sequence has


class Metadata(NamedTuple):
    """Where the tokens of a step belong, in the operator's order; see `prepare.decoder`."""

    block_tables: torch.Tensor  # int32 [B, M]
    seq_lens: torch.Tensor  # int32 [B]
    query_start_loc: torch.Tensor  # int32 [B + 1]
    slot_mapping: torch.Tensor  # int64 [T]


def need(condition: bool, message: str) -> None:
    """Raises RuntimeError with the message unless the condition holds."""
    if not condition:
        raise RuntimeError(f"paged attention: {message}")


def check_tensors(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, metadata: Metadata, geometry: LayerGeometry, device: torch.device
) -> None:
    """Shapes, element types and devices, against what the layer is said to be. Raises RuntimeError."""
    tokens = metadata.slot_mapping.shape[0] if metadata.slot_mapping.dim() == 1 else -1
    dim = geometry.head_dim
    _shaped("q", q, (tokens, geometry.heads, dim))
    _shaped("k", k, (tokens, geometry.kv_heads, dim))
    _shaped("v", v, (tokens, geometry.kv_heads, dim))
    need(q.is_floating_point() and q.dtype == k.dtype == v.dtype, f"q is {q.dtype}, k {k.dtype}, v {v.dtype}")
    tables, lengths, starts, slots = metadata
    need(tables.dim() == 2, f"block_tables has {tables.dim()} axes, not 2")
    _shaped("seq_lens", lengths, (tables.shape[0],))
    _shaped("query_start_loc", starts, (tables.shape[0] + 1,))
    for name, tensor in zip(("block_tables", "seq_lens", "query_start_loc"), metadata, strict=False):
        need(tensor.dtype == torch.int32, f"{name} is {tensor.dtype}, not int32")
    need(slots.dtype == torch.int64, f"slot_mapping is {slots.dtype}, not int64")
    need(all(t.device == device for t in (q, k, v, *metadata)), f"not all arguments are on {device}")


def check_values(metadata: Metadata, blocks: int) -> None:
    """Slots, blocks and lengths, against a cache of so many blocks. Raises RuntimeError."""
    tables, lengths, starts, slots = metadata
    new = starts.diff()
    need(int(starts[0]) == 0 and int(starts[-1]) == len(slots), "query_start_loc does not go from 0 to the tokens")
    need(bool((new >= 0).all()), "query_start_loc goes back")
    need(bool((lengths >= new).all()), "a sequence is shorter than what is added to it")
    need(bool((lengths <= tables.shape[1] * BLOCK_TOKENS).all()), "a sequence is longer than its block table")
    need(bool(((slots >= -1) & (slots < blocks * BLOCK_TOKENS)).all()), f"a slot beyond {blocks} blocks")
    used = torch.arange(tables.shape[1], device=tables.device) * BLOCK_TOKENS < lengths[:, None]
    need(bool(((tables >= 0) & (tables < blocks) | ~used).all()), f"a block beyond {blocks}")


def check_numbers(scale: float, window: int, softcap: float) -> None:
    """Raises RuntimeError."""
    if not (-_MOST <= scale <= _MOST and 0 <= window <= _WHOLE and 0 <= softcap <= _MOST):
        raise RuntimeError(f"paged attention: scale {scale}, window {window}, softcap {softcap}")


def _shaped(name: str, tensor: torch.Tensor, shape: tuple[int, ...]) -> None:
    need(tuple(tensor.shape) == shape, f"{name} is {list(tensor.shape)}, not {list(shape)}")
