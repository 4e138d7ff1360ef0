"""Tile dropout: a pair is dropped by its coordinates in the whole map, so that any split of the map drops the same."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from headwise.ops.dropout import Drops
from headwise.ops.strips import Strip
from headwise.ops.workspace import Workspace

# rows and columns of a tile of the whole map, whose bits are drawn at once
TILE = (128, 512)
MASK = (1 << 64) - 1


@dataclass(frozen=True, eq=False)
class TileDrops(Drops):
    """The drops of a call whose rows and columns are some of a larger map.

    rows (Lq,) and columns (Lk,): int64, which row and column of the whole map each of the call's is. first_sample,
    first_head: the index of the call's first sample and query head in the whole map. Calls that share a seed agree on
    every pair, on any number of ranks and whatever their blocks are: give all ranks one seed, and pass this to
    `blockwise.outputs(call, drops)` with the call's own `dropout`.
    """

    rows: Tensor
    columns: Tensor
    first_sample: int = 0
    first_head: int = 0

    def kept(self, number: int, at: Strip, room: Workspace, dtype: torch.dtype) -> Tensor:
        """1 where a weight is kept and 0 where it is dropped, for a strip."""
        kept = room.buffer("kept", at.shape, dtype)
        if self.dropped == 2**self.bits:
            return kept.zero_()
        samples, heads = (range(part.start, part.stop) for part in (at.samples, at.heads(room.call.groups)))
        rows = self.rows[at.rows]
        columns = torch.cat([self.columns[run] for run in at.columns])
        by_tile = list(_by_tile(rows, TILE[0])), list(_by_tile(columns, TILE[1]))
        blocks = kept.view(len(samples), len(heads), len(rows), len(columns))
        for sample, of_sample in zip(samples, blocks, strict=True):
            for head, block in zip(heads, of_sample, strict=True):
                self._fill(block, by_tile, (self.first_sample + sample, self.first_head + head))
        return kept

    def _fill(self, block: Tensor, by_tile: tuple[list[Taken], list[Taken]], place: tuple[int, int]) -> None:
        """Decide over the pairs (rows, columns) of one sample and head."""
        threshold = self.dropped - 2 ** (self.bits - 1)
        generator = torch.Generator()
        drawn = torch.empty(TILE[0] * TILE[1] * self.bits // 64, dtype=torch.int64)
        tile = drawn.view(torch.int16 if self.bits == 16 else torch.int32).view(TILE)
        for row, at_rows, in_rows in by_tile[0]:
            for column, at_columns, in_columns in by_tile[1]:
                generator.manual_seed(mixed(self.seed, *place, row, column) >> 1)
                drawn.random_(-(2**63), None, generator=generator)
                block[_index(at_rows, at_columns)] = (tile[in_rows][:, in_columns] >= threshold).to(block.dtype)


# a tile's number, which entries of an index lie in it, and where in it these stand
Taken = tuple[int, slice | Tensor, slice | Tensor]


def _by_tile(index: Tensor, size: int) -> Iterator[Taken]:
    """The entries of an index, tile by tile."""
    tiles = index // size
    for tile in tiles.unique().tolist():
        at = (tiles == tile).nonzero()[:, 0]
        yield tile, _as_slice(at), _as_slice(index[at] % size)


def _as_slice(index: Tensor) -> slice | Tensor:
    """Neighbours as a slice, which needs no copy."""
    is_run = len(index) == 1 or bool((index.diff() == 1).all())
    return slice(int(index[0]), int(index[-1]) + 1) if is_run else index


def _index(rows: slice | Tensor, columns: slice | Tensor) -> tuple[slice | Tensor, slice | Tensor]:
    """Every row with every column."""
    if isinstance(rows, Tensor) and isinstance(columns, Tensor):
        return rows[:, None], columns
    return rows, columns


def mixed(*numbers: int) -> int:
    """One number of 64 bits from several: splitmix64, Steele et al. 2014, DOI 10.1145/2660193.2660195."""
    state = 0
    for number in numbers:
        state = (state + number + 0x9E3779B97F4A7C15) & MASK
        state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & MASK
        state ^= state >> 31
    return state
