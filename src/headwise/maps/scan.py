"""Scan: one pass over the tiles of a call gives every reduction that one pass can, in O(L) memory."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from headwise.maps.logsum import LogSum, finite
from headwise.maps.tiling import Region, TileScores, tiles, wide_type
from headwise.ops.call import Call


class Summary(NamedTuple):
    """What one pass over the weights p of a map gives.

    entropy (B, Hq, Lq): -sum p log p, in nats. peak (B, Hq, Lq): the largest open score, -inf where there is none.
    mass (B, Hq, Lq): the sum of a row. received (B, Hq, Lk): the sums of the columns.
    """

    entropy: Tensor
    peak: Tensor
    mass: Tensor
    received: Tensor


class Peaks(NamedTuple):
    """What one pass over the scores gives: peak (B, Hq, Lq), the largest open one, and the log-sum of each row."""

    peak: Tensor
    sums: LogSum


def log_sums(call: Call, region: Region | None = None) -> Peaks:
    """The log-sums of a call's rows and their largest scores, -inf where there is none.

    region: the rows that are wanted, others hold what is not to be read; None: all.
    """
    B, Hq, Lq, _ = call.sizes
    top = call.q.new_full((B, Hq, Lq), float("-inf"), dtype=wide_type(call))
    total = torch.zeros_like(top)
    scores = TileScores(call)
    for tile in tiles(call, region):
        t = scores.of(tile)
        if tile.closed is not None:
            t.masked_fill_(tile.closed, float("-inf"))
        place = (tile.samples, tile.heads, tile.rows)
        before, new = top[place], torch.maximum(top[place], t.amax(-1))
        # a row without an open key so far has no largest score to subtract
        base = finite(new)
        t.sub_(base[..., None]).exp_()
        total[place] = total[place] * (before - base).exp_() + t.sum(-1)
        top[place] = new
    log, is_empty = total.log_(), top.isneginf()
    lse = torch.where(is_empty, top, top + log)
    if call.sink is None:
        return Peaks(top, LogSum(top, log.masked_fill_(is_empty, 0.0), lse))
    sink = call.sink.detach().to(top.dtype)[:, None]
    log = torch.logaddexp(log, sink - top).clamp_(max=torch.finfo(top.dtype).max)
    base = torch.where(is_empty, sink, top)
    return Peaks(top, LogSum(base, log.masked_fill_(is_empty, 0.0), torch.logaddexp(lse, sink)))


def summarize(call: Call, sums: LogSum, peak: Tensor | None = None) -> Summary:
    """The summary of the weights that these log-sums give; peak: as `log_sums` gives it, None: not known."""
    B, Hq, _, Lk = call.sizes
    base, share = finite(sums.base), sums.log.neg().exp_()
    entropy, mass = torch.zeros_like(base), torch.zeros_like(base)
    highest = torch.full_like(base, float("-inf"))
    received = base.new_zeros((B, Hq, Lk), dtype=torch.float64 if base.device.type == "cpu" else base.dtype)
    scores = TileScores(call, base)
    p = torch.empty_like(scores.buffer)
    has_nan = bool(share.isnan().any())
    for tile in tiles(call):
        t = scores.of(tile)
        if tile.closed is not None:
            t.masked_fill_(tile.closed, float("-inf"))
        place = (tile.samples, tile.heads, tile.rows)
        if peak is None:
            torch.maximum(highest[place], t.amax(-1), out=highest[place])
        # weights are these times the row's share, which is left to the sums
        weights = torch.exp(t, out=p[: t.numel()].view(t.shape))
        own = _without_nan(weights, share[place], t) if has_nan else share[place]
        received[tile.samples, tile.heads, tile.columns] += _column_sums(weights, own)
        mass[place] += weights.sum(-1)
        if tile.closed is not None or call.attn_bias is not None:
            # 0·(-inf) is NaN, and such a pair adds nothing
            t.clamp_(min=torch.finfo(t.dtype).min)
        entropy[place] -= weights.mul_(t).sum(-1)
    mass.mul_(share)
    # -sum p (t - log), of which both terms are positive
    entropy.mul_(share).addcmul_(mass, sums.log)
    return Summary(entropy, highest.add_(base) if peak is None else peak, mass, received.to(base.dtype))


def _without_nan(weights: Tensor, share: Tensor, scores: Tensor) -> Tensor:
    """The shares (b, h, rows) with 1 for NaN, which goes into the weights (b, h, rows, columns) of the open pairs.

    Times a share of NaN, a hidden key's weight of 0 would be NaN too.
    """
    broken = share.isnan()
    weights.masked_fill_(broken[..., None] & ~scores.isneginf(), float("nan"))
    return share.masked_fill(broken, 1.0)


def _column_sums(weights: Tensor, share: Tensor) -> Tensor:
    """(b, h, rows, columns) · (b, h, rows) -> (b, h, columns), by a matmul: faster down the columns than a sum is."""
    return torch.bmm(share.reshape(-1, 1, share.shape[-1]), weights.flatten(0, 1)).view(*weights.shape[:2], -1)


def rows_without_keys(call: Call) -> Tensor | None:
    """Which rows may attend to nothing, bool (B, Hq, Lq), by mask and bias; None: there are none."""
    B, Hq, Lq, _ = call.sizes
    if call.mask is None and call.attn_bias is None:
        return None
    without = torch.ones((B, Hq, Lq), dtype=torch.bool, device=call.q.device)
    for tile in tiles(call):
        place = without[tile.samples, tile.heads, tile.rows]
        place &= False if tile.closed is None else tile.closed.all(-1)
    return without if bool(without.any()) else None
