"""Strips: a map in blocks of whole rows, few enough at a time to fit in little memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from headwise.maps.score_tiles import Region, pieces, room
from headwise.masks.host_tiles import host_tiles
from headwise.masks.tiles import EMPTY
from headwise.ops.call import Call

# entries of the map in one strip: 1 MiB of float32, which stays in the cache; its gradient takes ten times the memory
ENTRIES = 1 << 18
# the grid in which a mask is asked which columns a strip can do without
BLOCK = 64


@dataclass(frozen=True)
class MapStrip:
    """Some samples, query heads and rows of a map, with all of its columns that hold an open pair."""

    samples: slice
    heads: slice
    rows: slice
    columns: slice

    def part(self, call: Call) -> Call:
        """The call of this strip."""
        return call.part(self.rows, self.columns, samples=self.samples, heads=self.heads)

    def spread(self, weights: Tensor, Lk: int) -> Tensor:
        """Weights of this strip with all Lk columns of the map."""
        if weights.shape[-1] == Lk:
            return weights
        return F.pad(weights, (self.columns.start, Lk - self.columns.stop))

    def of_rows(self, values: Tensor) -> Tensor:
        """The part of values (B, Hq, Lq, ...) that belongs to this strip."""
        return values[self.samples, self.heads, self.rows]

    def of_columns(self, values: Tensor) -> Tensor:
        """The part of values (B, Hq, Lk) that belongs to this strip."""
        return values[self.samples, self.heads, self.columns]


def strips(
    call: Call, *, whole_heads: bool = False, rows: list[slice] | None = None, region: Region | None = None
) -> list[MapStrip]:
    """Strips that cover a map; whole_heads: each holds all heads. rows: where to cut, None: where memory says.

    region: they are cut to these rows, and to the heads that share a key head with its heads; None: the whole map.
    A region and rows exclude each other.
    """
    B, Hq, Lq, _ = call.sizes
    most = longest_run(call, whole_heads=whole_heads)
    limits = (Region.whole(call) if region is None else region).grouped(call.groups)
    cuts = list(pieces(Lq, most, limits.rows)) if rows is None else rows
    longest = max((cut.stop - cut.start for cut in cuts), default=1)
    # how many groups of heads, and then how many samples, fit beside each other
    groups = max(1, Hq // call.groups) if whole_heads else max(1, most // longest)
    heads = min(groups * call.groups, max(1, Hq))
    samples = max(1, longest_run(call, whole_heads=True) // longest) if heads >= Hq else 1
    columns = [_open_columns(call, cut) for cut in cuts]
    return [
        MapStrip(b, h, cut, open_)
        for b in pieces(B, samples, limits.samples)
        for h in pieces(Hq, heads, limits.heads)
        for cut, open_ in zip(cuts, columns, strict=True)
    ]


def _open_columns(call: Call, rows: slice) -> slice:
    """The columns from the first to the last that some of these rows may attend to, in any sample and head."""
    Lk = call.sizes.Lk
    if call.mask is None or 0 in call.sizes:
        return slice(0, Lk)
    if "open" not in call.prepared:
        kinds = host_tiles(call.mask, call.sizes, (BLOCK, BLOCK), call.q.device)
        if kinds is None:
            return slice(0, Lk)
        call.prepared["open"] = kinds.ne(EMPTY).flatten(0, 1).any(0)
    blocks: Tensor = call.prepared["open"][rows.start // BLOCK : -(-rows.stop // BLOCK)].any(0).nonzero()
    if not blocks.numel():
        # one column, so that there is a largest score
        return slice(0, 1)
    return slice(int(blocks[0]) * BLOCK, min((int(blocks[-1]) + 1) * BLOCK, Lk))


def longest_run(call: Call, *, whole_heads: bool = False) -> int:
    """How many rows of the heads that share a key head, or of all heads, one strip may hold."""
    heads = max(1, call.sizes.H) if whole_heads else call.groups
    # additive scoring holds a vector of features for each pair
    width = 1 if call.weight is None else call.q.shape[-1]
    return max(1, room(call, ENTRIES) // (heads * max(1, call.sizes.Lk) * width))


@contextmanager
def exact(call: Call) -> Iterator[None]:
    """A block that computes in full precision, without gradients, what may be kept and used with them later."""
    with torch.inference_mode(False), torch.no_grad(), torch.autocast(call.q.device.type, enabled=False):
        yield
