"""Tile table: which tiles of a mask a kernel visits, in what order, and the entries of those that are mixed."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from headwise.masks import Mask
from headwise.masks.coordinates import Point, Sizes
from headwise.masks.derived_tensors import derived
from headwise.masks.host_tiles import host_tiles
from headwise.masks.tiles import EMPTY, FULL, MIXED, TileGrid
from headwise.ops.call import Call

# entries of mixed tiles that are evaluated at once: a mask takes several integers for each
ENTRIES = 1 << 22
# mixed tiles of at most so many bytes are kept with the mask
MOST_KEPT = 1 << 26


class TileLists(NamedTuple):
    """For each run of rows, or of columns, the tiles to visit, the mixed ones first, then the full ones.

    tiles (B|1, H|1, runs, n) int32: the number of the tile along the other axis. places, the same shape: which of the
    packed tiles holds its entries. counts (B|1, H|1, runs, 2) int32: how many are mixed, and how many are visited.
    """

    tiles: Tensor
    places: Tensor
    counts: Tensor


class TileTable(NamedTuple):
    """A mask as the kernels read it: by rows, by columns, and entries (mixed tiles, block, block), True = may attend.

    seen (B|1, H|1, Lk): the keys that some query may attend to.
    """

    rows: TileLists
    columns: TileLists
    entries: Tensor
    seen: Tensor


def tile_table(call: Call, block: int) -> TileTable:
    """The table of a call's mask in tiles of block × block, kept with a mask that has no tensors on a device.

    No device is read for it: tiles that may be mixed for all that the host knows have a place each (`packed_tiles`), so
    that it takes O(L) memory where these are O(L) many.
    """
    mask, sizes, device = call.mask, call.sizes, call.q.device
    # what one stream has made another may not read without waiting
    stream = torch.cuda.current_stream(device) if device.type == "cuda" else None
    key = ("tile table", *sizes, block, device, stream)
    if mask is None or 0 in sizes:
        return _all_full(sizes, block, device)
    if str(key) not in call.prepared:
        call.prepared[str(key)] = derived(
            mask,
            key,
            lambda: _table(mask, sizes, block, device),
            keeps=lambda table: table.entries.numel() <= MOST_KEPT,
        )
    table: TileTable = call.prepared[str(key)]
    return table


def walk(call: Call, lists: TileLists) -> tuple[Any, ...]:
    """Which tiles a program visits, and the strides of these lists, whose samples and heads may be shared."""
    B, Hq = call.sizes[:2]
    tiles, places, counts = (t.expand(B, Hq, *t.shape[2:]) for t in lists)
    return tiles, places, counts, *tiles.stride(), *counts.stride()[:3]


def _table(mask: Mask, sizes: Sizes, block: int, device: torch.device) -> TileTable:
    grid = TileGrid.whole(sizes, (block, block), device)
    kinds = grid.classify(mask.spans(grid))
    is_packed = packed_tiles(mask, sizes, block, device).expand(kinds.shape)
    numbers = (is_packed.flatten().cumsum(0) - 1).view(kinds.shape).to(device, torch.int32)
    at = is_packed.nonzero().to(device)
    entries = _entries(mask, sizes, at, block)
    return TileTable(
        _lists(kinds, numbers), _lists(kinds.mT, numbers.mT), entries, _seen(kinds, at, entries)[..., : sizes.Lk]
    )


def packed_tiles(mask: Mask, sizes: Sizes, block: int, device: torch.device) -> Tensor:
    """Which tiles may be mixed for all that the host knows of the mask, bool (B|1, H|1, rows, columns) on the CPU."""
    known = host_tiles(mask, sizes, (block, block), device)
    if known is not None:
        return known == MIXED
    return torch.ones((1, 1, -(-sizes.Lq // block), -(-sizes.Lk // block)), dtype=torch.bool, device="cpu")


def packed_entries(call: Call, block: int) -> int:
    """How many bytes the entries of a call's tile table take."""
    mask, sizes, device = call.mask, call.sizes, call.q.device
    if mask is None or 0 in sizes:
        return 0
    grid = TileGrid.whole(sizes, (block, block), device)
    kinds = grid.classify(mask.spans(grid))
    return int(packed_tiles(mask, sizes, block, device).expand(kinds.shape).sum()) * block**2


def _all_full(sizes: Sizes, block: int, device: torch.device) -> TileTable:
    """The table of a map all of whose pairs may attend."""

    def lists(runs: int, tiles: int) -> TileLists:
        numbers = torch.arange(tiles, dtype=torch.int32, device=device).expand(1, 1, runs, tiles)
        counts = torch.arange(2, dtype=torch.int32, device=device) * tiles
        return TileLists(numbers, numbers, counts.expand(1, 1, runs, 2))

    rows, columns = -(-sizes.Lq // block), -(-sizes.Lk // block)
    everything = torch.ones((1, 1, sizes.Lk), dtype=torch.bool, device=device)
    return TileTable(lists(rows, columns), lists(columns, rows), everything[:, :, :0], everything)


def _lists(kinds: Tensor, numbers: Tensor) -> TileLists:
    """The tiles of each run along the last axis but one."""
    # a stable sort: the order of the sums in a kernel is always the same
    rank = kinds.new_zeros(kinds.shape).masked_fill(kinds == FULL, 1).masked_fill(kinds == EMPTY, 2)
    order = rank.argsort(dim=-1, stable=True)
    counts = torch.stack([(kinds == MIXED).sum(-1), (kinds != EMPTY).sum(-1)], dim=-1)
    return TileLists(order.to(torch.int32), numbers.gather(-1, order).contiguous(), counts.to(torch.int32))


def _entries(mask: Mask, sizes: Sizes, at: Tensor, block: int) -> Tensor:
    """What the mask allows in the tiles at (sample, head, row of tiles, column of tiles), bool (n, block, block)."""
    within = torch.arange(block, device=at.device)
    entries = torch.empty((len(at), block, block), dtype=torch.bool, device=at.device)
    size = max(1, ENTRIES // block**2)
    for start in range(0, len(at), size):
        b, h, row, column = at[start : start + size, :, None, None].unbind(1)
        # a tile may reach over the edge of the map, where nobody reads its entries
        rows = (row * block + within[:, None]).clamp(max=sizes.Lq - 1)
        columns = (column * block + within).clamp(max=sizes.Lk - 1)
        place = Point(b, h, rows, columns, rows + (sizes.Lk - sizes.Lq), columns)
        entries[start : start + size] = mask.allows(place)
    return entries


def _seen(kinds: Tensor, at: Tensor, entries: Tensor) -> Tensor:
    """The keys that some query may attend to, bool (B|1, H|1, keys of whole tiles)."""
    block = entries.shape[-1]
    by_full = (kinds == FULL).any(2)[..., None].expand(*kinds.shape[:2], kinds.shape[3], block)
    by_mixed = torch.zeros(by_full.shape, dtype=torch.int32, device=kinds.device)
    b, h, _, column = at.unbind(1)
    by_mixed.index_put_((b, h, column), entries.any(1).to(torch.int32), accumulate=True)
    return (by_full | (by_mixed > 0)).flatten(-2)
