"""Entry heads: the head of each entry of a tensor, also where several heads are mixed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from math import prod
from typing import Any

from headwise.dataflow.axes import NamedAxis
from headwise.dataflow.index_maps import Moved
from headwise.recording import TensorSeen

__all__ = ["Owners"]

HEADS = ("H", "Hkv")


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
            factor_sizes = [self._sizes.get(factor, int(factor) if factor.isdigit() else 0) for factor in factors]
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
