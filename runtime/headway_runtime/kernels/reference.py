"""Paged attention in plain torch: slow, short, and what every other implementation is compared with.

A layer's cache is two tensors. Keys lie across the block's tokens, so that a vector of a processor holds one element of
all 16 tokens and a score needs no sum across it:

    keys    [blocks, Hk, D, BLOCK_TOKENS]
    values  [blocks, Hk, BLOCK_TOKENS, D]
"""

import torch

from headway_runtime.kernels.checks import Metadata
from headway_runtime.prepare.decoder import BLOCK_TOKENS


def write(keys: torch.Tensor, values: torch.Tensor, k: torch.Tensor, v: torch.Tensor, slots: torch.Tensor) -> None:
    """Put k and v [T, Hk, D] where `slots` int64 [T] say; -1: nowhere."""
    written = slots >= 0
    blocks, offsets = slots[written] // BLOCK_TOKENS, slots[written] % BLOCK_TOKENS
    keys[blocks, :, :, offsets] = k[written].to(keys.dtype)
    values[blocks, :, offsets] = v[written].to(values.dtype)


def attend(
    q: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    metadata: Metadata,
    *,
    scale: float,
    window: int,
    softcap: float,
) -> torch.Tensor:
    """Attention of the new tokens of each sequence to what the cache has of it. [T, Hq, D], computed in float32 or
    wider.
    """
    out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    starts = metadata.query_start_loc.tolist()
    wide = torch.promote_types(q.dtype, torch.float32)
    for row, length in enumerate(metadata.seq_lens.tolist()):
        first, last = starts[row], starts[row + 1]
        if first == last:
            continue
        blocks = metadata.block_tables[row, : -(-length // BLOCK_TOKENS)].long()
        k = keys[blocks].permute(1, 0, 3, 2).flatten(1, 2)[:, :length].to(wide)  # [Hk, length, D]
        v = values[blocks].permute(1, 0, 2, 3).flatten(1, 2)[:, :length].to(wide)  # [Hk, length, D]
        grouped = q[first:last].to(wide).unflatten(1, (len(k), -1)).permute(1, 2, 0, 3)  # [Hk, G, n, D]
        scores = grouped @ k[:, None].transpose(-1, -2) * scale  # [Hk, G, n, length]
        if softcap > 0:
            scores = softcap * torch.tanh(scores / softcap)
        scores = scores.masked_fill(~_seen(last - first, length, window, q.device), float("-inf"))
        answer = scores.softmax(-1) @ v[:, None]  # [Hk, G, n, D]
        out[first:last] = answer.permute(2, 0, 1, 3).flatten(1, 2).to(out.dtype)
    return out


def _seen(new: int, length: int, window: int, device: torch.device) -> torch.Tensor:
    """bool [new, length]: what each of the last `new` tokens sees: itself, what is before it, no more than `window`."""
    position = torch.arange(length - new, length, device=device)[:, None]
    key = torch.arange(length, device=device)
    seen = key <= position
    return seen & (key > position - window) if window else seen


GROUP = 64  # numbers along K that share a scale


def quantised(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """float32 [N, K] as int8 [N, groups, GROUP], within 127, filled up with zeros, and bfloat16 scales [N, groups]."""
    grouped = _grouped(weight)
    peaks = grouped.abs().amax(-1)
    bits = (peaks / 127).view(torch.int32) + 0xFFFF  # up to the next bfloat16, so that no byte exceeds 127
    scales = (bits & -0x10000).view(torch.float32)
    factors = torch.where(peaks > 1e-30, 1 / scales, 0.0)
    return (grouped * factors[..., None]).round().to(torch.int8), scales.bfloat16()


def linear_int8(x: torch.Tensor, weight: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """x float32 [.., K] times a quantised weight: x becomes int8, too, and only what is joined between groups is
    rounded. A group that is not finite makes its row NaN.
    """
    grouped = _grouped(x)
    peaks = grouped.abs().amax(-1)
    factors = torch.where(peaks > 1e-30, torch.full_like(peaks, 127) / peaks, 0.0)  # 127 / peaks rounds twice
    whole = (grouped * factors[..., None]).round()
    steps = torch.where(peaks.isfinite(), peaks / 127, torch.nan)
    sums = torch.einsum("...gk,ngk->...gn", whole, weight.float())  # whole numbers, exact in float32
    return torch.einsum("...gn,...g,ng->...n", sums, steps, scales.float())


def _grouped(x: torch.Tensor) -> torch.Tensor:
    """[.., K] as [.., groups, GROUP], filled up with zeros."""
    return torch.nn.functional.pad(x, (0, -x.shape[-1] % GROUP)).unflatten(-1, (-1, GROUP))
