"""Index: some heads and columns of a tensor (B, H, L, ...), as slices wherever they are neighbours."""

from __future__ import annotations

import torch
from torch import Tensor

from headwise.masks.simplification import runs

# neighbours from start to stop, or int64 (n,), each once
Index = slice | Tensor
# heads and columns; one of them at most is a tensor
Place = tuple[Index, Index]


def compact(index: Tensor) -> Index:
    """An ascending index of int64 (n,) as a slice, where it names neighbours."""
    n = index.shape[0]
    if n == 0:
        return slice(0, 0)
    first, last = int(index[0]), int(index[-1])
    return slice(first, last + 1) if last - first == n - 1 else index


def size_of(index: Index) -> int:
    """How many entries an index names."""
    return index.stop - index.start if isinstance(index, slice) else index.shape[0]


def runs_of(index: Index) -> tuple[slice, ...]:
    """The runs of neighbours that an ascending index names.

    >>> runs_of(torch.tensor([2, 3, 7]))
    (slice(2, 4, None), slice(7, 8, None))
    """
    if isinstance(index, slice):
        return (index,) if index.stop > index.start else ()
    # kept with the index, which plans hold and nobody writes to
    known: tuple[slice, ...] | None = getattr(index, "_runs", None)
    if known is None:
        known = index._runs = tuple(runs(index))  # type: ignore[attr-defined]
    return known


def is_whole(at: Place, heads: int, columns: int) -> bool:
    """Whether a place of a tensor of so many heads and columns is all of it."""
    return at == (slice(0, heads), slice(0, columns)) if all(isinstance(part, slice) for part in at) else False


def take(t: Tensor, at: Place) -> Tensor:
    """The heads and columns of t (B, H, L, ...); a view where both are slices."""
    heads, columns = at
    t = t[:, heads] if isinstance(heads, slice) else t.index_select(1, heads.to(t.device))
    return t[:, :, columns] if isinstance(columns, slice) else t.index_select(2, columns.to(t.device))


def put(into: Tensor, at: Place, values: Tensor) -> None:
    """Write values (B, heads, columns, ...) at a place of `into`."""
    heads, columns = at
    if isinstance(heads, slice) and isinstance(columns, slice):
        into[:, heads, columns] = values
    elif isinstance(heads, slice):
        into[:, heads].index_copy_(2, _tensor(columns, into), values)
    else:
        into[:, :, columns].index_copy_(1, heads.to(into.device), values)


def add(into: Tensor, at: Place, values: Tensor) -> None:
    """Add values (B, heads, columns, ...) at a place of `into`; a head or column may be named more than once."""
    heads, columns = at
    if isinstance(heads, slice) and isinstance(columns, slice):
        into[:, heads, columns] += values
    elif isinstance(heads, slice):
        into[:, heads].index_add_(2, _tensor(columns, into), values)
    else:
        into[:, :, columns].index_add_(1, heads.to(into.device), values)


def _tensor(index: Index, of: Tensor) -> Tensor:
    numbers = torch.arange(index.start, index.stop) if isinstance(index, slice) else index
    return numbers.to(of.device)
