"""The keys and values of all sequences, in blocks of 16 tokens: the only state of a decoder."""

from collections.abc import Sequence

import torch

from headway_runtime.kernels import attention_cuda, reference
from headway_runtime.kernels.attention_native import ELEMENTS, WIDEST, NativeAttention
from headway_runtime.kernels.checks import Metadata, check_numbers, check_tensors, check_values, need
from headway_runtime.kernels.library import Library, native
from headway_runtime.prepare.decoder import BLOCK_TOKENS, DecoderGeometry, LayerGeometry


class PagedCache:
    """`blocks` blocks in each layer, block 0 among them, which belongs to nobody. All memory is taken at once: a
    pod that has too little ends before it serves. One thread at a time may use it.
    """

    def __init__(
        self, geometry: DecoderGeometry, *, blocks: int, dtype: torch.dtype, device: torch.device | str = "cpu"
    ) -> None:
        need(blocks > 0, f"a cache of {blocks} blocks")
        self.blocks = blocks
        self.dtype = dtype
        self.device = torch.device(device)
        self._layers = {layer.layer: layer for layer in geometry.layers}
        self._pools = {layer.layer: self._pool(layer) for layer in geometry.layers}
        self._native: dict[int, NativeAttention] = {}
        self.use(native())

    def use(self, library: Library | None) -> None:
        """Compute with this library from now on, where it has code for it; with None, in plain torch."""
        self._native = {}
        if library is None or self.device.type != "cpu" or self.dtype not in ELEMENTS:
            return
        for number, layer in self._layers.items():
            if layer.head_dim % 8 == 0 and layer.head_dim <= WIDEST:
                self._native[number] = NativeAttention(library, layer, *self._pools[number])

    @property
    def bytes(self) -> int:
        """Of all layers."""
        return sum(pool.numel() * pool.element_size() for pair in self._pools.values() for pool in pair)

    def copy(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Copy whole blocks in all layers, each pair (from, to) as the cache was before. Raises RuntimeError for a
        block that is not there.
        """
        if not pairs:
            return
        need(all(0 <= block < self.blocks for pair in pairs for block in pair), f"a block beyond {self.blocks}")
        sources, targets = torch.tensor(pairs, device=self.device).unbind(1)
        for pair in self._pools.values():
            for pool in pair:
                pool[targets] = pool[sources]

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
    ) -> torch.Tensor:
        """The operator `headway::paged_attention`, see `prepare.decoder`: write k and v, then attend; [T, Hq, D].

        Raises RuntimeError for anything that would reach outside of the cache or the arguments.
        """
        if layer not in self._pools:
            raise RuntimeError(f"paged attention: no layer {layer}")
        metadata = Metadata(block_tables, seq_lens, query_start_loc, slot_mapping)
        check_numbers(scale, window, softcap)
        if native := self._native.get(layer):
            return native(q, k, v, metadata, scale=scale, window=window, softcap=softcap)
        check_tensors(q, k, v, metadata, self._layers[layer], self.device)
        check_values(metadata, self.blocks)
        pools = self._pools[layer]
        reference.write(*pools, k, v, slot_mapping)
        attend = attention_cuda.attend if self.device.type == "cuda" else reference.attend
        return attend(q, *pools, metadata, scale=scale, window=window, softcap=softcap)

    def _pool(self, layer: LayerGeometry) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys [blocks, Hk, D, 16] and values [blocks, Hk, 16, D]; see `reference`."""
        heads, dim = layer.kv_heads, layer.head_dim
        need(heads > 0 and dim > 0 and layer.heads % heads == 0, f"layer {layer.layer}: {layer}")
        keys = torch.zeros(self.blocks, heads, dim, BLOCK_TOKENS, dtype=self.dtype, device=self.device)
        values = torch.zeros(self.blocks, heads, BLOCK_TOKENS, dim, dtype=self.dtype, device=self.device)
        return keys, values
