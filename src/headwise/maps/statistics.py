"""Statistics: what one pass over whole rows gives of a map, in O(L) memory."""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from headwise.maps.logsum import LogSum
from headwise.maps.pooling import Bin, bins, pool_columns
from headwise.maps.rows import RowBlock, read_rows
from headwise.maps.score_tiles import wide_type
from headwise.masks.leaves import values_are_at_hand
from headwise.ops.call import Call

# the largest entries of a long row are looked for in runs of this many, where FEW times as many runs are there
RUN, FEW = 32, 4


class Summary(NamedTuple):
    """What every pass over the weights p of a map gives.

    entropy (B, Hq, Lq): -sum p log p, in nats. peak (B, Hq, Lq): the largest open score, -inf where there is none.
    mass (B, Hq, Lq): the sum of a row. received (B, Hq, Lk): the sums of the columns, wider than the rest where the
    device knows float64. sums: the log-sums of the rows.
    """

    entropy: Tensor
    peak: Tensor
    mass: Tensor
    received: Tensor
    sums: LogSum


class Statistics(NamedTuple):
    """What `AttentionMap.statistics` gives, each as the method of its name does.

    entropy (B, Hq, Lq), received (B, Hq, Lk), distance (B, Hq), max_logit (B, Hq). pooled (B, Hq, h, w), topk: the
    weights and their keys, both (B, Hq, Lq, k); None: not asked for.
    """

    entropy: Tensor
    received: Tensor
    distance: Tensor
    max_logit: Tensor
    pooled: Tensor | None
    topk: tuple[Tensor, Tensor] | None


class MapPart(NamedTuple):
    """The rows of a whole map that a call has: int64 ascending (Lq,) on the CPU, of `length`."""

    rows: Tensor
    length: int

    def bins(self, borders: Sequence[Bin]) -> list[Bin]:
        """Where among the rows of the part those stand that lie in each of some bins of the whole map's."""
        rows = self.rows.contiguous()
        firsts, lasts = (torch.searchsorted(rows, torch.tensor(each)) for each in zip(*borders, strict=True))
        return list(zip(firsts.tolist(), lasts.tolist(), strict=True))


