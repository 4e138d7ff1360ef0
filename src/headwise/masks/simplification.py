"""Simplification: a selected mask as one of the simple patterns, where it is one, so that their fast paths serve it."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

from torch import Tensor

from headwise.masks.algebra import And, Not, Or
from headwise.masks.leaves import (
    Allowed,
    Causal,
    Documents,
    Keys,
    Lengths,
    Prefix,
    PrefixEach,
    Window,
)
from headwise.masks.mask import Mask
from headwise.masks.selection import Picked, picked


class Block(NamedTuple):
    """Neighbouring rows and columns of an (Lq, Lk) map."""

    rows: slice
    columns: slice
    sizes: tuple[int, int]

    @property
    def shift(self) -> int:
        """What is added to j - i, of a query and a key of the map, to give j - i in the block."""
        # both maps align the last query with the last key
        shift: int = self.sizes[1] - self.sizes[0] + self.rows.stop - self.columns.stop
        return shift

    @property
    def reach(self) -> tuple[int, int]:
        """The lowest and the highest j - i of a pair of the block, by the positions that it has there."""
        return 1 - (self.columns.stop - self.columns.start), self.rows.stop - self.rows.start - 1


def narrowed(
    mask: Mask | None,
    rows: Tensor,
    columns: Tensor,
    *,
    sizes: tuple[int, int],
) -> Mask | None:
    """What `picked` gives, as `causal()`, `window()` and their like where rows and columns are runs of neighbours.

    The arguments are those of `picked`. None: every pair may attend. What has no simpler form stays picked.

    >>> import torch, headwise as hw
    >>> queries, keys = torch.arange(4, 8), torch.arange(0, 8)
    >>> narrowed(hw.causal(), queries, keys, sizes=(16, 16))
    causal()
    >>> narrowed(hw.causal(), queries, torch.arange(0, 4), sizes=(16, 16)) is None
    True
    """
    if mask is None:
        return None
    found = runs(rows), runs(columns)
    if len(found[0]) != 1 or len(found[1]) != 1:
        return picked(mask, rows, columns, sizes=sizes)
    block = Block(found[0][0], found[1][0], sizes)

    def keep(part: Mask) -> Mask:
        return Picked(part, rows, columns, *sizes)

    return _simplified(mask, block, keep)


def runs(index: Tensor) -> list[slice]:
    """The runs of neighbours that an index (L,) is made of, in its order.

    >>> import torch
    >>> runs(torch.tensor([2, 3, 4, 9, 10]))
    [slice(2, 5, None), slice(9, 11, None)]
    """
    bounds = [(int(index[run.start]), int(index[run.stop - 1])) for run in places_of_runs(index)]
    return [slice(first, last + 1) for first, last in bounds]


def places_of_runs(index: Tensor) -> list[slice]:
    """Where in an index (L,) each of its runs of neighbours stands.

    >>> import torch
    >>> places_of_runs(torch.tensor([2, 3, 4, 9, 10]))
    [slice(0, 3, None), slice(3, 5, None)]
    """
    if not len(index):
        return []
    bounds = [0, *(index.diff() != 1).nonzero()[:, 0].add(1).tolist(), len(index)]
    return [slice(start, stop) for start, stop in pairwise(bounds)]


def _simplified(mask: Mask, block: Block, keep: Callable[[Mask], Mask]) -> Mask | None:
    """The mask of a block, None: every pair may attend. keep: makes a picked mask of a part that stays one."""
    if isinstance(mask, And | Or):
        left, right = (_simplified(part, block, keep) for part in (mask.left, mask.right))
        if left is None or right is None:
            return (right if left is None else left) if isinstance(mask, And) else None
        return type(mask)(left, right)
    if isinstance(mask, Not):
        inner = _simplified(mask.mask, block, keep)
        return keep(mask) if inner is None else ~inner
    if isinstance(mask, Causal):
        return _band(None, 0, block, lambda: keep(mask))
    if isinstance(mask, Window):
        return _band(-mask.before, mask.after, block, lambda: keep(mask))
    if isinstance(mask, Prefix):
        n = mask.n - block.columns.start
        return None if n > -block.reach[0] else Prefix(n)
    sliced = _sliced(mask, block)
    return keep(mask) if sliced is None else sliced


def _band(low: int | None, high: int, block: Block, keep: Callable[[], Mask]) -> Mask | None:
    """The keys with low <= j - i <= high, in the whole map; low: None: all before."""
    least, most = block.reach
    before = -least if low is None else -(low + block.shift)
    after = high + block.shift
    if before >= -least and after >= most:
        return None
    if before >= -least and after == 0:
        return Causal()
    # a window holds its query's own position
    return Window(min(before, -least), min(after, most)) if before >= 0 and after >= 0 else keep()


def _sliced(mask: Mask, block: Block) -> Mask | None:
    """A mask of tensors with the entries of the block only; None: it is none of these."""
    rows, columns, first = block.rows, block.columns, block.columns.start
    if isinstance(mask, Keys):
        return Keys(mask.keep[:, columns])
    if isinstance(mask, Documents):
        return Documents(mask.ids[:, rows], (mask.ids if mask.key_ids is None else mask.key_ids)[:, columns])
    if isinstance(mask, Lengths):
        n = mask.n if mask.n.ndim == 1 else mask.n[:, rows]
        return Lengths((n.long() - first).clamp(0, columns.stop - first))
    if isinstance(mask, PrefixEach):
        return PrefixEach(mask.n.long() - first)
    if isinstance(mask, Allowed):
        four = mask.t[None, None] if mask.t.ndim == 2 else mask.t
        taken = (slice(None), slice(None), rows, columns)
        return Allowed(four[tuple(part if n > 1 else slice(None) for part, n in zip(taken, four.shape, strict=True))])
    return None
