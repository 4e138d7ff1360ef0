"""Strips: rows of a map with the columns that they may see, so that a kernel pays for these only."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from typing import NamedTuple

from torch import Tensor

from headwise.masks import Mask
from headwise.masks.coordinates import Sizes
from headwise.masks.derived_tensors import derived
from headwise.masks.leaves import Causal
from headwise.masks.tiles import EMPTY, MIXED
from headwise.ops.causal_cost import causal_pairs

# the tiles by which a mask is asked, and the most rows of one strip
BLOCK, ROWS = 128, 512
# two calls of torch's kernel are faster than one with a mask from so many rows on
FEWEST_SQUARE = 512
# a square is cut in halves where that spares such a share of the pairs that torch's kernel computes
LEAST_SPARED = 1 / 8
# rows of tiles that differ are one strip up to so many mixed tiles, whose mask is small enough to be kept
MOST_MIXED = 16
Runs = tuple[slice, ...]


@dataclass(frozen=True)
class Strip:
    """A block of samples, key/value heads and their query heads, rows, and the runs of columns these may see.

    members: which of the query heads that share a key/value head. mixed: the columns, all of one run, of which the
    mask must still be asked; () where it is all True; several runs are asked as a whole. is_causal: its columns are
    as many as its rows, of which row i sees the first i + 1: no mask is asked. joins: its rows see the columns of the
    strip before it too.
    """

    samples: slice
    shared: slice
    members: slice
    rows: slice
    columns: Runs
    mixed: Runs
    is_causal: bool = False
    joins: bool = False

    def __hash__(self) -> int:
        # Python 3.11 has no hash for slices
        slices = (self.samples, self.shared, self.members, self.rows, *self.columns, *self.mixed)
        return hash(tuple((each.start, each.stop) for each in slices))

    def heads(self, groups: int) -> slice:
        """The query heads of this strip, which are neighbours."""
        if (self.members.stop - self.members.start) == groups:
            return slice(self.shared.start * groups, self.shared.stop * groups)
        first = self.shared.start * groups
        return slice(first + self.members.start, first + self.members.stop)

    @property
    def width(self) -> int:
        """How many columns it sees."""
        return sum(run.stop - run.start for run in self.columns)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Of its scores: samples and key/value heads, query heads and rows, columns."""
        samples, shared, members, rows = (
            s.stop - s.start for s in (self.samples, self.shared, self.members, self.rows)
        )
        return samples * shared, members * rows, self.width


class Bounds(NamedTuple):
    """How large strips may be.

    most: scores of one, if more than a row of tiles; rows: the most rows, None: ROWS; fewest: how many rows are taken
    before several heads, None: as many as may be; spare: how many pairs more may be computed for a strip less.
    """

    most: int
    rows: int | None = None
    fewest: int | None = None
    spare: int = 0


class Total(NamedTuple):
    """What all strips of a call hold: how many they are, and pairs.

    asked: the pairs of which the mask is asked. masked: the pairs of strips with any of these.
    """

    strips: float
    pairs: float
    asked: float
    masked: float


