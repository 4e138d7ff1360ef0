"""Block maxima: the largest weight of every square of a map, and where no weight may be, from one pass over it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from headwise.maps.rows import RowBlock
from headwise.maps.score_tiles import wide_type
from headwise.maps.statistics import MapPart, Statistic
from headwise.masks.simplification import places_of_runs
from headwise.ops.call import Call
from headwise.pages.weight_codes import coded

__all__ = ["SOFT", "Coded", "Squares", "Tally"]

# models that add a large negative number in the place of -inf, from -10,000 on, mean the same; no score comes near
SOFT = -5000.0


class Coded(NamedTuple):
    """A map (B samples, H heads, Lq queries, Lk keys) in squares, and what holds for its pairs.

    codes (B, H, rows, columns): uint8, the largest of each square. is_empty (B, H, Lq): rows that may attend to
    nothing. counts (B, H, 4): pairs that may not attend, rows that hold NaN, pairs that may attend to a later key, and
    pairs of one position that may attend; of the last two no more than whether there are any is meant.
    """

    codes: Tensor
    is_empty: Tensor
    counts: Tensor


class Squares(Statistic):
    """The squares of a map, so many tokens a side; the last ones may be smaller."""

    joins = ("max", "max", "max", "sum")

    def __init__(self, call: Call, side: int, *, part: MapPart | None = None) -> None:
        B, Hq, Lq, self._Lk = call.sizes
        self._index = None if part is None else part.rows
        sizes = (B, Hq, Lq if part is None else part.length, self._Lk)
        self._tally = Tally(sizes, side, wide_type(call), call.q.device)

    def add(self, block: RowBlock) -> None:
        hidden = None
        if block.powers.shape[-1] < self._Lk or not bool(block.powers.amin() > 0):
            hidden = block.spread(masked(block), self._Lk, True)
        weights = block.spread(block.powers, self._Lk) * block.share[..., None]
        place = (block.samples, block.heads)
        if self._index is None:
            return self._tally.take(place, block.rows, weights, hidden)
        # neighbours of the whole map together
        index = self._index[block.rows]
        for run in places_of_runs(index):
            first = int(index[run.start])
            rows = slice(first, first + run.stop - run.start)
            self._tally.take(place, rows, weights[:, :, run], None if hidden is None else hidden[:, :, run])
        return None

    def totals(self) -> tuple[Tensor, ...]:
        return self._tally.totals()

    def concluded(self, totals: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return self._tally.coded(*totals)


class Tally:
    """The squares of a map of these sizes, from its rows; those of one head come in order."""

    def __init__(self, sizes: Sequence[int], side: int, dtype: torch.dtype, device: torch.device) -> None:
        B, H, Lq, Lk = sizes
        self._sides, self._lengths = (min(side, Lq), min(side, Lk)), (Lq, Lk)
        shape = (B, H, -(-Lq // self._sides[0]), -(-Lk // self._sides[1]))
        self._largest = torch.zeros(shape, dtype=dtype, device=device)
        self._is_open = torch.zeros(shape, dtype=torch.bool, device=device)
        self._is_empty = torch.zeros((B, H, Lq), dtype=torch.bool, device=device)
        self._counts = torch.zeros((B, H, 4), dtype=torch.long, device=device)

    def take(self, place: tuple[slice, slice], rows: slice, weights: Tensor, hidden: Tensor | None) -> None:
        """Take rows of weights (b, h, rows, Lk) in, and where pairs may not attend; None: nowhere."""
        counts = self._counts[place]
        counts[..., 1] += weights.sum(-1).isnan().sum(-1)
        in_columns = _largest_of_runs(weights, self._sides[1])
        is_open = None
        if hidden is None:
            Lq, Lk = self._lengths
            diagonal = range(max(rows.start + Lk - Lq, 0), rows.stop + Lk - Lq)
            counts[..., 2] += sum(Lk - 1 - i for i in diagonal) + Lk * max(0, min(rows.stop, Lq - Lk) - rows.start)
            counts[..., 3] += len(diagonal)
        else:
            is_open = self._note_hidden(place, rows, hidden)
        for n in range(rows.start // self._sides[0], -(-rows.stop // self._sides[0])):
            first = max(n * self._sides[0], rows.start) - rows.start
            last = min((n + 1) * self._sides[0], rows.stop) - rows.start
            square = self._largest[place][:, :, n]
            torch.maximum(square, in_columns[:, :, first:last].amax(2), out=square)
            self._is_open[place][:, :, n] |= True if is_open is None else is_open[:, :, first:last].any(2)

    def _note_hidden(self, place: tuple[slice, slice], rows: slice, hidden: Tensor) -> Tensor:
        """Count the masked pairs (b, h, rows, Lk); which squares of single rows are not, (b, h, rows, columns)."""
        Lq, Lk = self._lengths
        counts = self._counts[place]
        counts[..., 0] += hidden.sum((-2, -1))
        self._is_empty[(*place, rows)] = hidden.all(-1)
        i = torch.arange(rows.start + Lk - Lq, rows.stop + Lk - Lq, device=hidden.device)[:, None]
        j = torch.arange(Lk, device=hidden.device)
        counts[..., 2] += ((j > i) & ~hidden).any(-1).any(-1)
        counts[..., 3] += ((j == i) & ~hidden).any(-1).any(-1)
        return _largest_of_runs(~hidden, self._sides[1])

    def totals(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """What the rows taken in give, before it is coded."""
        return self._largest, self._is_open, self._is_empty, self._counts

    def coded(self, largest: Tensor, is_open: Tensor, is_empty: Tensor, counts: Tensor) -> Coded:
        """What the totals of all rows give."""
        sides = self._sides[0]
        some = [(~is_empty)[:, :, start : start + sides].any(-1) for start in range(0, self._lengths[0], sides)]
        return Coded(coded(largest, is_open, torch.stack(some, dim=-1)), is_empty, counts)


def masked(block: RowBlock) -> Tensor:
    """Where a pair of a block may not attend: by a score of -inf, or by one so low that only a mask adds it."""
    # less than this below the largest score of its row; of a row of NaN, and of one without a key, any is
    least = (SOFT - block.top).nan_to_num(nan=0.0).clamp(max=0.0)
    return (block.powers == 0) & (block.shifted < least[..., None])


def _largest_of_runs(values: Tensor, size: int) -> Tensor:
    """(..., Lk) -> (..., Lk / size), the largest of each run of `size`; the last one may be shorter."""
    if size == 1:
        return values
    whole = values.shape[-1] // size
    runs = values[..., : whole * size].unflatten(-1, (whole, size))
    largest: Tensor = runs.any(-1) if values.dtype is torch.bool else runs.amax(-1)
    if whole * size == values.shape[-1]:
        return largest
    rest = values[..., whole * size :]
    last = rest.any(-1, keepdim=True) if values.dtype is torch.bool else rest.amax(-1, keepdim=True)
    return torch.cat([largest, last], dim=-1)
