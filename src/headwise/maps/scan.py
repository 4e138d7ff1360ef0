"""Scan: the log-sums of some rows of a call, and the rows without a key, tile by tile in O(L) memory."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from headwise.maps.logsum import LogSum, finite
from headwise.maps.score_tiles import Region, TileScores, tiles, wide_type
from headwise.masks.leaves import values_are_at_hand
from headwise.ops.call import Call


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


def rows_without_keys(call: Call) -> Tensor | None:
    """Which rows may attend to nothing, bool (B, Hq, Lq), by mask and bias; None: there are surely none."""
    B, Hq, Lq, _ = call.sizes
    if call.mask is None and call.attn_bias is None:
        return None
    without = torch.ones((B, Hq, Lq), dtype=torch.bool, device=call.q.device)
    for tile in tiles(call):
        place = without[tile.samples, tile.heads, tile.rows]
        place &= False if tile.closed is None else tile.closed.all(-1)
    return without if not values_are_at_hand(without) or bool(without.any()) else None
