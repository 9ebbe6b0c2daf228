"""The operator `headway::paged_attention` as torch knows it: for tracing, and for trying what was traced.

A pod never imports this: its register machine calls the pod's cache by itself. Here the cache is whatever
`bound` has put behind the operator.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol

import torch

from headway_runtime.prepare.decoder import SCHEMA


class Attends(Protocol):
    """A cache that writes keys and values, then attends: `kernels.cache.PagedCache`."""

    def attend(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        block_tables: torch.Tensor,
        seq_lens: torch.Tensor,
        query_start_loc: torch.Tensor,
        slot_mapping: torch.Tensor,
        layer: int,
        scale: float,
        window: int,
        softcap: float,
    ) -> torch.Tensor: ...


_CACHE: ContextVar[Attends] = ContextVar("cache")
_NAMESPACE, _, _SIGNATURE = SCHEMA.partition("::")

_library = torch.library.Library(_NAMESPACE, "FRAGMENT")
_library.define(_SIGNATURE)


@contextmanager
def bound(cache: Attends) -> Iterator[None]:
    """Within it, every call of the operator goes to `cache`."""
    token = _CACHE.set(cache)
    try:
        yield
    finally:
        _CACHE.reset(token)


def _attend(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    block_tables: torch.Tensor,
    seq_lens: torch.Tensor,
    query_start_loc: torch.Tensor,
    slot_mapping: torch.Tensor,
    layer: int,
    scale: float,
    window: int,
    softcap: float,
) -> torch.Tensor:
    """q [T, Hq, D], k and v [T, Hk, D] -> [T, Hq, D]. Raises LookupError where no cache is bound."""
    return _CACHE.get().attend(
        q, k, v, block_tables, seq_lens, query_start_loc, slot_mapping, layer, scale, window, softcap
    )


def _shape(q: torch.Tensor, *_: object) -> torch.Tensor:
    return torch.empty_like(q, memory_format=torch.contiguous_format)


_library.impl("paged_attention", _attend, "CompositeExplicitAutograd")
torch.library.register_fake("headway::paged_attention", _shape, lib=_library)

paged_attention = torch.ops.headway.paged_attention.default