class Strips(tuple[Strip, ...]):
    """The strips of a call."""

    @cached_property
    def total(self) -> Total:
        """What they hold."""
        pairs = asked = masked = 0
        for strip in self:
            shared, rows, columns = strip.shape
            if strip.is_causal:
                pairs += shared * rows // columns * causal_pairs(columns)
                continue
            pairs += shared * rows * columns
            asked += shared * rows * sum(run.stop - run.start for run in strip.mixed)
            masked += shared * rows * columns if strip.mixed else 0
        return Total(float(len(self)), float(pairs), float(asked), float(masked))

    def covers_rows(self, sizes: Sizes) -> bool:
        """Whether each row of a call is in a strip; one that is in none may attend to nothing."""
        covered = sum(math.prod(strip.shape[:2]) for strip in self if not strip.joins)
        return covered == sizes.B * sizes.H * sizes.Lq

    def splits_columns(self, sizes: Sizes, groups: int) -> bool:
        """Whether each column of all samples and heads is in exactly one strip."""
        every = sizes.B * (sizes.H // groups), groups
        if any((s.shape[0], s.members.stop - s.members.start) != every for s in self):
            return False
        runs = sorted((run.start, run.stop) for strip in self for run in strip.columns)
        bounds = [0, *(bound for run in runs for bound in run), sizes.Lk]
        return all(left == right for left, right in zip(bounds[::2], bounds[1::2], strict=True))


def strips(mask: Mask | None, sizes: Sizes, groups: int, bounds: Bounds, *, has_squares: bool = False) -> Strips:
    """The strips of a map: each pair that may attend is in one of them, and pairs in none are all hidden.

    sizes: B, Hq, Lq and Lk; groups: how many query heads share a key/value head; has_squares: whether a causal mask is
    two strips, of the columns that all rows see and of a square beside them, so that it is not asked.
    """
    bounds = bounds._replace(rows=bounds.rows or ROWS)
    if mask is None:
        return _of_no_mask(sizes, groups, bounds)
    if has_squares and type(mask) is Causal and FEWEST_SQUARE <= sizes.Lq <= sizes.Lk and 0 not in sizes:
        return _of_causal(sizes, groups)
    return derived(mask, ("strips", BLOCK, *sizes, groups, bounds), lambda: _cut(mask, sizes, groups, bounds))


def _cut(mask: Mask | None, sizes: Sizes, groups: int, bounds: Bounds) -> Strips:
    bands = () if 0 in sizes else _bands(mask, sizes, bounds)
    return Strips(strip for band in bands for strip in _fitting(*band, groups, bounds))


_of_no_mask = lru_cache(maxsize=64)(partial(_cut, None))


@lru_cache(maxsize=64)
def _of_causal(sizes: Sizes, groups: int) -> Strips:
    """The square of the last columns, and those before it, which all rows see.

    The square comes first: its log-sums tell early whether the two can be joined. One that is all is two strips
    where that spares enough: the first half of its rows sees half of the columns.
    """
    B, H, Lq, Lk = sizes
    every = slice(0, B), slice(0, H // groups), slice(0, groups)
    whole = *every, slice(0, Lq)
    before, square = (slice(0, Lk - Lq),), (slice(Lk - Lq, Lk),)
    half = Lq // 2
    in_halves = causal_pairs(half) + (Lq - half) * Lq
    if Lq == Lk and causal_pairs(Lq) * (1 - LEAST_SPARED) >= in_halves:
        first, second = slice(0, half), slice(half, Lq)
        return Strips(
            [Strip(*every, first, (first,), (first,), is_causal=True), Strip(*every, second, square, (second,))]
        )
    if Lq == Lk:
        return Strips([Strip(*whole, square, square, is_causal=True)])
    return Strips([Strip(*whole, square, square, is_causal=True), Strip(*whole, before, (), joins=True)])


def _kinds(mask: Mask, sizes: Sizes) -> Tensor:
    return mask.tiles(sizes.Lq, sizes.Lk, block=(BLOCK, BLOCK), batch=sizes.B, heads=sizes.H)


def _bands(mask: Mask | None, sizes: Sizes, bounds: Bounds) -> Iterator[tuple[slice, slice, slice, Runs, Runs]]:
    """Samples, query heads, rows, columns and mixed columns, as large as the mask allows."""
    B, H, Lq, Lk = sizes
    most = bounds.rows or Lq
    if mask is None:
        for start in range(0, Lq, most):
            yield slice(0, B), slice(0, H), slice(start, min(start + most, Lq)), (slice(0, Lk),), ()
        return
    kinds = _kinds(mask, sizes)
    # samples or heads whose tiles agree are computed together
    if kinds.shape[0] > 1 and bool((kinds == kinds[:1]).all()):
        kinds = kinds[:1]
    if kinds.shape[1] > 1 and bool((kinds == kinds[:, :1]).all()):
        kinds = kinds[:, :1]
    for b, of_sample in enumerate(kinds.tolist()):
        samples = slice(0, B) if kinds.shape[0] == 1 else slice(b, b + 1)
        for h, of_head in enumerate(of_sample):
            heads = slice(0, H) if kinds.shape[1] == 1 else slice(h, h + 1)
            tiles = bounds.spare // (BLOCK * BLOCK * (samples.stop - samples.start) * (heads.stop - heads.start))
            for rows, columns, mixed in _merged(of_head, Lq, Lk, most // BLOCK, tiles):
                yield samples, heads, rows, columns, mixed


def _merged(kinds: list[list[int]], Lq: int, Lk: int, most: int, spare: int) -> Iterator[tuple[slice, Runs, Runs]]:
    """Rows of tiles with the columns they see; neighbours that see the same are one, up to `most` of them.

    So are those that see almost the same, where that takes no more than `spare` tiles.
    """
    start = 0
    while start < len(kinds):
        stop, seen = start + 1, kinds[start]
        while stop < len(kinds) and stop - start < most:
            if kinds[stop] != seen:
                both = [a if a == b else MIXED for a, b in zip(seen, kinds[stop], strict=True)]
                needed = _count(both) * (stop - start + 1) - _count(seen) * (stop - start) - _count(kinds[stop])
                is_kept = (stop - start + 1) * both.count(MIXED) <= MOST_MIXED
                if not spare or needed > spare or not is_kept or not _are_one_run(both, seen, kinds[stop]):
                    break
                seen = both
            stop += 1
        columns = tuple(_runs(seen, Lk))
        if columns:
            yield slice(start * BLOCK, min(stop * BLOCK, Lq)), columns, _mixed(seen, columns, Lk)
        start = stop


def _count(kinds: list[int]) -> int:
    """How many tiles of a row are not empty."""
    return len(kinds) - kinds.count(EMPTY)


def _are_one_run(*rows: list[int]) -> bool:
    """Whether each of these rows of tiles sees columns that follow one another, and some."""
    return all(len(list(_runs(kinds, len(kinds) * BLOCK))) == 1 for kinds in rows)


def _runs(kinds: list[int], Lk: int) -> Iterator[slice]:
    """Neighbouring columns of a row of tiles that are not empty."""
    start = None
    for at, kind in enumerate([*kinds, EMPTY]):
        if kind != EMPTY and start is None:
            start = at
        elif kind == EMPTY and start is not None:
            yield slice(start * BLOCK, min(at * BLOCK, Lk))
            start = None


def _mixed(kinds: list[int], columns: Runs, Lk: int) -> Runs:
    at = [n for n, kind in enumerate(kinds) if kind == MIXED]
    if not at:
        return ()
    if len(columns) > 1:
        return columns
    return (slice(at[0] * BLOCK, min((at[-1] + 1) * BLOCK, Lk)),)


def _fitting(
    samples: slice, heads: slice, rows: slice, columns: Runs, mixed: Runs, groups: int, bounds: Bounds
) -> Iterator[Strip]:
    """A band, cut so that the scores of each strip fit: the fewest rows, then heads, then more rows."""
    first, members = heads.start // groups, slice(0, groups)
    last = -(-heads.stop // groups)
    if heads.stop - heads.start < groups:
        members = slice(heads.start - first * groups, heads.stop - first * groups)
    width = sum(run.stop - run.start for run in columns)
    per_member, all_heads = (members.stop - members.start) * width, last - first
    most, length = bounds.most, rows.stop - rows.start
    of_one, of_all = (most // (per_member * count * BLOCK) * BLOCK for count in (1, all_heads))
    height = min(max(BLOCK, of_all, min(of_one, bounds.fewest or length)), length)
    for row in range(rows.start, rows.stop, height):
        part = slice(row, min(row + height, rows.stop))
        together = max(1, most // (per_member * (part.stop - part.start)))
        some = max(1, together // all_heads)
        for sample in range(samples.start, samples.stop, some):
            of = slice(sample, min(sample + some, samples.stop))
            for shared in range(first, last, together):
                yield Strip(of, slice(shared, min(shared + together, last)), members, part, columns, mixed)
