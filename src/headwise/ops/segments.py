"""Segments: the keys or values of a call that stand in several tensors, read and summed up by strips as one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from headwise.ops.strips import Runs, Strip


@dataclass(frozen=True, eq=False)
class Segments:
    """Tensors (B, Hk, n, D) that follow each other along their third axis, of which they are never joined whole.

    is_fresh: whether what is added to them is written instead, as each column is in one strip only.
    """

    parts: tuple[Tensor, ...]
    is_fresh: bool = False

    @property
    def length(self) -> int:
        """How many columns they have together."""
        return sum(part.shape[2] for part in self.parts)

    def at(self, run: slice) -> Iterator[Tensor]:
        """The columns of a run, as views of the tensors that hold them."""
        start = 0
        for part in self.parts:
            first, past = max(run.start - start, 0), min(run.stop - start, part.shape[2])
            if first < past:
                yield part[:, :, first:past]
            start += part.shape[2]

    def picked(self, runs: Runs, *, is_fresh: bool = False) -> Segments:
        """The columns of some runs, as views."""
        return Segments(tuple(part for run in runs for part in self.at(run)), is_fresh)


def columns_of(t: Tensor | Segments, at: Strip) -> Tensor:
    """The strip's columns of (B, Hk, Lk, ...), as (N, C, ...)."""
    parts = [part[at.samples, at.shared] for run in at.columns for part in _views(t, run)]
    return (parts[0] if len(parts) == 1 else torch.cat(parts, dim=2)).flatten(0, 1)


def add_columns(into: Tensor | Segments, at: Strip, found: Tensor) -> None:
    """Add (N, C, ...) to the strip's columns of (B, Hk, Lk, ...), or write it where these are fresh."""
    is_fresh, start = isinstance(into, Segments) and into.is_fresh, 0
    for run in at.columns:
        for part in _views(into, run):
            columns = part[at.samples, at.shared]
            more = found[:, start : start + columns.shape[2]].view(columns.shape)
            (columns.copy_ if is_fresh else columns.add_)(more)
            start += columns.shape[2]


def _views(t: Tensor | Segments, run: slice) -> Iterator[Tensor]:
    if isinstance(t, Segments):
        yield from t.at(run)
    else:
        yield t[:, :, run]
