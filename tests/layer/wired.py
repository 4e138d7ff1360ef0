"""Layers wired so that given q, k and v come out of their projections: the laws of attention then bind them."""

from typing import Any

import torch
from torch import Tensor, nn

import headwise as hw


class Take(nn.Module):
    """A projection that picks features: exact, so that NaN stays where it is put."""

    def __init__(self, start: int, stop: int) -> None:
        super().__init__()
        self.start, self.stop = start, stop

    def forward(self, x: Tensor) -> Tensor:
        return x[..., self.start : self.stop]


def wired(q: Tensor, k: Tensor, v: Tensor, *, joined: bool, **rules: Any) -> hw.MultiHeadAttention:
    """A layer over the heads of q, k and v; joined: it reads all three from the features of one input."""
    (_, Hq, _, D), (_, Hk, _, Dv) = q.shape, v.shape
    widths = Hq * D, Hk * D, Hk * Dv
    sink = rules.get("sink")
    score = hw.DotProduct(rules.get("scale"), rules.get("softcap"), None if sink is None else "learned")
    layer = hw.MultiHeadAttention(
        sum(widths) if joined else widths[0], Hq, num_kv_heads=Hk, head_dim=D, v_head_dim=Dv,
        kdim=sum(widths) if joined else widths[1], vdim=sum(widths) if joined else widths[2],
        out_dim=Hq * Dv, score=score, dtype=q.dtype,
    )  # fmt: skip
    start = 0
    for name, width in zip(("q_proj", "k_proj", "v_proj"), widths, strict=True):
        setattr(layer, name, Take(start, start + width))
        start += width if joined else 0
    layer.out_proj = nn.Identity()
    if sink is not None:
        layer.sink = nn.Parameter(sink)
    return layer.requires_grad_(False)


def merged(heads: Tensor) -> Tensor:
    """(B, H, L, D) -> (B, L, H*D)."""
    return heads.transpose(1, 2).flatten(-2)


def split(features: Tensor, H: int) -> Tensor:
    """(B, L, H*D) -> (B, H, L, D)."""
    return features.unflatten(-1, (H, -1)).transpose(1, 2)


def joined_tokens(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Tokens (B, Lk, features) of self-attention whose last queries are q; those before have queries of zeros."""
    B, Hq, Lq, D = q.shape
    before = q.new_zeros(B, Hq, k.shape[2] - Lq, D)
    return torch.cat([merged(torch.cat([before, q], dim=2)), merged(k), merged(v)], dim=-1)
