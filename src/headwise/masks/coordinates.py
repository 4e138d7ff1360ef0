"""Coordinates: where a mask is evaluated, on a grid of tensors or at the single point of a FlexAttention rule."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from headwise.errors import MaskError


class Sizes(NamedTuple):
    """The four sizes of a map of attention."""

    B: int
    H: int
    Lq: int
    Lk: int


class Places(Protocol):
    """What a mask may know of the places it is asked about. All tensors broadcast to (B, H, Lq, Lk)."""

    @property
    def b(self) -> Tensor:
        """Index of the sample."""

    @property
    def h(self) -> Tensor:
        """Index of the query head."""

    @property
    def row(self) -> Tensor:
        """Index of the query in its sequence."""

    @property
    def i(self) -> Tensor:
        """Position of the query."""

    @property
    def j(self) -> Tensor:
        """Position of the key."""

    @property
    def column(self) -> Tensor:
        """Index of the key in its sequence."""

    def samples(self, values: Tensor) -> Tensor:
        """Values (B,), one a sample, at these places."""

    def queries(self, values: Tensor) -> Tensor:
        """Values (B, Lq), one a query, at these places."""

    def keys(self, values: Tensor) -> Tensor:
        """Values (B, Lk), one a key, at these places."""

    def pairs(self, values: Tensor) -> Tensor:
        """Values (B, H, Lq, Lk), one a pair, at these places."""

    def placed(self, i: Tensor, j: Tensor, columns: Tensor | None) -> Places:
        """The same places with other positions."""

    def picked(self, rows: Tensor, columns: Tensor, larger: Larger) -> Places:
        """The places of a larger map whose rows (Lq,) and columns (Lk,) this map holds."""


class Larger(NamedTuple):
    """The lengths of the map that a smaller one is taken from."""

    Lq: int
    Lk: int


@dataclass(frozen=True)
class Grid:
    """A block of samples, heads, rows and columns of the whole map; i (B|1, 1, rows, 1), j (B|1, 1, 1, columns).

    rows, columns: slices, or the indices that were picked. order: (Lk,), which key of its sequence each column holds;
    None: in order. is_placed: whether i and j were given, in place of the default ones.
    """

    sizes: Sizes
    rows: slice | Tensor
    columns: slice | Tensor
    i: Tensor
    j: Tensor
    samples_taken: slice
    heads_taken: slice
    order: Tensor | None = None
    is_placed: bool = False

    @staticmethod
    def whole(sizes: Sizes, device: torch.device) -> Grid:
        """Every pair of the map, the last query at the last key."""
        everything = slice(None)
        i = torch.arange(sizes.Lk - sizes.Lq, sizes.Lk, device=device)[None, None, :, None]
        j = torch.arange(sizes.Lk, device=device)[None, None, None, :]
        return Grid(sizes, everything, everything, i, j, everything, everything)

    def part(self, rows: slice, columns: slice, *, samples: slice = slice(None), heads: slice = slice(None)) -> Grid:
        """A block of a grid of all samples whose positions are the default ones, the same for all of them."""
        return replace(
            self,
            rows=_within(self.rows, rows),
            columns=_within(self.columns, columns),
            i=self.i[:, :, rows],
            j=self.j[..., columns],
            samples_taken=samples,
            heads_taken=_within(self.heads_taken, heads),
        )

    @property
    def lengths(self) -> tuple[int, int]:
        """How many rows and columns this block has."""
        return self.i.shape[2], self.j.shape[3]

    @property
    def is_in_order(self) -> bool:
        """Whether rows and columns are neighbours, as those of a dense mask are."""
        is_picked = isinstance(self.rows, Tensor) or isinstance(self.columns, Tensor)
        return self.order is None and not is_picked

    @property
    def b(self) -> Tensor:
        return torch.arange(self.sizes.B, device=self.j.device)[self.samples_taken, None, None, None]

    @property
    def h(self) -> Tensor:
        return torch.arange(self.sizes.H, device=self.j.device)[None, self.heads_taken, None, None]

    @property
    def row(self) -> Tensor:
        return torch.arange(self.sizes.Lq, device=self.j.device)[None, None, self.rows, None]

    @property
    def column(self) -> Tensor:
        if self.order is None and not self.is_placed:
            # keys are at the positions that count them
            return self.j
        everything = torch.arange(self.sizes.Lk, device=self.j.device) if self.order is None else self.order
        return everything[None, None, None, self.columns]

    def samples(self, values: Tensor) -> Tensor:
        return self._taken(values)[:, None, None, None]

    def queries(self, values: Tensor) -> Tensor:
        return self._taken(values)[:, None, self.rows, None]

    def keys(self, values: Tensor) -> Tensor:
        values = self._taken(values)
        ordered = values if self.order is None else values[:, self.order]
        return ordered[:, None, None, self.columns]

    def pairs(self, values: Tensor) -> Tensor:
        values = self._taken(values)
        if values.shape[1] > 1:
            values = values[:, self.heads_taken]
        if self.order is not None and values.shape[3] > 1:
            values = values[..., self.order]
        if values.shape[2] > 1:
            values = values[:, :, self.rows]
        return values[..., self.columns] if values.shape[3] > 1 else values

    def placed(self, i: Tensor, j: Tensor, columns: Tensor | None) -> Grid:
        i, j = (p if p.ndim == 2 else p[None] for p in (i, j))
        order = self.order
        if columns is not None:
            # an order within an order: the outer one says which of the inner columns is meant
            order = self._near(columns) if order is None else self._near(columns)[order]
        return replace(self, i=self.queries(i), j=self.keys(j), order=order, is_placed=True)

    def picked(self, rows: Tensor, columns: Tensor, larger: Larger) -> Grid:
        rows, columns = (self._near(t) if t.device.type != "cpu" else t.to(self.j.device) for t in (rows, columns))
        rows = rows[self.rows]
        columns = (columns if self.order is None else columns[self.order])[self.columns]
        i, j = self.i, self.j
        if not self.is_placed:
            i, j = rows[None, None, :, None] + (larger.Lk - larger.Lq), columns[None, None, None, :]
        sizes = Sizes(*self.sizes[:2], larger.Lq, larger.Lk)
        return Grid(sizes, rows, columns, i, j, self.samples_taken, self.heads_taken, None, self.is_placed)

    def _taken(self, values: Tensor) -> Tensor:
        """Values (B, ...) of the samples of this block; a first axis of size 1 serves all."""
        values = self._near(values)
        if values.shape[0] == 1 or self.samples_taken == slice(None):
            return values
        return values[self.samples_taken]

    def _near(self, values: Tensor) -> Tensor:
        if values.device != self.j.device:
            raise MaskError(
                f"a mask's tensors must be on the device of the call, {self.j.device}, but one is on {values.device}: "
                f'move them with mask.to("{self.j.device}")'
            )
        return values


@dataclass(frozen=True)
class Point:
    """One pair of the map, as FlexAttention asks for it: every index and position is a 0-d tensor."""

    b: Tensor
    h: Tensor
    row: Tensor
    column: Tensor
    i: Tensor
    j: Tensor
    is_placed: bool = False

    def samples(self, values: Tensor) -> Tensor:
        return values[self._sample(values)]

    def queries(self, values: Tensor) -> Tensor:
        return values[self._sample(values), self.row]

    def keys(self, values: Tensor) -> Tensor:
        return values[self._sample(values), self.column]

    def pairs(self, values: Tensor) -> Tensor:
        zero = torch.zeros_like(self.row)
        wanted = (self.b, self.h, self.row, self.column)
        return values[tuple(w if n > 1 else zero for w, n in zip(wanted, values.shape, strict=True))]

    def placed(self, i: Tensor, j: Tensor, columns: Tensor | None) -> Point:
        i, j = (p if p.ndim == 2 else p[None] for p in (i, j))
        column = self.column if columns is None else columns[self.column]
        return replace(self, i=self.queries(i), j=self.keys(j), column=column, is_placed=True)

    def picked(self, rows: Tensor, columns: Tensor, larger: Larger) -> Point:
        row, column = rows[self.row], columns[self.column]
        i, j = (self.i, self.j) if self.is_placed else (row + (larger.Lk - larger.Lq), column)
        return Point(self.b, self.h, row, column, i, j, self.is_placed)

    def _sample(self, values: Tensor) -> Tensor:
        # one row serves all samples
        return self.b if values.shape[0] > 1 else torch.zeros_like(self.b)


def _within(taken: slice | Tensor, part: slice) -> Any:
    """A part of what was taken already."""
    if isinstance(taken, Tensor):
        return taken[part]
    if taken.start is None and taken.stop is None:
        return part
    inner = range(taken.start, taken.stop)[part]
    return slice(inner.start, inner.stop)
