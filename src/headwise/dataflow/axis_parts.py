"""Axis parts: the pieces of an axis from slow to fast, and their order after a view or a transpose."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from headwise.dataflow.sizes import Sizes, divides, is_one, less, over, product, times

__all__ = ["Atom", "Axes", "Digit", "Group", "Laid", "Part", "Pieces", "rearranged", "unmixed", "whole"]


@dataclass(eq=False)
class Atom:
    """An axis, or a factor of one, that stays together. name: the declared one, "": its size gives the name.

    is_copied: it repeats another axis. joined: the axes that were concatenated in it.
    """

    sizes: Sizes
    name: str = ""
    is_copied: bool = False
    halves: dict[Sizes, tuple[Atom, Atom]] = field(default_factory=dict)
    cuts: dict[tuple[Sizes, Sizes], Atom] = field(default_factory=dict)
    joined: tuple[Pieces, ...] = ()

    def split(self, low: Sizes) -> tuple[Atom, Atom]:
        """The slow and the fast part of a split, the fast one of size `low`; the same atoms each time."""
        if low not in self.halves:
            slow, fast = Atom(over(self.sizes, low), is_copied=self.is_copied), Atom(low, is_copied=self.is_copied)
            self.halves[low] = slow, fast
        return self.halves[low]

    def cut(self, sizes: Sizes, start: Sizes) -> Atom:
        """A slice of its entries; the same atom each time."""
        return self.cuts.setdefault((sizes, start), Atom(sizes))


@dataclass(eq=False)
class Group:
    """Pieces whose entries were mixed. originals: in order; count: of the parts after mixing."""

    originals: tuple[Piece, ...]
    count: int


@dataclass(frozen=True)
class Part:
    """One of the parts of a mixed group."""

    group: Group
    place: int
    sizes: Sizes


Piece = Atom | Part
# of one axis, from slow to fast; (): its size is 1
Pieces = tuple[Piece, ...]
Axes = tuple[Pieces, ...]


@dataclass(frozen=True)
class Digit:
    """A part of an axis of a moved tensor, with a size and a stride in the source; stride 0: copies."""

    sizes: Sizes
    stride: Sizes


@dataclass(frozen=True)
class Laid:
    """The layout of a moved tensor over its source, in all runs.

    is_whole: it has every entry of the source exactly once. start: the offset of its first entry.
    """

    axes: tuple[tuple[Digit, ...], ...]
    is_whole: bool
    start: Sizes


@dataclass(frozen=True)
class _Run:
    """A piece of the source, or a digit of the result, as an interval of strides in the source."""

    low: Sizes
    high: Sizes


def rearranged(source: Axes, laid: Laid) -> Axes:
    """The axes of a tensor after a movement of entries."""
    runs = len(laid.start)
    pieces = [piece for axis in source for piece in axis if not is_one(piece.sizes)]
    if laid.is_whole:
        return _bijection(_restored(pieces), laid.axes, runs)
    return tuple(tuple(piece for digit in axis for piece in _taken(pieces, digit, laid.start)) for axis in laid.axes)


def _restored(pieces: list[Piece]) -> list[Piece]:
    """Pieces in flat order, with each group restored whose parts are all there in order."""
    out: list[Piece] = []
    at = 0
    while at < len(pieces):
        piece = pieces[at]
        if isinstance(piece, Part) and piece.place == 0:
            parts = pieces[at : at + piece.group.count]
            if len(parts) == piece.group.count and all(
                isinstance(part, Part) and part.group is piece.group and part.place == place
                for place, part in enumerate(parts)
            ):
                out.extend(piece.group.originals)
                at += len(parts)
                continue
        out.append(piece)
        at += 1
    return out if len(out) == len(pieces) else _restored(out)


def _chain(pieces: Sequence[Piece], runs: int) -> list[_Run]:
    """The stride interval of each piece in flat order."""
    out: list[_Run] = []
    low: Sizes = (1,) * runs
    for piece in reversed(pieces):
        high = times(low, piece.sizes)
        out.append(_Run(low, high))
        low = high
    return out[::-1]


def _is_clean(at: Sizes, runs: Sequence[_Run]) -> bool:
    """Whether a boundary divides one of the runs evenly."""
    return any(divides(run.low, at) and divides(at, run.high) for run in runs)


def _bijection(pieces: list[Piece], moved: Sequence[Sequence[Digit]], runs: int) -> Axes:
    """The axes after a permutation of all entries: pieces are split at digit bounds, and mixed where they cannot be."""
    asked = [(axis, digit) for axis, digits in enumerate(moved) for digit in digits if not is_one(digit.sizes)]
    source_runs = _chain(pieces, runs)
    wanted = [_Run(digit.stride, times(digit.stride, digit.sizes)) for _, digit in asked]
    bounds = [each.low for each in wanted if _is_clean(each.low, source_runs)]
    bounds += [each.high for each in wanted if _is_clean(each.high, source_runs)]
    bounds += [source_run.low for source_run in source_runs if _is_clean(source_run.low, wanted)]
    bounds += [source_run.high for source_run in source_runs if _is_clean(source_run.high, wanted)]
    common: list[Sizes] = []
    for bound in sorted(set(bounds)):
        if not common or divides(common[-1], bound):
            common.append(bound)
    out: dict[int, list[tuple[Sizes, Piece]]] = {}
    mixed: dict[tuple[Sizes, Sizes], list[tuple[int, _Run]]] = {}
    for (axis, _), run in zip(asked, wanted, strict=True):
        for segment in _segments(run, common):
            piece = _piece_at(pieces, source_runs, segment)
            if piece is not None:
                out.setdefault(axis, []).append((segment.low, piece))
            else:
                mixed.setdefault(_around(segment, common), []).append((axis, segment))
    for (low, high), parts in mixed.items():
        inside = [
            piece
            for original, run in zip(pieces, source_runs, strict=True)
            for segment in _segments(run, common)
            if _within(segment, low, high)
            for piece in [_piece_at([original], [run], segment) or original]
        ]
        group = Group(tuple(inside), len(parts))
        for place, (axis, run) in enumerate(sorted(parts, key=lambda part: part[1].low, reverse=True)):
            out.setdefault(axis, []).append((run.low, Part(group, place, over(run.high, run.low))))
    return tuple(_in_order(out.get(axis, []), digits) for axis, digits in enumerate(moved))


def _in_order(located: list[tuple[Sizes, Piece]], digits: Sequence[Digit]) -> Pieces:
    """The pieces of one axis from slow to fast: digit by digit, and from high to low within a digit."""
    out: list[Piece] = []
    for digit in digits:
        top = times(digit.stride, digit.sizes)
        inside = [
            (low, piece) for low, piece in located if _within(_Run(low, times(low, piece.sizes)), digit.stride, top)
        ]
        out.extend(piece for _, piece in sorted(inside, key=lambda pair: pair[0], reverse=True))
    return tuple(out)


def _segments(run: _Run, bounds: Sequence[Sizes]) -> list[_Run]:
    """A run, cut at the bounds that divide it."""
    cuts = [run.low]
    for bound in bounds:
        if divides(cuts[-1], bound) and bound != cuts[-1] and divides(bound, run.high) and bound != run.high:
            cuts.append(bound)
    cuts.append(run.high)
    return [_Run(low, high) for low, high in pairwise(cuts)]


def _around(segment: _Run, bounds: Sequence[Sizes]) -> tuple[Sizes, Sizes]:
    """The nearest bounds around a segment."""
    low = max((bound for bound in bounds if not _above(bound, segment.low)), default=segment.low)
    high = min((bound for bound in bounds if not _above(segment.high, bound)), default=segment.high)
    return low, high


def _above(a: Sizes, b: Sizes) -> bool:
    """Whether a is more than b in any run."""
    return any(x > y for x, y in zip(a, b, strict=True))


def _within(segment: _Run, low: Sizes, high: Sizes) -> bool:
    return not _above(low, segment.low) and not _above(segment.high, high)


def _piece_at(pieces: Sequence[Piece], source_runs: Sequence[_Run], segment: _Run) -> Piece | None:
    """The piece, or part of one, that equals a segment; None: there is none."""
    for piece, run in zip(pieces, source_runs, strict=True):
        if run == segment:
            return piece
        if not (divides(run.low, segment.low) and divides(segment.high, run.high)):
            continue
        if not isinstance(piece, Atom):
            return None
        if segment.high != run.high:
            piece = piece.split(over(segment.high, run.low))[1]
        if segment.low != run.low:
            piece = piece.split(over(segment.low, run.low))[0]
        return piece
    return None


def _taken(pieces: list[Piece], digit: Digit, start: Sizes) -> Pieces:
    """The pieces of a digit, where the result has only some entries of the source."""
    if is_one(digit.sizes):
        return ()
    if not any(digit.stride):
        return (Atom(digit.sizes, is_copied=True),)
    left, low = digit.sizes, digit.stride
    out: list[Piece] = []
    for piece, run in reversed(list(zip(pieces, _chain(pieces, len(start)), strict=True))):
        if not (divides(run.low, low) and less(low, run.high)):
            continue
        here = over(run.high, low) if divides(low, run.high) else None
        if here == left:
            kept = piece.split(over(low, run.low))[0] if isinstance(piece, Atom) and low != run.low else piece
            return (kept, *out)
        if here is not None and divides(here, left):
            kept = piece.split(over(low, run.low))[0] if isinstance(piece, Atom) and low != run.low else piece
            out.insert(0, kept)
            left, low = over(left, here), run.high
            continue
        if isinstance(piece, Atom):
            # entries before the first one, counted in this axis
            before = tuple(at // step % size for at, step, size in zip(start, run.low, piece.sizes, strict=True))
            return (piece.cut(left, before), *out)
        break
    return (Atom(left), *out)


def unmixed(part: Part) -> list[Atom]:
    """The atoms of a mixed part, through nested groups."""
    return [atom for axis in part.group.originals for atom in (unmixed(axis) if isinstance(axis, Part) else [axis])]


def whole(pieces: Pieces, runs: int) -> Sizes:
    """The size of an axis."""
    return product((piece.sizes for piece in pieces), runs)
