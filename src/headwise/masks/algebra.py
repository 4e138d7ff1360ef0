"""Algebra: masks made of masks, joined by & | ~ or moved to other positions."""

from __future__ import annotations

from torch import Tensor

from headwise.errors import MaskError
from headwise.masks.coordinates import Places, Sizes
from headwise.masks.mask import Mask, show
from headwise.masks.nodes import node
from headwise.masks.tiles import TileGrid


@node()
class And(Mask):
    """Both of two masks."""

    left: Mask
    right: Mask

    def allows(self, at: Places) -> Tensor:
        return self.left.allows(at) & self.right.allows(at)

    def spans(self, tiles: TileGrid) -> tuple[Tensor, Tensor]:
        some, every = self.left.spans(tiles)
        some_right, every_right = self.right.spans(tiles)
        return some & some_right, every & every_right

    def check(self, sizes: Sizes) -> None:
        self.left.check(sizes)
        self.right.check(sizes)

    def includes_diagonal(self) -> bool:
        return self.left.includes_diagonal() and self.right.includes_diagonal()

    def padding(self, Lk: int) -> Tensor | None:
        left, right = self.left.padding(Lk), self.right.padding(Lk)
        if left is None or right is None:
            return right if left is None else left
        return left & right

    def __repr__(self) -> str:
        return f"{_bracket(self.left, Or)} & {_bracket(self.right, And, Or)}"


@node()
class Or(Mask):
    """Either of two masks."""

    left: Mask
    right: Mask

    def allows(self, at: Places) -> Tensor:
        return self.left.allows(at) | self.right.allows(at)

    def spans(self, tiles: TileGrid) -> tuple[Tensor, Tensor]:
        some, every = self.left.spans(tiles)
        some_right, every_right = self.right.spans(tiles)
        return some | some_right, every | every_right

    def check(self, sizes: Sizes) -> None:
        self.left.check(sizes)
        self.right.check(sizes)

    def includes_diagonal(self) -> bool:
        return self.left.includes_diagonal() or self.right.includes_diagonal()

    def padding(self, Lk: int) -> Tensor | None:
        left, right = self.left.padding(Lk), self.right.padding(Lk)
        return None if left is None or right is None else left | right

    def __repr__(self) -> str:
        return f"{_bracket(self.left, And)} | {_bracket(self.right, And, Or)}"


@node()
class Not(Mask):
    """The opposite of a mask."""

    mask: Mask

    def allows(self, at: Places) -> Tensor:
        return ~self.mask.allows(at)

    def spans(self, tiles: TileGrid) -> tuple[Tensor, Tensor]:
        some, every = self.mask.spans(tiles)
        return ~every, ~some

    def check(self, sizes: Sizes) -> None:
        self.mask.check(sizes)

    def __repr__(self) -> str:
        return f"~{_bracket(self.mask, And, Or)}"


@node()
class Placed(Mask):
    """A mask whose queries and keys sit at positions of their own."""

    mask: Mask
    i: Tensor
    j: Tensor
    columns: Tensor | None = None

    def allows(self, at: Places) -> Tensor:
        return self.mask.allows(at.placed(self.i, self.j, self.columns))

    def spans(self, tiles: TileGrid) -> tuple[Tensor, Tensor]:
        return self.mask.spans(tiles.placed(self.i, self.j, self.columns))

    def check(self, sizes: Sizes) -> None:
        for name, positions, length in (("i", self.i, sizes.Lq), ("j", self.j, sizes.Lk)):
            fits = positions.ndim in (1, 2) and positions.shape[-1] == length
            if not fits or (positions.ndim == 2 and positions.shape[0] not in (1, sizes.B)):
                raise MaskError(
                    f"positions {name} must be ({length},) or (B={sizes.B}, {length}), but came as "
                    f"{tuple(positions.shape)}: give one position to each"
                )
        if self.columns is None:
            self.mask.check(sizes)
        else:
            self._check_columns(self.columns, sizes)

    def _check_columns(self, columns: Tensor, sizes: Sizes) -> None:
        if columns.shape != (sizes.Lk,):
            raise MaskError(
                f"columns must be (Lk={sizes.Lk},), but came as {tuple(columns.shape)}: name the key of each column"
            )
        # the length of the sequence that the columns come from is not known here, but samples and heads are
        for name, own, wanted in (("B", self.mask.batch, sizes.B), ("H", self.mask.heads, sizes.H)):
            if own not in (1, wanted):
                raise MaskError(f"a mask must fit {name}={wanted}, but {self.mask!r} has {own}: give it {wanted} or 1")

    def padding(self, Lk: int) -> Tensor | None:
        return self.mask.padding(Lk) if self.columns is None else None

    def per_sample(self) -> dict[str, Tensor]:
        return {name: p for name, p in (("i", self.i), ("j", self.j)) if p.ndim == 2}

    def __repr__(self) -> str:
        more = "" if self.columns is None else f", columns={show(self.columns)}"
        return f"{_bracket(self.mask, And, Or, Not)}.at({show(self.i)}, {show(self.j)}{more})"


def _bracket(mask: Mask, *looser: type[Mask]) -> str:
    """A mask as a part of a larger expression, in brackets where it would be read apart."""
    return f"({mask!r})" if isinstance(mask, looser) else repr(mask)
