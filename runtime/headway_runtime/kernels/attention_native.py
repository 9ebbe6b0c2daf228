"""Paged attention of one layer by native code, called where the tensors are.

A step calls this once for each layer, so what is in order must be found so quickly: one look at all that a call may
rely on. Only when something is not is it told apart what.
"""

import torch

from headway_runtime.kernels.checks import Metadata, check_tensors
from headway_runtime.kernels.library import Library
from headway_runtime.prepare.decoder import LayerGeometry

WIDEST = 512
"""Numbers of a head that the kernels have room for: `WIDEST` in native/headway.h."""
ELEMENTS = (torch.float32, torch.bfloat16)
"""Of a cache."""

_F32, _I32, _I64 = torch.float32, torch.int32, torch.int64


class NativeAttention:
    """For keys [blocks, Hk, D, 16] and values [blocks, Hk, 16, D] on the processor."""

    def __init__(self, library: Library, geometry: LayerGeometry, keys: torch.Tensor, values: torch.Tensor) -> None:
        self._attend = library.attend
        self._geometry = geometry
        self._pools = (keys, values)  # they must live as long as their addresses are known
        self._at = (keys.data_ptr(), values.data_ptr())
        self._heads, self._kv_heads, self._dim = geometry.heads, geometry.kv_heads, geometry.head_dim
        self._sizes = (len(keys), geometry.heads, geometry.kv_heads, geometry.head_dim)
        self._bfloat16 = int(keys.dtype == torch.bfloat16)

    def __call__(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        metadata: Metadata,
        *,
        scale: float,
        window: int,
        softcap: float,
    ) -> torch.Tensor:
        """Write k and v, then attend: [T, Hq, D] of the type of q. Raises RuntimeError."""
        dtype = q.dtype
        if not self._in_order(q, k, v, metadata):
            check_tensors(q, k, v, metadata, self._geometry, self._pools[0].device)
            q, k, v = (tensor.float().contiguous().resolve_neg() for tensor in (q, k, v))
            metadata = Metadata(*(tensor.contiguous() for tensor in metadata))
        tables, lengths, starts, slots = metadata
        tokens = slots.shape[0]
        out = torch.empty((tokens, self._heads, self._dim))
        keys, values = self._at
        at = (q.data_ptr(), k.data_ptr(), v.data_ptr(), out.data_ptr(), keys, values)
        where = (tables.data_ptr(), lengths.data_ptr(), starts.data_ptr(), slots.data_ptr())
        strides = (*q.stride()[:2], *k.stride()[:2], *v.stride()[:2])
        sizes = (*strides, tokens, *tables.shape, *self._sizes, window, self._bfloat16)
        self._attend(pointers=at + where, sizes=sizes, scale=scale, softcap=softcap)
        return out if dtype is _F32 else out.to(dtype)

    def _in_order(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, metadata: Metadata) -> bool:
        """Whether shapes, types and devices are as they should be, the last axes dense, and memory what it says."""
        tables, lengths, starts, slots = metadata
        if tables.dim() != 2 or slots.dim() != 1:
            return False
        tokens, sequences = slots.shape[0], tables.shape[0]
        shape = (tokens, self._kv_heads, self._dim)
        return (
            q.shape == (tokens, self._heads, self._dim)
            and k.shape == shape
            and v.shape == shape
            and lengths.shape == (sequences,)
            and starts.shape == (sequences + 1,)
            and (q.dtype is _F32 and k.dtype is _F32 and v.dtype is _F32)
            and (tables.dtype is _I32 and lengths.dtype is _I32 and starts.dtype is _I32 and slots.dtype is _I64)
            and (q.is_cpu and k.is_cpu and v.is_cpu)
            and (tables.is_cpu and lengths.is_cpu and starts.is_cpu and slots.is_cpu)
            and q.stride(2) == k.stride(2) == v.stride(2) == 1
            and not (q.is_neg() or k.is_neg() or v.is_neg())  # a view whose numbers are the negatives of its memory
            and (tables.is_contiguous() and lengths.is_contiguous())
            and (starts.is_contiguous() and slots.is_contiguous())
        )