class Statistic(ABC):
    """A reduction of a map, made block by block of whole rows; blocks of different heads come at the same time.

    It is made from a call and numbers or words, by which it is asked for, and may be of some rows of a larger map.
    joins: how each of its totals becomes that of the larger map, by "sum" or "max" over the parts, or by "rows", which
    stand beside each other on axis 2; on axis 1 all have heads. (): it is of a whole map only.
    """

    joins: tuple[str, ...] = ()

    @abstractmethod
    def add(self, block: RowBlock) -> None:
        """Take a block in; its tensors stay as they are."""

    @abstractmethod
    def totals(self) -> tuple[Tensor, ...]:
        """What the blocks that have been added give."""

    def concluded(self, totals: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """The reduction, from the totals of all rows."""
        return totals

    def result(self) -> tuple[Tensor, ...]:
        """The reduction, when every block has been added."""
        return self.concluded(self.totals())


def summarize(call: Call, others: Sequence[Statistic] = ()) -> Summary:
    """The summary of a call's weights, and in the same pass these statistics."""
    B, Hq, Lq, Lk = call.sizes
    rows = call.q.new_zeros((B, Hq, Lq), dtype=wide_type(call))
    peak = torch.full_like(rows, float("-inf"))
    summary = Summary(
        torch.zeros_like(rows), peak, torch.zeros_like(rows), call.q.new_zeros((B, Hq, Lk), dtype=_total_type(call)),
        LogSum(peak.clone(), torch.zeros_like(rows), peak.clone()),
    )  # fmt: skip
    has_infinite = call.mask is not None or call.attn_bias is not None

    def visit(block: RowBlock) -> None:
        for other in others:
            other.add(block)
        block.of_rows(summary.peak).copy_(block.top)
        for whole, part in zip(summary.sums, block.sums, strict=True):
            block.of_rows(whole).copy_(part)
        add_columns(summary.received, block, block.share)
        mass = block.total * block.share
        if has_infinite:
            # 0·(-inf) is NaN, and such a pair adds nothing
            block.shifted.clamp_(min=torch.finfo(mass.dtype).min)
        # -sum p (shifted - log), of which both terms are positive
        entropy = block.shifted.mul_(block.powers).sum(-1).mul_(block.share).neg_()
        block.of_rows(summary.entropy).copy_(entropy.addcmul_(mass, block.sums.log))
        block.of_rows(summary.mass).copy_(mass)

    read_rows(call, visit)
    if Lk == 0 and call.sink is not None:
        # no row has been read
        sink = call.sink.detach().to(rows.dtype)[:, None]
        summary.sums.base.copy_(sink.expand_as(rows))
        summary.sums.lse.copy_(sink.expand_as(rows))
    return summary


def _total_type(call: Call) -> torch.dtype:
    """The dtype in which columns are summed."""
    return torch.float64 if call.q.device.type == "cpu" else wide_type(call)


def add_columns(totals: Tensor, block: RowBlock, factors: Tensor) -> None:
    """Add the sums of powers · factors (b, h, rows) down the columns to totals (B, Hq, Lk)."""
    # a matmul is faster down the columns than a sum is
    powers = block.powers.flatten(0, 1)
    found = torch.bmm(factors.reshape(-1, 1, factors.shape[-1]), powers).view(*factors.shape[:2], -1)
    for run, part in block.runs(found):
        totals[block.samples, block.heads, run] += part


def rows_in_use(factors: Tensor) -> tuple[slice, Tensor | None]:
    """The rows from the first to the last with a factor that is not 0, of factors (B, Lq), in two parts.

    A slice that holds them, and which of all Lq rows they are, bool (Lq,); None: all of the slice. On a device, which
    is not read, the slice is all rows.
    """
    is_taken = factors.ne(0).any(0)
    if not values_are_at_hand(is_taken):
        before, after = is_taken.cumsum(0), is_taken.flip(0).cumsum(0).flip(0)
        return slice(0, factors.shape[1]), before.gt(0) & after.gt(0)
    taken = is_taken.nonzero()
    return (slice(int(taken[0]), int(taken[-1]) + 1) if taken.numel() else slice(0, 0)), None


class Flow(Statistic):
    """The sums of the columns with a factor for each row, (B, Hq, Lk).

    factors: (B, Lq). within: bool (Lq,), other rows add nothing, even where they hold NaN; None: all rows add.
    """

    joins = ("sum",)

    def __init__(self, call: Call, factors: Tensor, within: Tensor | None = None) -> None:
        B, Hq, _, Lk = call.sizes
        self._factors, self._within = factors, within
        self._totals = call.q.new_zeros((B, Hq, Lk), dtype=_total_type(call))

    def add(self, block: RowBlock) -> None:
        factors = self._factors[block.samples, None, block.rows]
        if self._within is not None:
            block = block._replace(powers=block.powers.masked_fill(~self._within[block.rows, None], 0.0))
        add_columns(self._totals, block, block.share * factors)

    def totals(self) -> tuple[Tensor, ...]:
        return (self._totals,)

    def concluded(self, totals: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return (totals[0].to(self._factors.dtype),)


class Largest(Statistic):
    """The k largest weights of each row and their keys, both (B, Hq, Lq, k), the largest first."""

    joins = ("rows", "rows")

    def __init__(self, call: Call, k: int, *, part: MapPart | None = None) -> None:
        del part  # each row is alone
        B, Hq, Lq, Lk = call.sizes
        self._k, self._Lk = k, Lk
        self._values = call.q.new_zeros((B, Hq, Lq, k), dtype=wide_type(call))
        self._keys = torch.zeros((B, Hq, Lq, k), dtype=torch.long, device=call.q.device)

    def add(self, block: RowBlock) -> None:
        columns, powers = block.columns, block.powers
        if powers.shape[-1] < self._k:
            columns, powers = (slice(0, self._Lk),), block.spread(powers, self._Lk)
        values, places = largest(powers, self._k)
        if len(columns) == 1:
            places += columns[0].start
        else:
            keys = [torch.arange(run.start, run.stop, device=places.device) for run in columns]
            places = torch.cat(keys)[places]
        block.of_rows(self._values).copy_(values.mul_(block.share[..., None]))
        block.of_rows(self._keys).copy_(places)

    def totals(self) -> tuple[Tensor, ...]:
        return self._values, self._keys


class Picture(Statistic):
    """A picture (B, Hq, h, w) of the map, by the mean or the maximum, with the borders of torch's adaptive pooling."""

    # or by their maximum, as the picture is asked for
    joins = ("sum",)

    def __init__(self, call: Call, h: int, w: int, how: str, *, part: MapPart | None = None) -> None:
        B, Hq, Lq, Lk = call.sizes
        self._how, self._w, self._Lk = how, w, Lk
        self.joins = ("sum" if how == "mean" else "max",)
        borders = bins(Lq if part is None else part.length, h)
        self._counts = [last - first for first, last in borders]
        self._rows = borders if part is None else part.bins(borders)
        self._firsts, self._lasts = map(list, zip(*self._rows, strict=True))
        # each bin with its first row, the one after its last, and how many of the whole map it has
        numbers = [(first, last, count) for (first, last), count in zip(self._rows, self._counts, strict=True)]
        self._borders = torch.tensor(numbers, device=call.q.device).T
        self._steps = torch.arange(max(1, *(last - first for first, last in self._rows)), device=call.q.device)
        self._pixels = call.q.new_zeros((B, Hq, h, w), dtype=wide_type(call))

    def add(self, block: RowBlock) -> None:
        pooled = pool_columns(block.spread(block.powers, self._Lk), self._w, self._how)
        self.take((block.samples, block.heads), block.rows, pooled.mul_(block.share[..., None]))

    def take(self, place: tuple[slice, slice], rows: slice, pooled: Tensor) -> None:
        """Take in rows of weights whose columns are pooled, (b, h, rows, w)."""
        some = slice(bisect_right(self._lasts, rows.start), bisect_left(self._firsts, rows.stop))
        firsts, lasts, counts = self._borders[:, some]
        # of a long bin no more than the rows that are here
        at = firsts.clamp(min=rows.start)[:, None] + self._steps[: rows.stop - rows.start]
        is_within = at < lasts.clamp(max=rows.stop)[:, None]
        # (b, h, bins, rows of the longest bin, w): what a bin has not, which may be NaN, adds nothing to it
        parts = pooled[:, :, (at - rows.start).clamp(max=pooled.shape[2] - 1)]
        parts = torch.where(is_within[..., None], parts, 0.0)
        pixels = self._pixels[place][:, :, some]
        if self._how == "mean":
            pixels.add_(parts.sum(3).div_(counts[:, None]))
        else:
            torch.maximum(pixels, parts.amax(3), out=pixels)

    def totals(self) -> tuple[Tensor, ...]:
        return (self._pixels,)


def largest(weights: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k largest of each row (b, h, rows, Lk), and where they are.

    They lie in the k runs with the largest maxima, so that only these are searched through where they are few.
    """
    runs = weights.shape[-1] // RUN
    if runs <= FEW * k or k == 0:
        found = weights.topk(k, dim=-1)
        return found.values, found.indices
    # the last entries, too few for a run, are searched through too
    whole = runs * RUN
    split = weights[..., :whole].unflatten(-1, (runs, RUN))
    best = split.amax(-1).topk(k, dim=-1, sorted=False).indices
    within = torch.arange(RUN, device=weights.device)
    tail = torch.arange(whole, weights.shape[-1], device=weights.device).expand(*weights.shape[:-1], -1)
    places = torch.cat([(best[..., None] * RUN + within).flatten(-2), tail], dim=-1)
    found = weights.gather(-1, places).topk(k, dim=-1)
    return found.values, places.gather(-1, found.indices)
