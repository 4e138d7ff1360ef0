"""Shared entries: any block, or any single pairs, of a map that ranks share, read where they are and sent to all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from headwise.maps.indices import Taken, count
from headwise.ops.shared_axis import SharedAxis


class SharedAxes(NamedTuple):
    """The axes of a map that ranks share; None: this rank has all of it."""

    heads: SharedAxis | None = None
    rows: SharedAxis | None = None

    @property
    def shared(self) -> tuple[SharedAxis, ...]:
        """Those that ranks share."""
        return tuple(axis for axis in self if axis is not None)

    @property
    def is_first(self) -> bool:
        """Whether this rank is the first of all that share the map."""
        return all(axis.is_first for axis in self.shared)

    def agree(self, reading: str) -> None:
        """Raise on every rank unless all of them make this reading."""
        for axis in self.shared:
            axis.agree(reading)

    def all_rows(self, t: Tensor) -> Tensor:
        """(B, h, rows of this rank, ...) of every rank -> (B, H, Lq, ...) on all."""
        return self.all_heads(t if self.rows is None else self.rows.joined(t, 2))

    def all_heads(self, t: Tensor, dim: int = 1) -> Tensor:
        """(B, h, ...) of the ranks that have other heads -> (B, H, ...) on all."""
        return t if self.heads is None else self.heads.joined(t, dim)

    def total(self, t: Tensor, how: str) -> Tensor:
        """(B, h, ...) of every rank, the sum or the maximum over those with other rows -> (B, H, ...) on all."""
        return self.all_heads(t if self.rows is None else self.rows.total(t, how))

    def maximum(self, value: float, device: torch.device) -> float:
        """The largest of the numbers that the ranks have."""
        largest = torch.tensor([value], dtype=torch.float64, device=device)
        for axis in self.shared:
            largest = axis.total(largest, "max")
        return float(largest)


# of a part of a map, what is taken from each axis, or single pairs
Read = Callable[[tuple[Any, ...]], Tensor]


def block(axes: SharedAxes, sizes: Sequence[int], taken: tuple[Taken, ...], read: Read, like: Tensor) -> Tensor:
    """What `read` gives of this rank's part for what is taken from each axis, joined; like: a tensor of its dtype."""
    heads, rows = (_wanted(axis, t, size) for axis, t, size in zip(axes, taken[1:3], sizes[1:3], strict=True))
    some = (taken[0], heads.local, rows.local, taken[3])
    counts = [count(t, size) for t, size in zip(some, (sizes[0], heads.size, rows.size, sizes[3]), strict=True)]
    values = read(some) if counts[1] and counts[2] else like.new_empty(counts)
    if axes.rows is not None:
        values = axes.rows.joined(values, 2, rows.entries)
    return values if axes.heads is None else axes.heads.joined(values, 1, heads.entries)


def points(axes: SharedAxes, at: tuple[Tensor, ...], read: Read, like: Tensor) -> Tensor:
    """What `read` gives of this rank's part for single pairs (n,), joined; like: a tensor of its dtype."""
    device = at[0].device
    b, h, i, j = (t.cpu() for t in at)
    has_head = torch.ones_like(h, dtype=torch.bool) if axes.heads is None else axes.heads.holds(h)
    is_mine = has_head if axes.rows is None else has_head & axes.rows.holds(i)
    local = (
        b[is_mine],
        h[is_mine] if axes.heads is None else axes.heads.slots(h[is_mine]),
        i[is_mine] if axes.rows is None else axes.rows.slots(i[is_mine]),
        j[is_mine],
    )
    values = read(tuple(t.to(device) for t in local)) if len(local[0]) else like.new_empty(0)
    if axes.rows is not None:
        values = axes.rows.joined(values, 0, i[has_head])
    return values if axes.heads is None else axes.heads.joined(values, 0, h)


class WantedEntries(NamedTuple):
    """What is wanted of an axis: all of it (n,), None where it is not shared, and where this rank has its part."""

    entries: Tensor | None
    local: Taken
    size: int


def _wanted(axis: SharedAxis | None, taken: Taken, size: int) -> WantedEntries:
    if axis is None:
        return WantedEntries(None, taken, size)
    index = taken.cpu() if isinstance(taken, Tensor) else torch.arange(size)[taken]
    return WantedEntries(index, _neighbours(axis.slots(index[axis.holds(index)])), len(axis.own))


def _neighbours(slots: Tensor) -> Taken:
    """An index as a slice, where it names neighbours in their order."""
    if len(slots) and not bool((slots.diff() == 1).all()):
        return slots
    return slice(int(slots[0]), int(slots[-1]) + 1) if len(slots) else slice(0, 0)
