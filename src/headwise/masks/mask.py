"""Mask: who may attend to whom, as a tree of small frozen dataclasses joined by & | ~."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from typing import Any, NoReturn

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from headwise.errors import MaskError
from headwise.masks.coordinates import Grid, Places, Sizes
from headwise.masks.tiles import TileGrid
from headwise.shapes import check_count, pick_samples

LARGEST_SHOWN = 64


@dataclass(frozen=True, eq=False, repr=False)
class Mask:
    """Who may attend to whom: True where a query may attend to a key.

    Made by `causal`, `window`, `keys`, `lengths`, `documents`, `prefix`, `allowed` and `rule`; joined by `&`, `|` and
    `~`. i and j, the positions of query and key, are aligned at the last key: the last query sits at the last key.

    >>> import headwise as hw
    >>> mask = hw.causal() & hw.window(before=2)
    >>> print(mask.draw(3, 5))
    ###..
    .###.
    ..###
    >>> mask
    causal() & window(before=2, after=0)
    """

    def allows(self, at: Places) -> Tensor:
        """Bool, broadcastable to the (B, H, Lq, Lk) that `at` describes."""
        raise NotImplementedError

    def spans(self, tiles: TileGrid) -> tuple[Tensor, Tensor]:
        """Of each tile, bool broadcastable to (B, H, rows, columns): may it hold a True; is it surely all True."""
        return tiles.evaluate(self.allows)

    def check(self, sizes: Sizes) -> None:
        """Raise MaskError where a tensor of this mask does not fit (B, H, Lq, Lk)."""

    def padding(self, Lk: int) -> Tensor | None:
        """The keys that some query may see, bool (B, Lk), as far as `keys` and `lengths` say it; None: all."""
        return None

    def per_sample(self) -> dict[str, Tensor]:
        """The tensors of this mask whose first axis is the samples, by field."""
        return {}

    def __and__(self, other: Mask) -> Mask:
        from headwise.masks.algebra import And

        return And(self, _mask(other))

    def __or__(self, other: Mask) -> Mask:
        from headwise.masks.algebra import Or

        return Or(self, _mask(other))

    def __invert__(self) -> Mask:
        """The opposite. torch 2.13 cannot trace `~` of an object with fullgraph=True: there, call `__invert__()`."""
        from headwise.masks.algebra import Not

        return Not(self)

    def __bool__(self) -> NoReturn:
        """Refused: `and`, `or` and `not` would silently keep only one of the masks."""
        raise MaskError(
            f"a mask is neither true nor false: join {self!r} with others by & | ~, or compare it with `is`"
        )

    def at(self, i: Tensor, j: Tensor, *, columns: Tensor | None = None) -> Mask:
        """This mask with the positions of queries i and keys j, each (L,) or (B, L), in place of the default ones.

        columns: (Lk,), which key of the sequence each column holds, for a cache that keeps keys out of order; None:
        in order.

        >>> import torch, headwise as hw
        >>> print(hw.causal().at(torch.tensor([5]), torch.tensor([7, 4, 5, 6])).draw(1, 4))
        .##.
        """
        from headwise.masks.algebra import Placed

        placed = None if columns is None else integers("columns", columns)
        return Placed(self, integers("positions i", i), integers("positions j", j), placed)

    def allowed(
        self,
        Lq: int,
        Lk: int,
        *,
        batch: int | None = None,
        heads: int | None = None,
        device: torch.device | str | None = None,
    ) -> Tensor:
        """The dense mask: bool (Lq, Lk), or (B, H, Lq, Lk) with B or H of size 1 where samples or heads agree.

        batch, heads: None: as many as the mask's own tensors speak of. device: None: where the mask's tensors are.

        >>> import headwise as hw
        >>> hw.causal().allowed(2, 3)
        tensor([[ True,  True, False],
                [ True,  True,  True]])
        """
        sizes = self._sizes(batch, heads, Lq, Lk)
        dense = self.allows(Grid.whole(sizes, self.device if device is None else torch.device(device)))
        dense = dense.expand(*dense.shape[:2], Lq, Lk)
        return dense[0, 0] if dense.shape[:2] == (1, 1) else dense

    def draw(self, Lq: int, Lk: int) -> str:
        """A picture: one line a query, `#` where it may attend; samples and heads one below the other.

        >>> import headwise as hw
        >>> print((hw.causal() | hw.prefix(3)).draw(4, 4))
        ###.
        ###.
        ###.
        ####
        """
        dense = self.allowed(Lq, Lk)
        pictures = (dense.flatten(0, 1) if dense.ndim == 4 else dense[None]).tolist()
        return "\n\n".join("\n".join("".join(".#"[x] for x in row) for row in picture) for picture in pictures)

    def tiles(
        self,
        Lq: int,
        Lk: int,
        *,
        block: tuple[int, int] = (128, 128),
        batch: int | None = None,
        heads: int | None = None,
    ) -> Tensor:
        """Each tile of `block` queries by keys: 0 empty, 1 mixed, 2 full; int8 (B, H, rows, columns).

        Empty and full are sure; a tile called mixed may yet be either. `rule` is asked tile by tile, never as a whole.
        batch, heads: None: as many as the mask's own tensors speak of; B or H is 1 where samples or heads agree.

        >>> import headwise as hw
        >>> hw.causal().tiles(4, 6, block=(2, 2))[0, 0]
        tensor([[2, 1, 0],
                [2, 2, 1]], dtype=torch.int8)
        """
        if not isinstance(block, tuple | list) or len(block) != 2:
            raise MaskError(f"block counts the queries and keys of a tile, so it has two numbers; got block={block!r}")
        tiles = TileGrid.whole(self._sizes(batch, heads, Lq, Lk), block, self.device)
        return tiles.classify(self.spans(tiles))

    @property
    def batch(self) -> int:
        """How many samples the tensors of this mask speak of; 1: the same for all."""
        rows = self.per_sample().values()
        return not_shared([*(part.batch for part in self._parts()), *(t.shape[0] for t in rows)])

    @property
    def heads(self) -> int:
        """How many query heads the tensors of this mask speak of; 1: the same for all."""
        return not_shared(part.heads for part in self._parts())

    @property
    def device(self) -> torch.device:
        """Where the tensors of this mask are; without any, torch's default device."""
        tensors = [leaf for leaf in pytree.tree_leaves(self) if isinstance(leaf, Tensor)]
        # not torch.get_default_device(), which torch.compile cannot trace
        return (tensors[0] if tensors else torch.empty(0)).device

    def to(self, device: torch.device | str) -> Mask:
        """The same mask with its tensors on `device`."""
        moved = pytree.tree_map_only(Tensor, lambda t: t.to(device), self)
        return _mask(moved)

    def reorder(self, index: Tensor) -> Mask:
        """The same mask with its samples picked by index (B',), as beam search needs it.

        >>> import torch, headwise as hw
        >>> hw.lengths([3, 1]).reorder(torch.tensor([1, 1, 0]))
        lengths(n=torch.tensor([1, 1, 3]))
        """
        parts = {f.name: value for f in fields(self) if isinstance(value := getattr(self, f.name), Mask)}
        picked: dict[str, Any] = {name: part.reorder(index) for name, part in parts.items()}
        for name, rows in self.per_sample().items():
            picked[name] = rows if rows.shape[0] == 1 else pick_samples(rows, index)
        return replace(self, **picked)

    def includes_diagonal(self) -> bool:
        """Whether each query may attend to the key at its own position, whatever tensors hold; False: it is not known.

        Positions are the default ones, those of `Grid.whole`.
        """
        return False

    def _parts(self) -> list[Mask]:
        return [value for value in _values(self) if isinstance(value, Mask)]

    def _sizes(self, batch: int | None, heads: int | None, Lq: int, Lk: int) -> Sizes:
        """The sizes asked for, once the mask's tensors are known to fit them."""
        sizes = Sizes(self.batch if batch is None else batch, self.heads if heads is None else heads, Lq, Lk)
        for name, size in zip(("batch", "heads", "Lq", "Lk"), sizes, strict=True):
            check_count(name, size, 0, error=MaskError)
        self.check(sizes)
        return sizes

    def __getstate__(self) -> dict[str, Any]:
        # copied and pickled by its fields alone, without what was derived from them
        return {f.name: getattr(self, f.name) for f in fields(self)}

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Mask) or type(self) is not type(other):
            return False
        return all(_same(a, b) for a, b in zip(_values(self), _values(other), strict=True))

    def __hash__(self) -> int:
        return hash((type(self), *(v for v in _values(self) if not isinstance(v, Tensor))))

    def __repr__(self) -> str:
        listed = ", ".join(f"{f.name}={show(getattr(self, f.name))}" for f in fields(self))
        return f"{type(self).__name__.lower()}({listed})"


