"""Leaves: the masks of one idea each, that `patterns` makes and `&`, `|`, `~` join."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from headwise.errors import MaskError
from headwise.masks.coordinates import Places, Sizes
from headwise.masks.mask import Mask, show
from headwise.masks.nodes import node
from headwise.masks.tiles import TileGrid, reduce_all, reduce_any

Rule = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


@node()
class Causal(Mask):
    """Keys at or before the query's position."""

    def allows(self, at: Places) -> Tensor:
        return at.j <= at.i

    def includes_diagonal(self) -> bool:
        return True

    def spans(self, tiles: TileGrid) -> tuple[Tensor, Tensor]:
        return tiles.j[0] <= tiles.i[1], tiles.j[1] <= tiles.i[0]


@node("before", "after")
class Window(Mask):
    """Keys from `before` positions before the query to `after` positions after it."""

    before: int
    after: int

    def allows(self, at: Places) -> Tensor:
        # by the distance, so that a limit as large as sys.maxsize does not overflow
        ahead = at.j - at.i
        return (ahead >= -self.before) & (ahead <= self.after)

    def includes_diagonal(self) -> bool:
        return self.before >= 0 and self.after >= 0

    def spans(self, tiles: TileGrid) -> tuple[Tensor, Tensor]:
        least, most = tiles.j[0] - tiles.i[1], tiles.j[1] - tiles.i[0]
        return (most >= -self.before) & (least <= self.after), (least >= -self.before) & (most <= self.after)


@node()
class Keys(Mask):
    """The keys that `keep` (B, Lk) marks."""

    keep: Tensor

    def allows(self, at: Places) -> Tensor:
        return at.keys(self.keep)

    def spans(self, tiles: TileGrid) -> tuple[Tensor, Tensor]:
        return tiles.keys(self.keep)

    def check(self, sizes: Sizes) -> None:
        _check_rows("keys(keep)", self.keep, sizes.B, sizes.Lk, "Lk")

    def __invert__(self) -> Mask:
        # not Not(self), so that the opposite of a padding mask still knows its padding
        return Keys(~self.keep)

    def padding(self, Lk: int) -> Tensor | None:
        return self.keep

    def per_sample(self) -> dict[str, Tensor]:
        return {"keep": self.keep}


@node()
class Lengths(Mask):
    """The first n keys of each sample (B,), or of each query (B, Lq)."""

    n: Tensor

    def allows(self, at: Places) -> Tensor:
        return at.column < (at.queries(self.n) if self.n.ndim == 2 else at.samples(self.n))

    def spans(self, tiles: TileGrid) -> tuple[Tensor, Tensor]:
        first, last = tiles.column_range()
        low, high = tiles.query_range(self.n) if self.n.ndim == 2 else (tiles.grid.samples(self.n),) * 2
        return first < high, last < low

    def check(self, sizes: Sizes) -> None:
        fits = self.n.shape[0] in (1, sizes.B) and (self.n.ndim == 1 or self.n.shape[1] == sizes.Lq)
        if not fits:
            raise MaskError(
                f"lengths(n) must be (B={sizes.B},), or (B={sizes.B}, Lq={sizes.Lq}), but came as "
                f"{tuple(self.n.shape)}: give one length to each sample, or to each query"
            )
        if self.n.numel() and values_are_at_hand(self.n):
            least, most = (int(bound) for bound in self.n.aminmax())
            if least < 0 or most > sizes.Lk:
                raise MaskError(
                    f"lengths(n) must lie in 0..Lk={sizes.Lk}, but {least if least < 0 else most} came: give "
                    f"n.clamp(0, {sizes.Lk}) if that is meant"
                )

    def padding(self, Lk: int) -> Tensor | None:
        # a length of each query is no padding: the next query may see more
        return torch.arange(Lk, device=self.n.device) < self.n[:, None] if self.n.ndim == 1 else None

    def per_sample(self) -> dict[str, Tensor]:
        return {"n": self.n}


@node()
class Documents(Mask):
    """Keys whose id is the query's."""

    ids: Tensor
    key_ids: Tensor | None = None

    def allows(self, at: Places) -> Tensor:
        return at.queries(self.ids) == at.keys(self._key_ids)

    def includes_diagonal(self) -> bool:
        # by row and column, which are the positions where there are as many of both, as ids of one tensor need
        return self.key_ids is None

    def spans(self, tiles: TileGrid) -> tuple[Tensor, Tensor]:
        (low, high), (key_low, key_high) = tiles.query_range(self.ids), tiles.key_range(self._key_ids)
        return (low <= key_high) & (key_low <= high), (low == high) & (key_low == key_high) & (low == key_low)

    def check(self, sizes: Sizes) -> None:
        if self.key_ids is None and sizes.Lq != sizes.Lk:
            raise MaskError(
                f"documents(ids) serves queries and keys alike, but Lq={sizes.Lq} and Lk={sizes.Lk} differ: "
                "give key_ids= as well"
            )
        _check_rows("documents(ids)", self.ids, sizes.B, sizes.Lq, "Lq")
        _check_rows("documents(key_ids)", self._key_ids, sizes.B, sizes.Lk, "Lk")

    def per_sample(self) -> dict[str, Tensor]:
        return {"ids": self.ids} if self.key_ids is None else {"ids": self.ids, "key_ids": self.key_ids}

    @property
    def _key_ids(self) -> Tensor:
        return self.ids if self.key_ids is None else self.key_ids


