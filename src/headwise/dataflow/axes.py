"""Axes: the named axes of one tensor, as plain data, and the heads that its entries belong to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any

from headwise.dataflow.index_maps import Moved
from headwise.recording import TensorSeen

__all__ = ["NamedAxis", "Owners", "Shape"]

HEADS = ("H", "Hkv")


@dataclass(frozen=True)
class NamedAxis:
    """One axis. text: its name ("B", "H*d", "(L H)", "4", "?"); size: in the shown run.

    scrambled: its entries mix several axes of the source, although the size may be legal.
    """

    text: str
    size: int
    scrambled: bool = False

    def said(self, *, real: bool) -> str:
        """The name of the axis; real: its size in the shown run."""
        return str(self.size) if real else self.text


@dataclass(frozen=True)
class Shape:
    """The axes of one tensor, from the first to the last."""

    axes: tuple[NamedAxis, ...]

    def __str__(self) -> str:
        return self.said()

    def said(self, *, real: bool = False) -> str:
        """The shape as text: "[B, L, H*d]"; real: in numbers."""
        return f"[{', '.join(each.said(real=real) for each in self.axes)}]"

    @property
    def is_scrambled(self) -> bool:
        """Whether an axis mixes several axes of the source."""
        return any(each.scrambled for each in self.axes)


class Owners:
    """The heads of the tensors of a run. sizes: of each symbol; moves: as in `Follower`."""

    def __init__(self, sizes: Mapping[str, int], moves: Mapping[int, tuple[Moved, ...]]) -> None:
        self._sizes, self._moves = sizes, moves
        self._heads: dict[str, list[int] | None] = {}

    def keep(self, name: str, sizes: Sequence[int], heads: Mapping[str, Any] | None) -> None:
        """Store the heads of a tensor under its name."""
        self._heads[name] = None if heads is None else _spelled(sizes, heads)

    def of(
        self, at: int, part: int, tensor: TensorSeen, axes: Sequence[NamedAxis], first: str | None
    ) -> dict[str, Any] | None:
        """The heads of a result. at, part: its operation and index; first: the name of the operation's first input."""
        named = self.named(axes, tensor)
        moves, first_heads = self._moves.get(at, ()), self._heads.get(first) if first is not None else None
        if named is not None or first_heads is None or part >= len(moves):
            return named
        places = _places(moves[part], tensor.shape)
        return (
            None
            if places is None or max(places, default=0) >= len(first_heads)
            else {"of": [first_heads[n] for n in places]}
        )

    def named(self, axes: Sequence[NamedAxis], tensor: TensorSeen) -> dict[str, Any] | None:
        """The heads of a tensor by its axis names: "H", or "H*d" with d adjacent entries per head; None: none."""
        if any(axis.scrambled for axis in axes):
            return None
        for at, axis in enumerate(axes):
            factors = axis.text.split("*")
            head = next((n for n, each in enumerate(factors) if each in HEADS), None)
            factor_sizes = [self._sizes.get(each, int(each) if each.isdigit() else 0) for each in factors]
            if head is None or prod(factor_sizes) != tensor.shape[at] or not prod(factor_sizes):
                continue
            heads = {"axis": at, "each": prod(factor_sizes[head + 1 :])}
            if prod(factor_sizes[:head]) == 1:
                return heads
            # such as packed keys and values: 2*H*d
            return {"of": [each % factor_sizes[head] for each in _spelled(tensor.shape, heads)]}
        return None


def _spelled(sizes: Sequence[int], heads: Mapping[str, Any]) -> list[int]:
    """The head of each entry, row by row."""
    if "of" in heads:
        return list(heads["of"])
    inner = prod(sizes[heads["axis"] + 1 :])
    return [place // inner % sizes[heads["axis"]] // heads["each"] for place in range(prod(sizes))]


def _places(laid: Moved, sizes: Sequence[int]) -> list[int] | None:
    """The source index of each entry of a result; None: unknown."""
    if laid.axes is None or len(laid.axes) != len(sizes):
        return None
    lines = []
    for digits in laid.axes:
        levels = [range(0, size * stride, stride) if stride else [0] * size for size, stride in digits]
        lines.append([sum(each) for each in product(*levels)])
    if [len(line) for line in lines] != list(sizes):
        return None
    return [laid.start + sum(each) for each in product(*lines)]
