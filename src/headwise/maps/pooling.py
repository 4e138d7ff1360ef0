"""Pooling: the pixels of a picture of a map, with the borders of torch's adaptive pooling."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from headwise.maps.strips import longest_run
from headwise.ops.call import Call

Bin = tuple[int, int]


def bins(length: int, count: int) -> list[Bin]:
    """Where each of `count` bins over 0..length starts and stops; neighbours may share an entry."""
    return [(n * length // count, -((n + 1) * -length // count)) for n in range(count)]


def runs_of_bins(rows: list[Bin], call: Call) -> dict[Bin, slice]:
    """Runs of neighbouring bins that one strip can hold: the rows of each run, and which bins they are."""
    most = longest_run(call)
    runs: dict[Bin, slice] = {}
    first = 0
    for n in range(1, len(rows) + 1):
        if n == len(rows) or rows[n][1] - rows[first][0] > most:
            runs[rows[first][0], rows[n - 1][1]] = slice(first, n)
            first = n
    return runs


def pool_columns(weights: Tensor, w: int, how: str) -> Tensor:
    """(b, h, rows, Lk) -> (b, h, rows, w)."""
    if weights.shape[-1] % w == 0:
        # bins of one size that share nothing, which torch reduces faster than it pools
        equal = weights.view(*weights.shape[:3], w, -1)
        return equal.mean(-1) if how == "mean" else equal.amax(-1)
    flat = weights.flatten(0, 1)
    pooled: Tensor = F.adaptive_avg_pool1d(flat, w) if how == "mean" else F.adaptive_max_pool1d(flat, w)
    return pooled.view(*weights.shape[:3], w)


def pool_rows(weights: Tensor, rows: list[Bin], how: str) -> Tensor:
    """(b, h, rows, w) -> (b, h, bins, w)."""
    parts = [weights[:, :, start:stop] for start, stop in rows]
    return torch.stack([p.mean(2) if how == "mean" else p.amax(2) for p in parts], dim=2)