@node("n")
class Prefix(Mask):
    """Keys at positions before n."""

    n: int

    def allows(self, at: Places) -> Tensor:
        return at.j < self.n

    def spans(self, tiles: TileGrid) -> tuple[Tensor, Tensor]:
        return tiles.j[0] < self.n, tiles.j[1] < self.n


@node()
class PrefixEach(Mask):
    """Keys at positions before n (B,), a number of each sample's own."""

    n: Tensor

    def allows(self, at: Places) -> Tensor:
        return at.j < at.samples(self.n)

    def spans(self, tiles: TileGrid) -> tuple[Tensor, Tensor]:
        n = tiles.grid.samples(self.n)
        return tiles.j[0] < n, tiles.j[1] < n

    def check(self, sizes: Sizes) -> None:
        if self.n.shape[0] not in (1, sizes.B):
            raise MaskError(f"prefix(n) must be (B={sizes.B},), but came as {tuple(self.n.shape)}: one to each sample")

    def per_sample(self) -> dict[str, Tensor]:
        return {"n": self.n}

    def __repr__(self) -> str:
        return f"prefix(n={show(self.n)})"


@node()
class Allowed(Mask):
    """A dense bool tensor, (Lq, Lk) or broadcastable to (B, H, Lq, Lk)."""

    t: Tensor

    def allows(self, at: Places) -> Tensor:
        return at.pairs(self._four)

    def spans(self, tiles: TileGrid) -> tuple[Tensor, Tensor]:
        if not tiles.grid.is_in_order:
            return tiles.evaluate(self.allows)
        dense = self._four.expand(*self._four.shape[:2], *tiles.grid.lengths)
        some = reduce_any(reduce_any(dense, 3, tiles.block[1]), 2, tiles.block[0])
        return some, reduce_all(reduce_all(dense, 3, tiles.block[1]), 2, tiles.block[0])

    def check(self, sizes: Sizes) -> None:
        shape = self._four.shape
        if any(size not in (1, wanted) for size, wanted in zip(shape, sizes, strict=True)):
            raise MaskError(
                f"a bool mask must be (Lq={sizes.Lq}, Lk={sizes.Lk}) or broadcast to (B={sizes.B}, H={sizes.H}, "
                f"Lq={sizes.Lq}, Lk={sizes.Lk}), but came as {tuple(self.t.shape)}: give every axis its size or 1, and "
                "padding (B, Lk) to keys()"
            )

    def per_sample(self) -> dict[str, Tensor]:
        return {"t": self.t} if self.t.ndim == 4 else {}

    @property
    def heads(self) -> int:
        return self._four.shape[1]

    @property
    def _four(self) -> Tensor:
        return self.t[None, None] if self.t.ndim == 2 else self.t


@node("fn")
class Ruled(Mask):
    """A function of sample, head, query position and key position."""

    fn: Rule

    def allows(self, at: Places) -> Tensor:
        return self._answer(at, at.i, at.j)

    def reorder(self, index: Tensor) -> Mask:
        raise MaskError(
            f"{self!r} may read the sample's index, so it cannot be reordered by {show(index)}: make it anew"
        )

    def _answer(self, at: Places, query: Tensor, key: Tensor) -> Tensor:
        """What the function answers, with all axes of `at` although it may have used fewer."""
        answer: object = self.fn(at.b, at.h, query, key)
        if not isinstance(answer, Tensor) or answer.dtype is not torch.bool:
            came = answer.dtype if isinstance(answer, Tensor) else type(answer).__name__
            raise MaskError(f"{self!r} must answer with a bool tensor, but {came} came: compare, and join by & | ~")
        spread: Tensor = torch.broadcast_tensors(answer, at.j)[0]
        return spread

    def __repr__(self) -> str:
        return f"rule({getattr(self.fn, '__qualname__', repr(self.fn))})"


@node("fn")
class Indexed(Ruled):
    """A function of sample, head, row and column: asked by indices, where `Ruled` asks by positions."""

    def allows(self, at: Places) -> Tensor:
        return self._answer(at, at.row, at.column)

    def __repr__(self) -> str:
        return f"from_flex({getattr(self.fn, '__qualname__', repr(self.fn))})"


def values_are_at_hand(t: Tensor) -> bool:
    """Whether reading the values of t waits for no device and binds no program: a plain tensor on the CPU, run now."""
    if type(t) is not Tensor or t.device.type != "cpu" or torch.compiler.is_compiling() or torch.jit.is_tracing():  # type: ignore[attr-defined, no-untyped-call]  # torch leaves it untyped
        return False
    return torch._C._functorch.peek_interpreter_stack() is None


def _check_rows(name: str, t: Tensor, B: int, L: int, letter: str) -> None:
    """Refuse a tensor that is not (B, L), with B or 1 samples."""
    if t.shape[0] not in (1, B) or t.shape[1] != L:
        raise MaskError(f"{name} must be (B={B}, {letter}={L}), but came as {tuple(t.shape)}: one entry to each token")
