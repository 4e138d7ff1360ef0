"""Random trees of masks as plain tuples, and the masks that the public functions make of them."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from hypothesis import strategies as st

import headwise as hw
from tests.sizes import SIZES

Tree = tuple[Any, ...]


class Shape(NamedTuple):
    B: int = SIZES["B"]
    H: int = SIZES["Hq"]
    Lq: int = SIZES["Lq"]
    Lk: int = SIZES["Lk"]


SHAPES = (
    Shape(),
    Shape(Lq=SIZES["Lk"], Lk=SIZES["Lq"]),
    Shape(B=3, H=2, Lq=4, Lk=4),
    Shape(B=1, H=3, Lq=1, Lk=6),
    Shape(B=2, H=1, Lq=6, Lk=1),
)


def checkers(b: Any, h: Any, i: Any, j: Any) -> Any:
    """A function of all four, of ints as of tensors."""
    return (b + 2 * h + i + j) % 3 != 0


def later_half(_b: Any, _h: Any, i: Any, j: Any) -> Any:
    """A function that does without sample and head."""
    return 2 * j > i


FUNCTIONS: tuple[Callable[..., Any], ...] = (checkers, later_half)
OPEN_LEAVES = ("causal", "window", "keys", "lengths", "documents", "prefix", "allowed")
LEAVES = (*OPEN_LEAVES, "rule", "flex")


def _rows(draw: st.DrawFn, values: st.SearchStrategy[Any], B: int, L: int) -> list[list[Any]]:
    """One row a sample, or one row for all."""
    samples = draw(st.sampled_from((1, B)))
    return [[draw(values) for _ in range(L)] for _ in range(samples)]


def _leaf(draw: st.DrawFn, kind: str, s: Shape) -> Tree:
    number, flag = st.integers(-2, s.Lk + 2), st.booleans()
    if kind == "window":
        return (kind, draw(st.integers(0, 4)), draw(st.integers(0, 4)))
    if kind == "keys":
        return (kind, _rows(draw, flag, s.B, s.Lk))
    if kind == "lengths":
        rows = _rows(draw, st.integers(0, s.Lk), s.B, s.Lq)
        return (kind, rows if draw(flag) else [row[0] for row in rows])
    if kind == "documents":
        needs_ids = s.Lq != s.Lk or draw(flag)
        ids = st.integers(-1, 2)
        return (kind, _rows(draw, ids, s.B, s.Lq), _rows(draw, ids, s.B, s.Lk) if needs_ids else None)
    if kind == "prefix":
        return (kind, [row[0] for row in _rows(draw, number, s.B, 1)] if draw(flag) else draw(number))
    if kind == "allowed":
        sizes = (s.Lq, s.Lk) if draw(flag) else tuple(draw(st.sampled_from((1, size))) for size in s)
        seed = draw(st.integers(0, 1 << 16))
        return (kind, (torch.rand(sizes, generator=torch.Generator().manual_seed(seed)) < 0.6).tolist())
    if kind in ("rule", "flex"):
        return (kind, draw(st.sampled_from(FUNCTIONS)))
    return (kind,)


def _places(draw: st.DrawFn, s: Shape) -> tuple[list[list[int]], list[list[int]], list[int] | None, Shape]:
    """Positions i and j, which key of a longer sequence each column holds or None, and the sizes of that sequence."""
    i, j = (_rows(draw, st.integers(-3, 9), s.B, L) for L in (s.Lq, s.Lk))
    if not draw(st.booleans()):
        return i, j, None, s
    longer = s._replace(Lk=s.Lk + 2)
    return i, j, [draw(st.integers(0, longer.Lk - 1)) for _ in range(s.Lk)], longer


@st.composite
def trees(draw: st.DrawFn, s: Shape, *, leaves: tuple[str, ...] = LEAVES, depth: int = 3) -> Tree:
    """A tree for the sizes s, of nodes and | ~ and placed over leaves."""
    kind = draw(st.sampled_from(("and", "or", "not", "placed") if depth and draw(st.booleans()) else leaves))
    if kind in ("and", "or"):
        return (kind, *(draw(trees(s, leaves=leaves, depth=depth - 1)) for _ in range(2)))
    if kind == "not":
        return (kind, draw(trees(s, leaves=leaves, depth=depth - 1)))
    if kind != "placed":
        return _leaf(draw, kind, s)
    i, j, columns, inner = _places(draw, s)
    return (kind, draw(trees(inner, leaves=leaves, depth=depth - 1)), i, j, columns)


@st.composite
def placed_leaves(draw: st.DrawFn, kind: str) -> tuple[Shape, Tree]:
    """Sizes, and one pattern at other positions."""
    s = draw(st.sampled_from(SHAPES))
    i, j, columns, inner = _places(draw, s)
    return s, ("placed", _leaf(draw, kind, inner), i, j, columns)


@st.composite
def scenes(draw: st.DrawFn, *, leaves: tuple[str, ...] = LEAVES, depth: int = 3) -> tuple[Shape, Tree]:
    """Sizes, and a tree for them."""
    s = draw(st.sampled_from(SHAPES))
    return s, draw(trees(s, leaves=leaves, depth=depth))


def build(tree: Tree) -> hw.Mask:
    """The mask that the public functions make of a tree."""
    kind, *parts = tree
    if kind in ("and", "or"):
        left, right = map(build, parts)
        return left & right if kind == "and" else left | right
    if kind == "not":
        return ~build(parts[0])
    if kind == "placed":
        mask, i, j, columns = parts
        # one row for all samples may come without its axis
        i, j = (torch.tensor(rows[0] if len(rows) == 1 else rows) for rows in (i, j))
        return build(mask).at(i, j, columns=None if columns is None else torch.tensor(columns))
    if kind == "window":
        return hw.window(before=parts[0], after=parts[1])
    if kind == "documents":
        ids, key_ids = (None if rows is None else torch.tensor(rows, dtype=torch.int32) for rows in parts)
        return hw.documents(ids, key_ids)
    if kind in ("rule", "causal"):
        return getattr(hw, kind)(*parts)
    if kind == "flex":
        return hw.masks.from_flex(*parts)
    if kind == "prefix" and isinstance(parts[0], int):
        return hw.prefix(parts[0])
    return getattr(hw, kind)(torch.tensor(parts[0]))


def dense(mask: hw.Mask, s: Shape) -> torch.Tensor:
    """What a mask allows, as bool of all of (B, H, Lq, Lk)."""
    return mask.allowed(s.Lq, s.Lk, batch=s.B, heads=s.H).expand(s)
