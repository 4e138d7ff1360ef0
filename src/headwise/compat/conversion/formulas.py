"""Formulas: attention as each convention defines it, in plain torch in the dtype of its inputs."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

__all__ = ["heads", "joined", "mixed", "turned"]


def heads(x: Tensor, weight: Tensor, bias: Tensor | None, count: int) -> Tensor:
    """x (B, L, in) projected and cut into heads, (B, count, L, D)."""
    projected: Tensor = F.linear(x, weight, bias).unflatten(-1, (count, -1))
    return projected.transpose(1, 2)


def mixed(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    allowed: Tensor | None,
    *,
    scale: float | None = None,
    softcap: float | None = None,
    bias: Tensor | None = None,
    tiled: bool = False,
    zero_sink: bool = False,
) -> Tensor:
    """softmax(q kᵀ · scale) v, (B, Hq, L, Dv). tiled: query head h reads head h % Hk, not h // group."""
    group = q.shape[1] // k.shape[1]
    k, v = ((t.repeat(1, group, 1, 1) if tiled else t.repeat_interleave(group, 1)) for t in (k, v))
    scores = q @ k.mT * (q.shape[-1] ** -0.5 if scale is None else scale)
    scores = scores if softcap is None else softcap * torch.tanh(scores / softcap)
    scores = scores if bias is None else scores + bias
    scores = scores if allowed is None else scores.masked_fill(~allowed, float("-inf"))
    if zero_sink:
        return torch.cat([scores, torch.zeros_like(scores[..., :1])], -1).softmax(-1)[..., :-1] @ v
    return scores.softmax(-1) @ v


def joined(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Heads (B, H, L, Dv) joined and projected, (B, L, out)."""
    return F.linear(x.transpose(1, 2).flatten(2), weight, bias)


def turned(x: Tensor, frequencies: Tensor, amplitude: float, pairing: str) -> Tensor:
    """x (B, H, L, D) with its leading features turned by their positions 0, 1, 2, ... as complex numbers."""
    width = 2 * len(frequencies)
    lead, rest = x[..., :width], x[..., width:]
    split = lead.unflatten(-1, (2, -1)).transpose(-1, -2) if pairing == "half" else lead.unflatten(-1, (-1, 2))
    angles = torch.arange(x.shape[2], dtype=x.dtype, device=x.device)[:, None] * frequencies.to(x)
    moved = torch.view_as_real(torch.view_as_complex(split.contiguous()) * torch.polar(torch.ones_like(angles), angles))
    moved = amplitude * (moved.transpose(-1, -2) if pairing == "half" else moved)
    return torch.cat([moved.flatten(-2), rest], -1)
