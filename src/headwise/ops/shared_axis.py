"""The rows or heads of a map that ranks share: what it asks of them, and of which heads the calls made now are."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

__all__ = ["SharedAxis", "SharedHeads", "active_heads", "heads_active"]


class SharedAxis(Protocol):
    """The rows or the heads of a map, each of which one of several ranks computes; `headwise.distributed` makes it.

    `agree`, `joined` and `total` are collective: every rank calls them in the same order, and gets the same bits.
    """

    @property
    def length(self) -> int:
        """How many entries the axis has."""

    @property
    def ranks(self) -> int:
        """How many ranks share it."""

    @property
    def group(self) -> object:
        """The ranks that share it, one object for the same ranks; None: this one alone."""

    @property
    def own(self) -> Tensor:
        """The entries that this rank computes, int64 ascending, on the CPU."""

    @property
    def is_first(self) -> bool:
        """Whether this rank is the first of those that share the axis."""

    def agree(self, reading: str) -> None:
        """Raise DistributedError on every rank unless all of them make this reading."""

    def holds(self, index: Tensor) -> Tensor:
        """Which of some entries (n,) this rank computes, bool (n,)."""

    def slots(self, index: Tensor) -> Tensor:
        """Where among this rank's entries some of them stand, int64 (n,)."""

    def joined(self, t: Tensor, dim: int, index: Tensor | None = None) -> Tensor:
        """The whole axis along `dim`, from the part t of each rank, without gradients.

        index: the entries that are wanted (n,), in this order, of which each rank gives those that it computes; None:
        all.
        """

    def total(self, t: Tensor, how: str) -> Tensor:
        """The sum or the maximum of what all ranks give, in the order of ranks; how: "sum" or "max"."""


@dataclass(frozen=True)
class SharedHeads:
    """The query heads of a map that ranks share; Hk: how many key/value heads all of them have."""

    axis: SharedAxis
    Hk: int


# a context variable, so that threads that are ranks each have their own
_active: ContextVar[SharedHeads | None] = ContextVar("headwise.heads", default=None)


def active_heads() -> SharedHeads | None:
    """Of which heads the calls of attention are that are made now; None: of all that they have."""
    return _active.get()


@contextmanager
def heads_active(heads: SharedHeads) -> Iterator[None]:
    """A block whose calls of attention are of one rank's part of these heads."""
    token = _active.set(heads)
    try:
        yield
    finally:
        _active.reset(token)
