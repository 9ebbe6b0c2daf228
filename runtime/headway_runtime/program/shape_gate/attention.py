"""The shape of what attention over the cache answers, and whether it is called as the document says; see ``prepare``'s
``decoding``. The geometry comes from what the file claims of its tensors: here it is held against what they are.
"""

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor

from headway_runtime.prepare import decoding
from headway_runtime.prepare.decoder import ATTENTION, LayerGeometry

Rule = Callable[..., Any]


def rules_of(document: Mapping[str, Any]) -> Mapping[str, Rule]:
    """Rules of the operators that are ours, for this program. A rule raises ValueError for what does not fit."""
    if not decoding.is_decoder(document):
        return {}
    geometry, _ = decoding.read(document)
    return {ATTENTION: _attention({layer.layer: layer for layer in geometry.layers})}


def _attention(layers: Mapping[int, LayerGeometry]) -> Rule:
    def call(
        q: Tensor, k: Tensor, v: Tensor, block_tables: Tensor, seq_lens: Tensor, query_start_loc: Tensor,
        slot_mapping: Tensor, layer: int, scale: float, window: int, softcap: float,
    ) -> Tensor:  # fmt: skip
        known, tokens = layers[layer], slot_mapping.shape[0]
        _need("q", q, (tokens, known.heads, known.head_dim))
        for name, tensor in (("k", k), ("v", v)):
            _need(name, tensor, (tokens, known.kv_heads, known.head_dim))
        if len({q.dtype, k.dtype, v.dtype}) > 1 or not q.is_floating_point():
            raise ValueError(f"q, k and v of layer {layer} are {q.dtype}, {k.dtype} and {v.dtype}")
        return q.new_empty(q.shape)

    return call


def _need(name: str, tensor: Tensor, shape: tuple[int, ...]) -> None:
    if tuple(tensor.shape) != shape:
        raise ValueError(f"{name} is {list(tensor.shape)} where the file says {list(shape)}")
