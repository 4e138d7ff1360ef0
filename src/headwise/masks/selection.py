"""Selection: a mask at some rows and columns of its map, as one rank of many needs it."""

from __future__ import annotations

from torch import Tensor

from headwise.errors import MaskError
from headwise.masks.coordinates import Larger, Places, Sizes
from headwise.masks.head_subset import some_heads
from headwise.masks.leaves import values_are_at_hand
from headwise.masks.mask import Mask, integers, show
from headwise.masks.nodes import node
from headwise.masks.tiles import TileGrid
from headwise.shapes import check_count


@node("Lq", "Lk")
class Picked(Mask):
    """Some rows and columns of the (Lq, Lk) map of a mask; made by `picked`."""

    mask: Mask
    rows: Tensor
    columns: Tensor
    Lq: int
    Lk: int

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
        self.mask.check(Sizes(sizes.B, sizes.H, self.Lq, self.Lk))

    def padding(self, Lk: int) -> Tensor | None:
        whole = self.mask.padding(self.Lk)
        return None if whole is None else whole[:, self.columns.to(whole.device)]

    @property
    def _larger(self) -> Larger:
        return Larger(self.Lq, self.Lk)

    def __repr__(self) -> str:
        return (
            f"picked({self.mask!r}, rows={show(self.rows)}, columns={show(self.columns)}, sizes=({self.Lq}, {self.Lk}))"
        )


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
    return Picked(some_heads(mask, heads), rows, columns, *sizes)


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
