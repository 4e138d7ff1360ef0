"""Scan: one pass over the tiles of a call gives every reduction that one pass can, in O(L) memory."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from headwise.maps.tiling import TileScores, tiles, wide_type
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


def log_sum_exp(call: Call) -> Tensor:
    """(B, Hq, Lq): natural log of each row's sum of exponentials, the sink's too; -inf where there is nothing."""
    B, Hq, Lq, _ = call.sizes
    top = call.q.new_full((B, Hq, Lq), float("-inf"), dtype=wide_type(call))
    total = torch.zeros_like(top)
    scores = TileScores(call)
    for tile in tiles(call):
        t = scores.of(tile)
        if tile.closed is not None:
            t.masked_fill_(tile.closed, float("-inf"))
        place = (tile.samples, tile.heads, tile.rows)
        before, new = top[place], torch.maximum(top[place], t.amax(-1))
        # a row without an open key so far has no largest score to subtract
        base = new.masked_fill(new.isneginf(), 0.0)
        t.sub_(base[..., None]).exp_()
        total[place] = total[place] * (before - base).exp_() + t.sum(-1)
        top[place] = new
    lse = top.add_(total.log_())
    return lse if call.sink is None else torch.logaddexp(lse, call.sink.detach().to(lse.dtype)[:, None])


def summarize(call: Call, lse: Tensor) -> Summary:
    """The summary of the weights exp(score - lse); lse (B, Hq, Lq) as `log_sum_exp` gives it."""
    B, Hq, _, Lk = call.sizes
    lse = finite(lse)
    entropy, mass = torch.zeros_like(lse), torch.zeros_like(lse)
    peak = torch.full_like(lse, float("-inf"))
    received = lse.new_zeros((B, Hq, Lk), dtype=torch.float64 if lse.device.type == "cpu" else lse.dtype)
    scores = TileScores(call, lse)
    p = torch.empty_like(scores.buffer)
    for tile in tiles(call):
        t = scores.of(tile)
        if tile.closed is not None:
            t.masked_fill_(tile.closed, float("-inf"))
        place = (tile.samples, tile.heads, tile.rows)
        torch.maximum(peak[place], t.amax(-1), out=peak[place])
        weights = torch.exp(t, out=p[: t.numel()].view(t.shape))
        received[tile.samples, tile.heads, tile.columns] += _column_sums(weights)
        mass[place] += weights.sum(-1)
        if tile.closed is not None:
            # 0·(-inf) is NaN, and a closed pair adds nothing
            t.masked_fill_(tile.closed, 0.0)
        entropy[place] -= weights.mul_(t).sum(-1)
    return Summary(entropy, peak.add_(lse), mass, received.to(lse.dtype))


def finite(lse: Tensor) -> Tensor:
    """lse with 0 in the place of -inf: what is subtracted from the scores of a row that has no open key."""
    return lse.masked_fill(lse.isneginf(), 0.0)


def _column_sums(weights: Tensor) -> Tensor:
    """(b, h, rows, columns) -> (b, h, columns), by a matmul, which reads faster down the columns than a sum does."""
    ones = weights.new_ones((1, 1, weights.shape[2])).expand(weights.shape[0] * weights.shape[1], -1, -1)
    return torch.bmm(ones, weights.flatten(0, 1)).view(*weights.shape[:2], -1)


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
