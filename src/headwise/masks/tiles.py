"""Tiles: which rectangles of a mask are empty, full or mixed, so that a kernel skips or spares the masking."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from headwise.errors import MaskError
from headwise.masks.coordinates import Grid, Larger, Sizes

EMPTY, MIXED, FULL = 0, 1, 2
# the rows of a rule that are asked at once: a rule may take many integers for each pair
ROWS = 128


@dataclass(frozen=True)
class TileGrid:
    """The tiles of a map: `grid` is the map itself; i and j hold each tile's lowest and highest position."""

    grid: Grid
    block: tuple[int, int]
    i: tuple[Tensor, Tensor]
    j: tuple[Tensor, Tensor]

    @staticmethod
    def whole(sizes: Sizes, block: tuple[int, int], device: torch.device) -> TileGrid:
        """Every tile of the map, the last query at the last key."""
        if min(block) < 1:
            raise MaskError(f"block counts the queries and keys of a tile, so both must be 1 or more; got {block}")
        return TileGrid._over(Grid.whole(sizes, device), block)

    @staticmethod
    def _over(grid: Grid, block: tuple[int, int]) -> TileGrid:
        return TileGrid(grid, block, _range(grid.i, 2, block[0]), _range(grid.j, 3, block[1]))

    def placed(self, i: Tensor, j: Tensor, columns: Tensor | None) -> TileGrid:
        """The same tiles with other positions."""
        return TileGrid._over(self.grid.placed(i, j, columns), self.block)

    def picked(self, rows: Tensor, columns: Tensor, larger: Larger) -> TileGrid:
        """The same tiles as places of a larger map."""
        return TileGrid._over(self.grid.picked(rows, columns, larger), self.block)

    def evaluate(self, allows: Callable[[Grid], Tensor]) -> tuple[Tensor, Tensor]:
        """Ask every pair, one row of tiles at a time; a compiled program asks them all, and holds none."""
        if torch.compiler.is_compiling():
            height, width = self.block
            whole = allows(self.grid)
            whole = whole.expand(*whole.shape[:2], *self.grid.lengths)
            any_of, all_of = reduce_any(whole, 3, width), reduce_all(whole, 3, width)
            return reduce_any(any_of, 2, height), reduce_all(all_of, 2, height)
        some, every = zip(
            *(self._asked(allows, rows) for rows in _pieces(self.grid.lengths[0], self.block[0])), strict=True
        )
        return torch.cat(some, 2), torch.cat(every, 2)

    def _asked(self, allows: Callable[[Grid], Tensor], rows: slice) -> tuple[Tensor, Tensor]:
        """Any and all of one row of tiles, (B, H, 1, columns)."""
        some, every = [], []
        for piece in _pieces(rows.stop - rows.start, ROWS):
            part = slice(rows.start + piece.start, rows.start + piece.stop)
            strip = allows(self.grid.part(part, slice(None)))
            strip = strip.expand(*strip.shape[:2], part.stop - part.start, self.grid.lengths[1])
            some.append(strip.any(2, keepdim=True))
            every.append(strip.all(2, keepdim=True))
        any_of, all_of = torch.cat(some, 2).any(2, keepdim=True), torch.cat(every, 2).all(2, keepdim=True)
        return reduce_any(any_of, 3, self.block[1]), reduce_all(all_of, 3, self.block[1])

    def classify(self, spans: tuple[Tensor, Tensor]) -> Tensor:
        """(may hold a True, is surely all True) -> int8 (B, H, rows, columns): 0 empty, 1 mixed, 2 full."""
        some, every = spans
        kinds = some.to(torch.int8) + (some & every).to(torch.int8)
        Lq, Lk = self.grid.lengths
        counts = (_count(Lq, self.block[0]), _count(Lk, self.block[1]))
        return kinds.expand(*kinds.shape[:2], *counts)

    def keys(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """Any and all of bool (B, Lk) over the columns of each tile."""
        row = self.grid.keys(values)
        return reduce_any(row, 3, self.block[1]), reduce_all(row, 3, self.block[1])

    def key_range(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """Lowest and highest of (B, Lk) over the columns of each tile."""
        return _range(self.grid.keys(values), 3, self.block[1])

    def query_range(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """Lowest and highest of (B, Lq) over the rows of each tile."""
        return _range(self.grid.queries(values), 2, self.block[0])

    def column_range(self) -> tuple[Tensor, Tensor]:
        """Lowest and highest index of a key in each tile."""
        return _range(self.grid.column, 3, self.block[1])


def reduce_any(values: Tensor, dim: int, size: int) -> Tensor:
    """Any over runs of `size` along `dim`; the last run may be short. An axis of size 1 is shared by all runs."""
    return _runs(values, dim, size, values.new_zeros(())).any(dim + 1)


def reduce_all(values: Tensor, dim: int, size: int) -> Tensor:
    """All over runs of `size` along `dim`; the last run may be short. An axis of size 1 is shared by all runs."""
    return _runs(values, dim, size, values.new_ones(())).all(dim + 1)


def _range(values: Tensor, dim: int, size: int) -> tuple[Tensor, Tensor]:
    """Lowest and highest over runs of `size` along `dim`."""
    runs = _runs(values, dim, size, None)
    return runs.amin(dim + 1), runs.amax(dim + 1)


def _runs(values: Tensor, dim: int, size: int, fill: Tensor | None) -> Tensor:
    """`dim` cut into runs of `size`, the last one filled up with `fill`; None: with its own last value."""
    length = values.shape[dim]
    count = _count(length, size)
    if short := count * size - length:
        shape = list(values.shape)
        shape[dim] = short
        last = values.narrow(dim, length - 1, 1) if fill is None else fill
        values = torch.cat([values, last.expand(shape)], dim)
    cut: Tensor = torch.unflatten(values, dim, (count, size))
    return cut


def _pieces(length: int, size: int) -> list[slice]:
    """0..length in runs of `size`; without any there is one run of none, whose answer no tile takes."""
    return [slice(start, min(start + size, length)) for start in range(0, max(length, 1), size)]


def _count(length: int, size: int) -> int:
    """How many runs of `size` hold `length`; the last may be short."""
    return (length + size - 1) // size
