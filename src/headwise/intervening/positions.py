"""Positions: heads, queries or keys as a person names them, found among those of one call."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from headwise.errors import ArgumentError

__all__ = ["Selection", "PositionSet", "position_set"]

# one, several, or a run
Selection = int | slice | Iterable[int] | Tensor | None


@dataclass(frozen=True)
class PositionSet:
    """Some numbers, negative ones counted from the end, or a run of them. name: of the argument."""

    name: str
    numbers: tuple[int, ...] | slice

    def of(self, size: int) -> list[int]:
        """The numbers in 0..size-1 that are meant, in increasing order; ArgumentError where one lies outside."""
        if isinstance(self.numbers, slice):
            return list(range(*self.numbers.indices(size)))
        outside = [n for n in self.numbers if not -size <= n < size]
        if outside:
            raise ArgumentError(f"{self.name} must lie in 0..{size - 1}, since there are {size}, but {outside[0]} came")
        return sorted({n % size for n in self.numbers})

    def within(self, start: int, size: int, device: torch.device) -> Tensor:
        """The rows 0..size-1 of a call whose first row has the position `start`; others belong to other calls."""
        whole = start + size
        if isinstance(self.numbers, slice):
            wanted = list(range(*self.numbers.indices(whole)))
        else:
            wanted = sorted({n + whole if n < 0 else n for n in self.numbers})
        rows = [n - start for n in wanted if start <= n < whole]
        return torch.tensor(rows, dtype=torch.long, device=device)


def position_set(name: str, value: Selection) -> PositionSet | None:
    """What an argument names; None: everything.

    >>> position_set("heads", [1, -1]).of(4), position_set("keys", slice(2, None)).of(4)
    ([1, 3], [2, 3])
    """
    if value is None:
        return None
    if isinstance(value, slice):
        return PositionSet(name, value)
    if isinstance(value, Tensor):
        value = (value.nonzero().flatten() if value.dtype is torch.bool else value.flatten()).tolist()
    numbers: list[Any] = list(value) if isinstance(value, Iterable) and not isinstance(value, str) else [value]
    wrong = next((n for n in numbers if isinstance(n, bool) or not hasattr(n, "__index__")), None)
    if wrong is not None:
        raise ArgumentError(
            f"{name} must be an integer, several, a slice or None, but {wrong!r} came: give such as {name}=[0, 2]"
        )
    if not numbers:
        raise ArgumentError(f"{name} names nothing: give at least one, or None for all")
    return PositionSet(name, tuple(n.__index__() for n in numbers))
