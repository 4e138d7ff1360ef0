"""Needed keys: which keys of every other rank the queries of a rank may attend to, so that no others are sent."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from headwise.distributed.layouts import Layout
from headwise.masks import Mask
from headwise.masks.coordinates import Sizes
from headwise.masks.derived_tensors import derived
from headwise.masks.host_tiles import host_part
from headwise.masks.selection import Picked
from headwise.masks.simplification import runs
from headwise.masks.tiles import EMPTY, FULL

# the rows of a tile, and the most tiles of one column of them
BLOCK, MOST_TILES = 128, 2048
# the rows of a rank are asked run by run, unless they are in more runs than these
MOST_RUNS = 64


@dataclass(frozen=True, eq=False)
class NeededKeys:
    """columns[r]: the keys that the queries of rank r may attend to, its own too, int64 ascending.

    needs[r][s] are those of them that rank s holds, as indices into layout.tokens[s], ascending; layout: of the keys.
    """

    layout: Layout
    columns: tuple[Tensor, ...]

    def __getitem__(self, rank: int) -> tuple[Tensor, ...]:
        slots = self._slots.get(rank)
        if slots is None:
            columns = self.columns[rank]
            slots = self._slots[rank] = tuple(self.layout.slot[columns[index]] for index in self.places(rank))
        return slots

    def places(self, rank: int) -> tuple[Tensor, ...]:
        """Where in columns[rank] those stand that each rank holds, int64 ascending."""
        owner = self.layout.owner[self.columns[rank]]
        counts = owner.bincount(minlength=self.layout.ranks).tolist()
        places: tuple[Tensor, ...] = owner.argsort(stable=True).split(counts)
        return places

    @cached_property
    def received(self) -> Tensor:
        """How many tokens each rank needs of each other rank, int64 (ranks, ranks), 0 of itself."""
        ranks = self.layout.ranks
        counts = torch.stack([self.layout.owner[columns].bincount(minlength=ranks) for columns in self.columns])
        return counts.fill_diagonal_(0)

    @cached_property
    def _slots(self) -> dict[int, tuple[Tensor, ...]]:
        return {}


def needs(
    mask: Mask | None, layout: Layout, keys: Layout | None = None, *, batch: int | None = None, heads: int | None = None
) -> NeededKeys:
    """Which keys the queries of each rank may attend to, found on the host, once for a mask and its layouts.

    mask: of the whole map; None: all may attend. layout: of the queries; keys: of the keys, None: of the same tokens.
    batch, heads: those of the call, which the mask must fit; None: as many as its own tensors speak of. A key is needed
    by a rank if any of its queries, in any sample and head, may attend to it. A function, as in `rule`, is not asked:
    it may read anything, and what it masks may be needed next time.
    """
    keys = layout if keys is None else keys
    if mask is None:
        return _of_no_mask(layout, keys)
    B, H = mask.batch if batch is None else batch, mask.heads if heads is None else heads
    mask.check(Sizes(B, H, layout.length, keys.length))
    host = on_host(mask)
    # a copy from a device does not show changes there
    kept_with = host if is_on_host(mask) else mask
    return derived(kept_with, ("needs", layout, keys), lambda: _needs_of(host, layout, keys), is_read=True)


def is_on_host(mask: Mask) -> bool:
    """Whether all tensors of a mask are on the CPU."""
    return all(t.device.type == "cpu" for t in pytree.tree_leaves(mask) if isinstance(t, Tensor))


def on_host(mask: Mask) -> Mask:
    """The mask with its tensors on the CPU, which knows nothing of the functions in it."""
    # a function is asked where the call runs, which "meta" never is
    asked = torch.device("meta")
    if not is_on_host(mask):
        return host_part(mask.to("cpu"), asked)
    host: Mask | None = mask.__dict__.get("_on_host")
    if host is None:
        # beside the fields, as the table of what was derived from a mask is
        host = host_part(mask, asked)
        if host is not mask:
            object.__setattr__(mask, "_on_host", host)
    return host


def block_of(length: int) -> int:
    """How many rows and columns a tile has by which so long a sequence is planned."""
    block = BLOCK
    while block * MOST_TILES < length:
        block *= 2
    return block


def open_tiles(mask: Mask, Lq: int, Lk: int) -> tuple[Tensor, Tensor]:
    """Of each tile: may any pair of any sample and head attend; may all of one sample and head. Bool (tiles, tiles)."""
    block = block_of(max(Lq, Lk))

    def make() -> tuple[Tensor, Tensor]:
        kinds = mask.tiles(Lq, Lk, block=(block, block)).flatten(0, 1)
        return (kinds != EMPTY).any(0), (kinds == FULL).any(0)

    return derived(mask, ("open tiles", Lq, Lk), make)


def seen_by(mask: Mask, rows: Tensor, Lq: int, Lk: int) -> Tensor:
    """The columns that any of some rows may attend to, bool (Lk,). The mask is on the host."""
    some, every = open_tiles(mask, Lq, Lk)
    block = block_of(max(Lq, Lk))
    columns = torch.zeros(Lk, dtype=torch.bool)
    for run in _few_runs(rows):
        touched = (rows[run] // block).unique()
        # in a tile that is all open, every column is needed if one row of it is ours
        certain, possible = every[touched].any(0), some[touched].any(0)
        columns |= _wide(certain, block, Lk)
        asked = _wide(possible & ~certain, block, Lk).nonzero()[:, 0]
        if len(asked):
            part = Picked(mask, rows[run], asked, Lq, Lk)
            kinds = part.tiles(len(rows[run]), len(asked), block=(BLOCK, 1))
            columns[asked] |= (kinds != EMPTY).flatten(0, 2).any(0)
    return columns


def _needs_of(mask: Mask, layout: Layout, keys: Layout) -> NeededKeys:
    sizes = layout.length, keys.length
    columns = [seen_by(mask, rows, *sizes).nonzero()[:, 0] if len(rows) else rows for rows in layout.tokens]
    return NeededKeys(keys, tuple(columns))


def _few_runs(rows: Tensor) -> list[slice]:
    """Where in the rows neighbours stand together; all of them as one where there are too many of these."""
    lengths = [run.stop - run.start for run in runs(rows)]
    if len(lengths) > MOST_RUNS:
        return [slice(0, len(rows))]
    stops = torch.tensor(lengths).cumsum(0).tolist()
    return [slice(stop - length, stop) for stop, length in zip(stops, lengths, strict=True)]


def _wide(of_tile: Tensor, block: int, length: int) -> Tensor:
    """One entry to each column of one to each tile."""
    return of_tile.repeat_interleave(block)[:length]


def _of_no_mask(layout: Layout, keys: Layout) -> NeededKeys:
    needs: NeededKeys | None = layout.__dict__.get("_all_needed")
    if needs is None or needs.layout is not keys:
        everything = torch.arange(keys.length)
        needs = NeededKeys(keys, tuple(everything if len(tokens) else tokens for tokens in layout.tokens))
        object.__setattr__(layout, "_all_needed", needs)
    return needs
