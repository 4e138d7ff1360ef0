"""Score tiles: the tiles of a map that its mask leaves, and their scores in one buffer that stays in the cache."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from headwise.masks.coordinates import Grid
from headwise.masks.host_tiles import host_tiles
from headwise.masks.leaves import values_are_at_hand
from headwise.masks.tiles import EMPTY, FULL, MIXED
from headwise.ops.call import Call

# measured: 1 MiB of float32 for two heads is where two threads with 1 MiB of L2 each are fast; rows of 256 keys keep
# the products' writes on few pages (with rows of 1024 they took 1.0 or 1.5 times as long, by process)
QUERIES, KEYS, ENTRIES = 512, 256, 1 << 18
# how many times as much fills a GPU, to which every operation on a buffer is a launch
DEVICE = 16
EVERYTHING = slice(None)


@dataclass(frozen=True)
class Tile:
    """A block of a map: samples, query heads, rows and columns; closed: bool, the pairs that may not attend."""

    samples: slice
    heads: slice
    rows: slice
    columns: slice
    closed: Tensor | None


class Region(NamedTuple):
    """A run of samples, query heads and rows of a map; each slice has a start and a stop, and no step."""

    samples: slice
    heads: slice
    rows: slice

    @staticmethod
    def whole(call: Call) -> Region:
        """All of a call's rows."""
        B, Hq, Lq, _ = call.sizes
        return Region(slice(0, B), slice(0, Hq), slice(0, Lq))

    def grouped(self, groups: int) -> Region:
        """The same with all query heads that share a key head with one of it."""
        heads = slice(self.heads.start // groups * groups, -(-self.heads.stop // groups) * groups)
        return self._replace(heads=heads)


def room(call: Call, entries: int) -> int:
    """How many entries of a map a buffer holds where the call is computed; entries: chosen for the caches of a CPU."""
    return entries if call.q.device.type == "cpu" else DEVICE * entries


def wide_type(call: Call) -> torch.dtype:
    """The dtype of a map: float32, or float64 where q is."""
    return torch.promote_types(call.q.dtype, torch.float32)


def pieces(length: int, size: int, limits: slice = EVERYTHING) -> Iterator[slice]:
    """0..length in runs of `size`, the last of which may be short, and what of them lies within the limits."""
    within = range(length)[limits]
    for start in range(within.start // size * size, within.stop, size):
        yield slice(max(start, within.start), min(start + size, within.stop))


def tiles(call: Call, region: Region | None = None) -> Iterator[Tile]:
    """The tiles that hold an open pair, those of one place together, so that a mask is asked once for all heads.

    region: they are cut to these rows, and to the heads that share a key head with its heads; None: the whole map.
    """
    _, _, Lq, Lk = call.sizes
    if 0 in call.sizes:
        return
    block = _block(call)
    limits = (Region.whole(call) if region is None else region).grouped(call.groups)
    units = list(_units(call, block, limits))
    kinds = None
    if call.mask is not None:
        kinds = host_tiles(call.mask, call.sizes, block, call.q.device)
    for rows in pieces(Lq, block[0], limits.rows):
        for column, columns in enumerate(pieces(Lk, block[1])):
            column_kinds = None if kinds is None else kinds[:, :, rows.start // block[0], column]
            yield from _tiles_at(call, units, rows, columns, column_kinds)


def _tiles_at(
    call: Call, units: list[tuple[slice, slice]], rows: slice, columns: slice, kinds: Tensor | None
) -> Iterator[Tile]:
    """The tiles of all samples and heads at one place; kinds: (B|1, H|1), None: not known, or without a mask."""
    unknown = FULL if call.mask is None else MIXED
    least = unknown if kinds is None else int(kinds.min())
    if kinds is not None and int(kinds.max()) == EMPTY:
        return
    closed = _closed(call, rows, columns, is_open=least == FULL)
    for samples, heads in units:
        if kinds is not None and least == EMPTY and not bool(cut_axes(kinds, samples, heads).any()):
            continue
        yield Tile(samples, heads, rows, columns, None if closed is None else cut_axes(closed, samples, heads))


def _closed(call: Call, rows: slice, columns: slice, *, is_open: bool) -> Tensor | None:
    """Which pairs of all samples and heads may not attend, by the mask and by a bias of -inf; None: all may."""
    closed = None
    if call.mask is not None and not is_open:
        closed = ~call.mask.allows(Grid.whole(call.sizes, call.q.device).part(rows, columns))
    if call.attn_bias is not None:
        by_bias = cut_bias(call.attn_bias.detach(), rows, columns).isneginf()
        if not values_are_at_hand(by_bias) or bool(by_bias.any()):
            closed = by_bias if closed is None else closed | by_bias
    return closed


def _block(call: Call) -> tuple[int, int]:
    """Queries and keys of a tile."""
    _, _, Lq, Lk = call.sizes
    queries = max(1, min(Lq, max(QUERIES // call.groups, 16)))
    return queries, min(max(1, Lk), max(KEYS, room(call, ENTRIES) // (queries * call.groups * 2)))


def _units(call: Call, block: tuple[int, int], limits: Region) -> Iterator[tuple[slice, slice]]:
    """Samples and query heads that make one tile: some heads of one sample, or all heads of some samples."""
    B, Hq, _, _ = call.sizes
    pairs = call.groups * block[0] * block[1]
    most = room(call, ENTRIES)
    shared = max(1, min(most // pairs, Hq // call.groups))
    samples = 1
    if shared == Hq // call.groups and limits.heads == slice(0, Hq):
        samples = max(1, most // (pairs * shared))
    for taken in pieces(B, samples, limits.samples):
        for heads in pieces(Hq, shared * call.groups, limits.heads):
            yield taken, heads


def cut_axes(values: Tensor, samples: slice, heads: slice) -> Tensor:
    """(B|1, H|1, ...) of some samples and heads; an axis of size 1 serves all."""
    if values.shape[0] > 1:
        values = values[samples]
    return values[:, heads] if values.shape[1] > 1 else values


def cut_bias(bias: Tensor, rows: slice, columns: slice) -> Tensor:
    four = bias[None, None] if bias.ndim == 2 else bias
    if four.shape[2] > 1:
        four = four[:, :, rows]
    return four[..., columns] if four.shape[3] > 1 else four


class TileScores:
    """The scores of a call's tiles, less `base` (B, Hq, Lq) where it is given, in a buffer that the next tile reuses.

    base: finite or NaN. Without gradients; closed pairs hold any number.
    """

    def __init__(self, call: Call, base: Tensor | None = None) -> None:
        self.call = call
        self.dtype = wide_type(call)
        self.base = base
        self.factor = call.multiplier if call.softcap is None else call.multiplier / call.softcap
        B, _, Lq, Lk = call.sizes
        q, k = call.q.detach().to(self.dtype), call.k.detach().to(self.dtype)
        # a tile multiplies all queries that share a key head at once
        self.q = q.reshape(B * k.shape[1], call.groups, Lq, q.shape[-1])
        self.k = k.reshape(B * k.shape[1], Lk, k.shape[-1])
        self.buffer: Tensor | None = None

    def of(self, tile: Tile) -> Tensor:
        """(samples, heads, rows, columns) of the buffer, filled with the scores of a tile."""
        B, Hq, _, _ = self.call.sizes
        if self.buffer is None:
            block = _block(self.call)
            largest = max(room(self.call, ENTRIES), block[0] * block[1] * self.call.groups)
            self.buffer = self.q.new_empty(min(largest, B * Hq * block[0] * block[1]))
        shape = (len(range(B)[tile.samples]), len(range(Hq)[tile.heads]))
        sides = (tile.rows.stop - tile.rows.start, tile.columns.stop - tile.columns.start)
        return self.into(tile, self.buffer[: shape[0] * shape[1] * sides[0] * sides[1]].view(*shape, *sides))

    def into(self, tile: Tile, out: Tensor) -> Tensor:
        """`out` (samples, heads, rows, columns), filled with the scores of a tile; rows of `out` may lie apart."""
        call, Hk = self.call, self.call.k.shape[1]
        B, Hq = range(call.sizes.B)[tile.samples], range(call.sizes.H)[tile.heads]
        first = B.start * Hk + Hq.start // call.groups
        taken = slice(first, first + len(B) * len(Hq) // call.groups)
        q = self.q[taken, :, tile.rows].flatten(1, 2)
        k = self.k[taken, tile.columns]
        flat = out.view(q.shape[0], q.shape[1], out.shape[3])
        if call.weight is None:
            torch.baddbmm(flat, q, k.mT, beta=0, alpha=self.factor, out=flat)
        else:
            self._additive(q, k, tile, flat)
        if call.softcap is not None:
            out.tanh_().mul_(call.softcap)
        if call.attn_bias is not None:
            bias = cut_axes(cut_bias(call.attn_bias.detach(), tile.rows, tile.columns), tile.samples, tile.heads)
            out.add_(bias)
        if self.base is not None:
            out.sub_(self.base[tile.samples, tile.heads, tile.rows, None])
        return out

    def _additive(self, q: Tensor, k: Tensor, tile: Tile, out: Tensor) -> None:
        """wᵀ tanh(q + k), one query at a time: q (n, rows, D), k (n, columns, D) -> out (n, rows, columns)."""
        if self.call.weight is None:
            return
        samples = range(self.call.sizes.B)[tile.samples]
        weight = self.call.weight.detach().to(self.dtype)[tile.heads] * self.factor
        # (n, rows, D): the weight of the head that each row of q belongs to
        by_row = weight.unflatten(0, (-1, self.call.groups)).repeat_interleave(q.shape[1] // self.call.groups, dim=1)
        by_row = by_row.repeat(len(samples), 1, 1)
        for row in range(q.shape[1]):
            torch.bmm(torch.tanh(k + q[:, row, None]), by_row[:, row, :, None], out=out[:, row, :, None])