def show(value: Any) -> str:
    """A value as Python would read it back; a tensor of more than 64 elements by its dtype and shape only."""
    if not isinstance(value, Tensor):
        return repr(value)
    dtype = str(value.dtype).removeprefix("torch.")
    summary = f"<{dtype} {tuple(value.shape)}>"
    if value.numel() > LARGEST_SHOWN:
        return summary
    try:
        text = f"torch.tensor({value.tolist()}" if value.numel() else f"torch.empty({tuple(value.shape)}"
    except RuntimeError:
        # a tensor without values: on the meta device, while compiling, inside vmap
        return summary
    if not value.numel() or value.dtype not in (torch.bool, torch.int64):
        text += f", dtype=torch.{dtype}"
    return text + (")" if value.device.type == "cpu" else f', device="{value.device}")')


def not_shared(sizes: Iterable[int]) -> int:
    """The first size that is not 1, since an axis of size 1 serves any number; 1 where there is none."""
    return next((size for size in sizes if size != 1), 1)


def _mask(value: object) -> Mask:
    """The other side of & or |, refused where it is no mask."""
    if not isinstance(value, Mask):
        raise MaskError(
            f"a mask joins only with a mask, but {type(value).__name__} came: wrap a bool tensor with allowed()"
        )
    return value


def integers(name: str, positions: Tensor) -> Tensor:
    """Positions as int64, refused where they are no integers."""
    if not isinstance(positions, Tensor):
        raise MaskError(f"{name} must be a tensor of integers, but {type(positions).__name__} came: use torch.tensor()")
    if positions.is_floating_point() or positions.is_complex() or positions.dtype is torch.bool:
        raise MaskError(f"{name} must be integers, but {positions.dtype} came: positions count tokens")
    # they are subtracted from each other, which small integers do not survive, and uint8 would index as a mask
    return positions.long()


def _values(mask: Mask) -> list[Any]:
    """What the fields of a mask hold, in their order."""
    return [getattr(mask, f.name) for f in fields(mask)]


def _same(a: Any, b: Any) -> bool:
    """Whether two fields hold the same; tensors also agree in dtype and device."""
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return a is b or (a.dtype == b.dtype and a.device == b.device and torch.equal(a, b))
    return bool(type(a) is type(b) and a == b)
