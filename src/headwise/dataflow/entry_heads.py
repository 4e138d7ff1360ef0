"""Entry heads: which head each entry of a tensor belongs to, also where entries of several heads are mixed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from math import prod
from typing import Any

from headwise.dataflow.axes import Axis
from headwise.dataflow.index_maps import Moved
from headwise.recording import TensorSeen

__all__ = ["Owners"]

HEADS = ("H", "Hkv")


class Owners:
    """The heads of the tensors that have been told. sizes: of each symbol; moves: as in `Follower`."""

    def __init__(self, sizes: Mapping[str, int], moves: Mapping[int, tuple[Moved, ...]]) -> None:
        self._sizes, self._moves = sizes, moves
        self._known: dict[str, list[int] | None] = {}

    def keep(self, name: str, sizes: Sequence[int], heads: Mapping[str, Any] | None) -> None:
        """Remember the heads of a tensor under its name."""
        self._known[name] = None if heads is None else _spelled(sizes, heads)

    def of(
        self, at: int, part: int, seen: TensorSeen, axes: Sequence[Axis], first: str | None
    ) -> dict[str, Any] | None:
        """The heads of a result. at, part: which; first: what the operation's first input is called."""
        named = self.named(axes, seen)
        moves, known = self._moves.get(at, ()), self._known.get(first) if first is not None else None
        if named is not None or known is None or part >= len(moves):
            return named
        places = _places(moves[part], seen.shape)
        return None if places is None or max(places, default=0) >= len(known) else {"of": [known[n] for n in places]}

    def named(self, axes: Sequence[Axis], seen: TensorSeen) -> dict[str, Any] | None:
        """The heads of a tensor by the names of its axes: "H", or "H*d", in which d entries in a row are one head's."""
        if any(axis.scrambled for axis in axes):
            return None
        for at, axis in enumerate(axes):
            factors = axis.text.split("*")
            head = next((n for n, each in enumerate(factors) if each in HEADS), None)
            known = [self._sizes.get(each, int(each) if each.isdigit() else 0) for each in factors]
            if head is None or prod(known) != seen.shape[at] or not prod(known):
                continue
            heads = {"axis": at, "each": prod(known[head + 1 :])}
            if prod(known[:head]) == 1:
                return heads
            # such as keys and values in one: 2*H*d
            return {"of": [each % known[head] for each in _spelled(seen.shape, heads)]}
        return None


def _spelled(sizes: Sequence[int], heads: Mapping[str, Any]) -> list[int]:
    """The head of each entry, row by row."""
    if "of" in heads:
        return list(heads["of"])
    inner = prod(sizes[heads["axis"] + 1 :])
    return [place // inner % sizes[heads["axis"]] // heads["each"] for place in range(prod(sizes))]


def _places(laid: Moved, sizes: Sequence[int]) -> list[int] | None:
    """Where each entry of a result came from; None: that is not known."""
    if laid.axes is None or len(laid.axes) != len(sizes):
        return None
    lines = []
    for digits in laid.axes:
        levels = [range(0, size * stride, stride) if stride else [0] * size for size, stride in digits]
        lines.append([sum(each) for each in product(*levels)])
    if [len(line) for line in lines] != list(sizes):
        return None
    return [laid.start + sum(each) for each in product(*lines)]
