"""Blocks: the scores and weights of any block, or of any single pairs, of a call's map, with their gradients."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from headwise.maps.indices import Taken
from headwise.maps.logsum import LogSum
from headwise.masks.coordinates import Point
from headwise.masks.leaves import Allowed
from headwise.ops import reference
from headwise.ops.call import Call

# how many pairs are computed at once, one by one
PAIRS = 1 << 16


def block(call: Call, taken: tuple[Taken, ...]) -> Call:
    """The call of some samples, query heads, rows and columns; slices give views."""
    samples, heads, rows, columns = taken
    if (
        isinstance(samples, slice)
        and isinstance(heads, slice)
        and isinstance(rows, slice)
        and isinstance(columns, slice)
    ):
        return call.part(rows, columns, samples=samples, heads=heads)
    b, h, i, j = (_numbers(t, size, call.q.device) for t, size in zip(taken, call.sizes, strict=True))
    at = (b[:, None, None, None], h[:, None, None], i[:, None], j)
    allowed = _open(call, at)
    return replace(
        call,
        q=call.q[at[0][..., 0], at[1][..., 0], i],
        k=call.k[at[0][..., 0], at[1][..., 0] // call.groups, j],
        v=call.k[at[0][..., 0], at[1][..., 0] // call.groups, j],
        mask=None if allowed is None else Allowed(allowed),
        weight=None if call.weight is None else call.weight[h],
        attn_bias=None if call.attn_bias is None else _pairs(_four(call.attn_bias), at),
        scale=call.multiplier,
        sink=None if call.sink is None else call.sink[h],
        prepared={},
    )


def scores(part: Call) -> Tensor:
    """The scores of a block before the mask, (B, Hq, Lq, Lk); where a pair may not attend, any number."""
    # only a gradient needs zeros in the place of hidden keys, which are a copy of k
    return reference.scores(part if wants_gradient(part) else replace(part, mask=None))


def logits(part: Call) -> Tensor:
    """The scores of a block, (B, Hq, Lq, Lk), -inf where a pair may not attend."""
    found, allowed = scores(part), reference.open_pairs(part)
    return found if allowed is None else torch.where(allowed, found, float("-inf"))


def softmax(part: Call) -> Tensor:
    """The weights of a block of whole rows, (B, Hq, Lq, Lk), by their softmax."""
    return reference.weights(part, scores(part))


def weights(part: Call, sums: LogSum) -> Tensor:
    """The weights of a block, (B, Hq, Lq, Lk), whose rows have these log-sums (B, Hq, Lq)."""
    return exponentials(scores(part), reference.open_pairs(part), sums)


def exponentials(scores: Tensor, allowed: Tensor | None, sums: LogSum) -> Tensor:
    """The weights of scores (..., Lk) in rows that have these log-sums (...), 0 where a pair may not attend."""
    if allowed is None:
        return sums.beside(scores).exp()
    # filled before the exponential too, so that no gradient is made of inf and 0
    return torch.where(allowed, sums.beside(torch.where(allowed, scores, float("-inf"))).exp(), 0.0)


def pair_scores(call: Call, at: tuple[Tensor, ...]) -> tuple[Tensor, Tensor | None]:
    """The scores of single pairs and which of them may attend; at: sample, query head, row and column of each, (n,)."""
    b, h, i, j = at
    wide = torch.promote_types(call.q.dtype, torch.float32)
    allowed = _open(call, at)
    q, k = call.q[b, h, i].to(wide), call.k[b, h // call.groups, j].to(wide)
    if allowed is not None:
        # a key that is hidden here may hold NaN
        k = torch.where(allowed[..., None], k, 0.0)
    scores = (q * k).sum(-1) if call.weight is None else (torch.tanh(q + k) * call.weight[h].to(wide)).sum(-1)
    scores = scores * call.multiplier
    if call.softcap is not None:
        scores = call.softcap * torch.tanh(scores / call.softcap)
    if call.attn_bias is not None:
        bias = _pairs(_four(call.attn_bias), at).to(wide)
        scores = scores + bias
        by_bias = ~bias.isneginf()
        allowed = by_bias if allowed is None else allowed & by_bias
    return scores, allowed


def pair_weights(call: Call, at: tuple[Tensor, ...], sums: LogSum) -> Tensor:
    """The weights of single pairs, (n,), in rows that have these log-sums (n,)."""
    found, allowed = pair_scores(call, at)
    return exponentials(found[:, None], None if allowed is None else allowed[:, None], sums)[:, 0]


def picked(values: Tensor, taken: tuple[Taken, ...]) -> Tensor:
    """What is taken from the first axes of a tensor."""
    for axis, some in enumerate(taken):
        values = (
            values.index_select(axis, some.to(values.device))
            if isinstance(some, Tensor)
            else values[(slice(None),) * axis + (some,)]
        )
    return values


def wants_gradient(call: Call) -> bool:
    """Whether a reading of this call must hand a gradient back."""
    return torch.is_grad_enabled() and any(t.requires_grad for t in call.tensors)


def _open(call: Call, at: tuple[Tensor, ...]) -> Tensor | None:
    """Which pairs may attend by the mask, of all places that four broadcasting indices name; None: all."""
    if call.mask is None:
        return None
    b, h, i, j = at
    allowed = call.mask.allows(Point(b, h, i, j, i + (call.sizes.Lk - call.sizes.Lq), j))
    return allowed.expand(torch.broadcast_tensors(*at)[0].shape)


def _pairs(values: Tensor, at: tuple[Tensor, ...]) -> Tensor:
    """Values that broadcast to (B, Hq, Lq, Lk), at the places that four broadcasting indices name."""
    return values[tuple(t if n > 1 else torch.zeros_like(t) for t, n in zip(at, values.shape, strict=True))]


def _four(bias: Tensor) -> Tensor:
    return bias[None, None] if bias.ndim == 2 else bias


def _numbers(taken: Taken, size: int, device: torch.device) -> Tensor:
    """What is taken from an axis, as indices (n,)."""
    return torch.arange(size, device=device)[taken] if isinstance(taken, slice) else taken.to(device)
