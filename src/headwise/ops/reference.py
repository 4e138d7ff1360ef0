"""The definition of attention: short, readable, differentiable; every other path is tested against it."""

from __future__ import annotations

from typing import Unpack

import torch
from torch import Tensor

from headwise.ops.call import Call, Rules, checked


def attention(q: Tensor, k: Tensor, v: Tensor, *, weight: Tensor | None = None, **rules: Unpack[Rules]) -> Tensor:
    """softmax(q kᵀ · scale) v over the keys that each query may see, by its definition and in O(Lq·Lk) memory.

    q (B, Hq, Lq, D), k (B, Hk, Lk, D), v (B, Hk, Lk, Dv) -> (B, Hq, Lq, Dv), and the rules of `hw.attention` but
    `backend`: see there what each means. weight: (Hq, D), for additive scoring, weightᵀ tanh(q + k) in place of q·k;
    None: q·k. Computes in float32, or float64 where q is; gives q's dtype.
    Vaswani et al. 2017, arXiv:1706.03762, eq. 1.

    >>> q, k, v = torch.randn(2, 4, 3, 8), torch.randn(2, 2, 5, 8), torch.randn(2, 2, 5, 6)
    >>> attention(q, k, v).shape
    torch.Size([2, 4, 3, 6])
    """
    return run(checked(q, k, v, weight=weight, **rules))


def attention_weights(q: Tensor, k: Tensor, *, weight: Tensor | None = None, **rules: Unpack[Rules]) -> Tensor:
    """The weights (B, Hq, Lq, Lk), before dropout, in float32, or float64 where q is.

    A row sums to 1, to less where a sink takes its share, and to 0 where the query may attend to nothing.

    >>> attention_weights(torch.zeros(1, 1, 2, 8), torch.zeros(1, 1, 4, 8))[0, 0, 0]
    tensor([0.2500, 0.2500, 0.2500, 0.2500])
    """
    call = checked(q, k, k, weight=weight, **rules)
    return weights(call, scores(call))


def attention_lse(q: Tensor, k: Tensor, *, weight: Tensor | None = None, **rules: Unpack[Rules]) -> Tensor:
    """The natural logarithm of each row's sum of exponentials, (B, Hq, Lq) in float32, or float64 where q is.

    The sink counts. -inf on a row that may attend to nothing; with a sink, the sink's logit.

    >>> attention_lse(torch.zeros(1, 1, 2, 8), torch.zeros(1, 1, 4, 8)).exp()
    tensor([[[4., 4.]]])
    """
    call = checked(q, k, k, weight=weight, **rules)
    logits, allowed = scores(call), open_pairs(call)
    if allowed is not None:
        logits = logits.masked_fill(~allowed, float("-inf"))
    return torch.logsumexp(_with_sink(call, logits), dim=-1)


def run(call: Call) -> Tensor:
    """The definition, of a checked call."""
    return weighted(call, scores(call))


def weighted(call: Call, logits: Tensor) -> Tensor:
    """The values of a checked call, mixed by the softmax of `logits` (B, Hq, Lq, Lk)."""
    _, v = call.without_hidden_keys()
    kept = dropped(weights(call, logits), call.dropout, call.generator)
    return (kept @ shared(v, call.groups).to(kept.dtype)).to(call.q.dtype)


def scores(call: Call) -> Tensor:
    """What the softmax is taken of, before the mask: cap(q·k · scale) + bias, (B, Hq, Lq, Lk)."""
    k, _ = call.without_hidden_keys()
    wide = torch.promote_types(call.q.dtype, torch.float32)
    logits = _similarity(call, call.q.to(wide), shared(k, call.groups).to(wide)) * call.multiplier
    if call.softcap is not None:
        logits = call.softcap * torch.tanh(logits / call.softcap)
    return logits if call.attn_bias is None else logits + call.attn_bias.to(wide)


def _similarity(call: Call, q: Tensor, k: Tensor) -> Tensor:
    """q·k, or wᵀ tanh(q + k) where the call has a weight: (B, Hq, Lq, Lk). Bahdanau et al. 2015, appendix A.1.2."""
    if call.weight is None:
        return q @ k.mT
    return (torch.tanh(q[:, :, :, None] + k[:, :, None]) * call.weight.to(q.dtype)[None, :, None, None]).sum(dim=-1)


def weights(call: Call, logits: Tensor) -> Tensor:
    """softmax of `logits` (B, Hq, Lq, Lk) over the keys that may be seen, before dropout."""
    allowed = open_pairs(call)
    if allowed is None:
        return torch.softmax(_with_sink(call, logits), dim=-1)[..., : logits.shape[-1]]
    # a row without a key is left unmasked here, and zeroed below: -inf throughout would make its softmax NaN
    empty = ~allowed.any(dim=-1, keepdim=True)
    logits = torch.where(allowed | empty, logits, float("-inf"))
    if call.attn_bias is not None:
        # the bias may have closed it
        logits = torch.where(empty, 0.0, logits)
    result = torch.softmax(_with_sink(call, logits), dim=-1)[..., : logits.shape[-1]]
    return torch.where(allowed, result, 0.0)


def open_pairs(call: Call) -> Tensor | None:
    """Which pairs may attend, bool broadcastable to (B, Hq, Lq, Lk): the mask, and no bias of -inf; None: all."""
    if call.attn_bias is None:
        return call.allowed
    open_by_bias = ~call.attn_bias.isneginf()
    return open_by_bias if call.allowed is None else call.allowed & open_by_bias


def dropped(weights: Tensor, chance: float, generator: torch.Generator | None) -> Tensor:
    """Weights with a share `chance` of them zeroed and the rest raised, so that the mean stays.

    Srivastava et al. 2014, in the inverted form.
    """
    if chance == 0.0:
        return weights
    if chance == 1.0:
        return weights * 0.0
    kept = torch.rand(weights.shape, generator=generator, device=weights.device) >= chance
    return weights * (kept / (1.0 - chance)).to(weights.dtype)


def shared(heads: Tensor, groups: int) -> Tensor:
    """Key/value heads (B, Hk, ...) as (B, Hq, ...): query head h reads head h // groups."""
    return heads if groups == 1 else heads.repeat_interleave(groups, dim=1)


def _with_sink(call: Call, logits: Tensor) -> Tensor:
    # one more logit a row, after the keys, that takes its share and carries no value
    if call.sink is None:
        return logits
    column = call.sink.to(logits.dtype)[None, :, None, None].expand(*logits.shape[:-1], 1)
    return torch.cat([logits, column], dim=-1)
