"""Picked: a mask asked at some rows, columns and heads of its map, as one rank of many asks it."""

from __future__ import annotations

from torch import Tensor

from headwise.errors import MaskError
from headwise.masks.leaves import values_are_at_hand
from headwise.masks.mask import Mask, integers, show
from headwise.masks.nodes import node
from headwise.masks.places import Larger, Places, Sizes
from headwise.masks.tiles import TileGrid
from headwise.shapes import check_count


@node("Lq", "Lk", "first", "past", "of")
class Picked(Mask):
    """Some rows and columns of the (Lq, Lk) map of a mask, and the heads first..past of its many; made by `picked`."""

    mask: Mask
    rows: Tensor
    columns: Tensor
    Lq: int
    Lk: int
    first: int = 0
    past: int | None = None
    of: int | None = None

    def allows(self, at: Places) -> Tensor:
        return self.mask.allows(at.picked(self.rows, self.columns, self._larger))

    def spans(self, tiles: TileGrid) -> tuple[Tensor, Tensor]:
        return self.mask.spans(tiles.picked(self.rows, self.columns, self._larger))

    def check(self, sizes: Sizes) -> None:
        for name, index, length in (("rows", self.rows, sizes.Lq), ("columns", self.columns, sizes.Lk)):
            if index.shape[0] != length:
                raise MaskError(
                    f"a picked mask has one entry of {name} to each of the call's {length}, but {index.shape[0]} came: "
                    f"pick {length} {name}"
                )
        if self.past is not None and sizes.H not in (1, self.past - self.first):
            raise MaskError(
                f"heads {self.first}..{self.past} of {self.of} were picked of a mask, but the call has H={sizes.H}: "
                f"pick {sizes.H}"
            )
        self.mask.check(Sizes(sizes.B, sizes.H if self.of is None else self.of, self.Lq, self.Lk))

    def padding(self, Lk: int) -> Tensor | None:
        whole = self.mask.padding(self.Lk)
        return None if whole is None else whole[:, self.columns.to(whole.device)]

    @property
    def heads(self) -> int:
        is_shared = self.past is None or self.mask.heads == 1
        return self.mask.heads if is_shared or self.past is None else self.past - self.first

    @property
    def _larger(self) -> Larger:
        return Larger(self.Lq, self.Lk, self.first, self.past, self.of)

    def __repr__(self) -> str:
        more = "" if self.past is None else f", heads=({self.first}, {self.past}, {self.of})"
        picked = f"rows={show(self.rows)}, columns={show(self.columns)}, sizes=({self.Lq}, {self.Lk})"
        return f"picked({self.mask!r}, {picked}{more})"


def picked(
    mask: Mask | None,
    rows: Tensor,
    columns: Tensor,
    *,
    sizes: tuple[int, int],
    heads: tuple[int, int, int] | None = None,
) -> Mask | None:
    """A mask for some rows and columns of its map, which it still reads by their positions in the whole map.

    rows (Lq',) and columns (Lk',): integers, in any order. sizes: (Lq, Lk) of the whole map. heads: (first, past, all),
    the heads of the call, first up to past, of all heads of the map; None: all. A mask of None stays None: no mask.

    >>> import torch, headwise as hw
    >>> print(hw.masks.picked(hw.causal(), torch.tensor([1, 4]), torch.tensor([0, 2, 5]), sizes=(6, 6)).draw(2, 3))
    #..
    ##.
    """
    if mask is None:
        return None
    for name, length in zip(("Lq", "Lk"), sizes, strict=True):
        check_count(name, length, 0, error=MaskError)
    rows, columns = integers("rows", rows), integers("columns", columns)
    for name, index, length in (("rows", rows, sizes[0]), ("columns", columns, sizes[1])):
        _check_index(name, index, length)
    if heads is None:
        return Picked(mask, rows, columns, *sizes)
    first, past, every = heads
    if not 0 <= first <= past <= every:
        raise MaskError(f"heads are (first, past, all) with 0 <= first <= past <= all; got {heads}")
    return Picked(mask, rows, columns, *sizes, first, past, every)


def _check_index(name: str, index: Tensor, length: int) -> None:
    """Refuse what does not name entries of a map."""
    if index.ndim != 1:
        raise MaskError(f"{name} must be one index to each, but came as {tuple(index.shape)}: give one axis")
    if index.numel() and values_are_at_hand(index):
        least, most = (int(bound) for bound in index.aminmax())
        if least < 0 or most >= length:
            raise MaskError(
                f"{name} must lie in 0..{length - 1}, but {least if least < 0 else most} came: the whole map has "
                f"{length} of them"
            )
