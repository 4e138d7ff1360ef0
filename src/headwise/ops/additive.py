"""Additive scoring (Bahdanau): wᵀ tanh(q + k) in place of q·k, in its plain form."""

from __future__ import annotations

from contextlib import nullcontext

import torch
from torch import Tensor

from headwise.masks import Mask
from headwise.ops import reference
from headwise.ops.call import autocasts, cast_by_autocast, checked


def additive_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    weight: Tensor,
    *,
    mask: Mask | Tensor | None = None,
    dropout: float = 0.0,
    generator: torch.Generator | None = None,
) -> Tensor:
    """softmax(wᵀ tanh(q + k)) v over the keys that each query may see.

    q (B, Hq, Lq, D), k (B, Hk, Lk, D), v (B, Hk, Lk, Dv), weight (Hq, D), or (D,) for all heads -> (B, Hq, Lq, Dv).
    mask, dropout and generator as in `attention`. Memory is O(Lq·Lk·D).
    Bahdanau et al. 2015, arXiv:1409.0473, appendix A.1.2.

    >>> import headwise as hw
    >>> q, k, v = torch.randn(2, 4, 3, 8), torch.randn(2, 4, 5, 8), torch.randn(2, 4, 5, 6)
    >>> hw.additive_attention(q, k, v, torch.randn(4, 8)).shape
    torch.Size([2, 4, 3, 6])
    """
    q, k, v = cast_by_autocast(q, k, v)
    each = weight.expand(q.shape[1], -1) if weight.ndim == 1 and q.ndim == 4 else weight
    call = checked(q, k, v, weight=each, mask=mask, dropout=dropout, generator=generator)
    with torch.autocast(q.device.type, enabled=False) if autocasts(q) else nullcontext():
        return reference.run(call)
