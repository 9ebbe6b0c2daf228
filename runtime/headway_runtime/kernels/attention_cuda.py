"""Paged attention on a GPU, by what torch ships: the blocks of each sequence are gathered, then one padded
`scaled_dot_product_attention` for all of them.

UNTESTED ON A GPU: none was at hand. It is plain torch, and the tests run it on the CPU against the reference. Gathering
copies what is attended to once; a kernel that reads the blocks in place would not.
"""

import torch
from torch.nn.functional import scaled_dot_product_attention

from headway_runtime.kernels.checks import Metadata
from headway_runtime.prepare.decoder import BLOCK_TOKENS


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
    """As `reference.attend`: q [T, Hq, D], keys [blocks, Hk, D, 16], values [blocks, Hk, 16, D]; [T, Hq, D]."""
    tables, lengths, starts, _ = metadata
    tokens = len(q)
    most = int(starts.diff().max()) if len(lengths) else 0
    used = -(-int(lengths.max()) // BLOCK_TOKENS) if len(lengths) else 0
    out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    if not tokens:
        return out
    blocks = tables[:, :used].long().clamp(0, len(keys) - 1)  # what is beyond a length may be anything
    there = (torch.arange(used * BLOCK_TOKENS, device=q.device) < lengths[:, None])[:, None, :, None]
    k = keys[blocks].permute(0, 2, 1, 4, 3).flatten(2, 3).to(q.dtype)  # [B, Hk, used * 16, D]
    v = values[blocks].permute(0, 2, 1, 3, 4).flatten(2, 3).to(q.dtype)
    k, v = k.where(there, 0), v.where(there, 0)  # what another sequence left there may be NaN
    new = torch.arange(most, device=q.device)
    rows = (starts[:-1, None] + new).clamp(max=tokens - 1).long()  # [B, most]; padding repeats a token
    padded = q[rows].transpose(1, 2)  # [B, Hq, most, D]
    real = new < starts.diff()[:, None]  # [B, most]
    seen = _seen(lengths, starts, new, used * BLOCK_TOKENS, window)  # [B, most, used * 16]
    group = q.shape[1] // keys.shape[1]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    if softcap > 0:
        scores = softcap * torch.tanh((padded @ k.transpose(-1, -2)).float() * scale / softcap)
        answer = scores.masked_fill(~seen[:, None], float("-inf")).softmax(-1).to(v.dtype) @ v
    else:
        answer = scaled_dot_product_attention(padded, k, v, attn_mask=seen[:, None], scale=scale)
    out[rows[real]] = answer.transpose(1, 2)[real]
    return out


def _seen(lengths: torch.Tensor, starts: torch.Tensor, new: torch.Tensor, width: int, window: int) -> torch.Tensor:
    """bool [B, most, width]: what each new token sees. A row of padding sees the first token, so that it has a sum."""
    position = (lengths - starts.diff())[:, None, None] + new[:, None]
    key = torch.arange(width, device=lengths.device)
    seen = (key <= position) & (key < lengths[:, None, None])
    return (seen & (key > position - window) if window else seen) | ((key == 0) & (position >= lengths[:, None, None]))
