"""Rows: a map in blocks of whole rows, each with its softmax, in a buffer that stays in the cache."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from headwise.maps.logsum import LogSum, finite
from headwise.maps.score_tiles import Tile, TileScores, cut_axes, cut_bias, pieces, room, wide_type
from headwise.maps.strips import exact
from headwise.maps.workers import run_parts
from headwise.masks.coordinates import Grid
from headwise.masks.host_tiles import host_tiles
from headwise.masks.leaves import values_are_at_hand
from headwise.masks.tiles import EMPTY, FULL
from headwise.ops.call import Call

# measured: 4 MiB of float32 a thread; of 4096 to 32768 keys half or twice as much takes 1.03 to 1.15 times as long
ENTRIES = 1 << 20
# the longest block of rows, and the grid in which a mask is asked what a block can do without
ROWS, GRID = 512, 64
# a map of fewer pairs is read before a second thread has started
SMALL = 1 << 22
LOG2E = math.log2(math.e)


class RowBlock(NamedTuple):
    """Whole rows of some samples and heads, with the columns in which they may attend to a key.

    columns: runs of columns, side by side on the last axis of the tensors. shifted (b, h, rows, n): scores less top,
    -inf where a pair may not attend. powers (b, h, rows, n): their exponentials. top (b, h, rows): the largest score,
    -inf where there is none. total (b, h, rows): the sums of powers. sums: the log-sums of the rows. share (b, h,
    rows): powers times this are the weights; on a row of NaN it is 1, and the powers of the pairs that may attend are
    NaN. Tensors are views of what the next block overwrites.
    """

    samples: slice
    heads: slice
    rows: slice
    columns: tuple[slice, ...]
    shifted: Tensor
    powers: Tensor
    top: Tensor
    total: Tensor
    sums: LogSum
    share: Tensor

    def of_rows(self, values: Tensor) -> Tensor:
        """The part of values (B, Hq, Lq, ...) that belongs to this block."""
        return values[self.samples, self.heads, self.rows]

    def runs(self, values: Tensor) -> Iterator[tuple[slice, Tensor]]:
        """Each run of columns with its part of values (b, h, rows or 1, n)."""
        start = 0
        for run in self.columns:
            stop = start + run.stop - run.start
            yield run, values[..., start:stop]
            start = stop

    def spread(self, values: Tensor, Lk: int, fill: float = 0.0) -> Tensor:
        """Values (b, h, rows, n) with all Lk columns, `fill` in those where no row may attend."""
        if values.shape[-1] == Lk:
            return values
        whole = values.new_full((*values.shape[:-1], Lk), fill)
        for run, part in self.runs(values):
            whole[..., run] = part
        return whole


Visit = Callable[[RowBlock], None]


class Cut(NamedTuple):
    """Rows of a map and the runs of columns in which some of them may attend; mixed: in which some may not."""

    rows: slice
    columns: tuple[slice, ...]
    mixed: tuple[slice, ...]


class Lot(NamedTuple):
    """Samples and query heads whose rows are read one after another."""

    samples: slice
    heads: slice


def read_rows(call: Call, visit: Visit, *, rows: slice | None = None) -> None:
    """Call visit with every block of rows, in full precision and without gradients; rows: some, None: all.

    Blocks of different samples or heads come from different threads at a time, those of one head in order.
    """
    if 0 in call.sizes:
        return
    scores = TileScores(call)
    kinds = None
    if call.mask is not None:
        kinds = host_tiles(call.mask, call.sizes, (GRID, GRID), call.q.device)
    limits = slice(0, call.sizes.Lq) if rows is None else rows
    threads = torch.get_num_threads() if call.q.device.type == "cpu" and math.prod(call.sizes) > SMALL else 1

    def read(lot: Lot) -> None:
        with exact(call):
            _read_lot(call, scores, kinds, lot, limits, visit)

    run_parts(read, _lots(call, threads), most=threads)


def _lots(call: Call, threads: int) -> list[Lot]:
    """All samples and heads in as many parts as threads can be kept busy with."""
    B, Hq, _, _ = call.sizes
    wanted = threads * 2 if threads > 1 else 1
    samples = -(-B // wanted)
    heads = -(-Hq // call.groups // -(-wanted // B)) * call.groups
    return [Lot(b, h) for b in pieces(B, samples) for h in pieces(Hq, heads)]


def _read_lot(call: Call, scores: TileScores, kinds: Tensor | None, lot: Lot, limits: slice, visit: Visit) -> None:
    B, Hq = (len(range(size)[taken]) for size, taken in zip(call.sizes, lot, strict=False))
    own = None if kinds is None else cut_axes(kinds, lot.samples, lot.heads).flatten(0, 1)
    buffers, most = Buffers(call), room(call, ENTRIES)
    for cut in _cuts(call, own, limits):
        width = sum(run.stop - run.start for run in cut.columns)
        closed = list(_closed(call, lot, cut))
        # how many groups of heads, and then how many samples, fit beside each other
        entries = (cut.rows.stop - cut.rows.start) * width * call.groups
        heads = max(1, min(most // entries, Hq // call.groups)) * call.groups
        samples = max(1, most // (entries * (Hq // call.groups))) if heads == call.sizes.H else 1
        for b in pieces(B, samples):
            for h in pieces(Hq, heads):
                place = Lot(_shifted(b, lot.samples), _shifted(h, lot.heads))
                some = [(columns, cut_axes(pairs, b, h)) for columns, pairs in closed]
                visit(_block(scores, buffers, place, cut, some))


def _shifted(taken: slice, by: slice) -> slice:
    return slice(taken.start + by.start, taken.stop + by.start)


class Buffers:
    """Room for the scores and the exponentials of a block, used by every block again."""

    def __init__(self, call: Call) -> None:
        self._like = call.q
        self._dtype = wide_type(call)
        self._room: tuple[Tensor, Tensor] | None = None

    def of(self, shape: tuple[int, int, int, int]) -> tuple[Tensor, Tensor]:
        """Two tensors of this shape, holding anything."""
        entries = math.prod(shape)
        if self._room is None or self._room[0].numel() < entries:
            first, second = (self._like.new_empty(entries, dtype=self._dtype) for _ in range(2))
            self._room = first, second
        scores, powers = (room[:entries].view(shape) for room in self._room)
        return scores, powers


def _cuts(call: Call, kinds: Tensor | None, limits: slice) -> Iterator[Cut]:
    """The rows in runs, as long as a block has room for; those that may attend to nothing with the first column."""
    Lk = call.sizes.Lk
    whole = (slice(0, Lk),)
    # of every block of the grid: whether a pair may attend, and whether all may
    is_open = None if kinds is None else kinds.ne(EMPTY).any(0)
    is_full = None if kinds is None else kinds.eq(FULL).all(0)
    start, most = limits.start, room(call, ENTRIES)
    while start < limits.stop:
        for length in _lengths(start, limits.stop):
            rows = slice(start, start + length)
            runs = whole if is_open is None else _runs(_some(is_open, rows), Lk)
            width = sum(run.stop - run.start for run in runs)
            if length * width * call.groups <= most:
                break
        else:
            length = max(1, most // (max(1, width) * call.groups))
            rows = slice(start, min(start + length, limits.stop))
        mixed: tuple[slice, ...] = () if call.mask is None else whole
        if is_open is not None and is_full is not None:
            mixed = _runs(_some(is_open, rows) & ~_all(is_full, rows), Lk)
        # one column where there is none, so that there is a largest score
        nothing = (slice(0, 1),)
        yield Cut(rows, runs, mixed) if runs else Cut(rows, nothing, nothing)
        start = rows.stop


def _lengths(start: int, stop: int) -> Iterator[int]:
    """How many rows a block that begins here may have, the most first; each ends with a block of the grid."""
    length = ROWS
    while length >= GRID:
        yield min(length - start % GRID, stop - start)
        length //= 2


def _some(blocks: Tensor, rows: slice) -> Tensor:
    """Of a grid of bool, the columns in which some block of these rows is True."""
    return blocks[rows.start // GRID : -(-rows.stop // GRID)].any(0)


def _all(blocks: Tensor, rows: slice) -> Tensor:
    """Of a grid of bool, the columns in which every block of these rows is True."""
    return blocks[rows.start // GRID : -(-rows.stop // GRID)].all(0)


def _runs(wanted: Tensor, Lk: int) -> tuple[slice, ...]:
    """The runs of columns that a row of the grid says are wanted."""
    runs: list[slice] = []
    for n, is_wanted in enumerate(wanted.tolist()):
        if is_wanted:
            start = runs.pop().start if runs and runs[-1].stop == n * GRID else n * GRID
            runs.append(slice(start, min((n + 1) * GRID, Lk)))
    return tuple(runs)


def _closed(call: Call, lot: Lot, cut: Cut) -> Iterator[tuple[slice, Tensor]]:
    """Which pairs may not attend, bool (b|1, h|1, rows|1, n|1), where some may not, by mask and by a bias of -inf.

    The slices say where on the last axis of a block they are.
    """
    grid = Grid.whole(call.sizes, call.q.device)
    start = 0
    for run in cut.columns:
        for mixed in cut.mixed:
            if run.start <= mixed.start < run.stop and call.mask is not None:
                part = grid.part(cut.rows, mixed, samples=lot.samples, heads=lot.heads)
                shift = start - run.start
                yield slice(mixed.start + shift, mixed.stop + shift), ~call.mask.allows(part)
        stop = start + run.stop - run.start
        if call.attn_bias is not None:
            bias = cut_axes(cut_bias(call.attn_bias.detach(), cut.rows, run), lot.samples, lot.heads).isneginf()
            if not values_are_at_hand(bias) or bool(bias.any()):
                yield slice(start, stop), bias
        start = stop


def _block(scores: TileScores, buffers: Buffers, place: Lot, cut: Cut, closed: list[tuple[slice, Tensor]]) -> RowBlock:
    """The softmax of some rows."""
    call = scores.call
    width = sum(run.stop - run.start for run in cut.columns)
    sizes = tuple(taken.stop - taken.start for taken in (*place, cut.rows))
    t, p = buffers.of((sizes[0], sizes[1], sizes[2], width))
    start = 0
    for run in cut.columns:
        stop = start + run.stop - run.start
        scores.into(Tile(place.samples, place.heads, cut.rows, run, None), t[..., start:stop])
        start = stop
    _close(t, closed, float("-inf"))
    top = t.amax(-1)
    sink = None if call.sink is None else call.sink.detach()[place.heads]
    t.sub_(_base(top, sink)[..., None])
    _exponentials(t, p)
    total = p.sum(-1)
    sums = _log_sums(top, total, sink)
    share = sums.log.neg().exp_()
    broken = share.isnan()
    if not values_are_at_hand(broken) or bool(broken.any()):
        # the weight of a pair that may not attend is 0 in a row of NaN too
        _close(t, closed, float("-inf"))
        _close(p, closed, 0.0)
        share.masked_fill_(broken, 1.0)
    return RowBlock(*place, cut.rows, cut.columns, t, p, top, total, sums, share)


def _base(top: Tensor, sink: Tensor | None) -> Tensor:
    """What is taken from the scores of a row (b, h, rows): the largest, 0 where there is none, NaN where all are NaN.

    They are where a score or the sink is NaN or +inf.
    """
    largest = top if sink is None else torch.maximum(top, sink.to(top.dtype)[:, None])
    return finite(top).masked_fill_(largest.isnan() | largest.isposinf(), float("nan"))


def _close(values: Tensor, closed: list[tuple[slice, Tensor]], fill: float) -> None:
    for columns, pairs in closed:
        values[..., columns].masked_fill_(pairs, fill)


def _exponentials(scores: Tensor, out: Tensor) -> None:
    # a power of 2 takes torch a quarter of the time that exp takes it, which leaves that to MKL
    torch.mul(scores, LOG2E, out=out).exp2_()


def _log_sums(top: Tensor, total: Tensor, sink: Tensor | None) -> LogSum:
    """The log-sums of rows by their largest scores and the sums of exp(score - top), all (b, h, rows); sink (h,)."""
    log, is_empty = total.log(), top.isneginf()
    lse = torch.where(is_empty, top, top + log)
    if sink is None:
        return LogSum(top, log.masked_fill_(is_empty, 0.0), lse)
    logit = sink.to(top.dtype)[:, None]
    log = torch.logaddexp(log, logit - top).clamp_(max=torch.finfo(top.dtype).max)
    # beside a sink of +inf the sums are NaN, which only a score of NaN makes of the whole
    whole = torch.where(logit.isposinf() & ~top.isnan(), logit, torch.logaddexp(lse, logit))
    return LogSum(torch.where(is_empty, logit, top), log.masked_fill_(is_empty, 0.0), whole)
