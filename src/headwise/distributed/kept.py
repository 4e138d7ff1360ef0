"""Kept: what is planned for a mask on a layout, once, for as long as the mask and the layout live."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TypeVar
from weakref import WeakKeyDictionary

from headwise.distributed.layouts import Layout
from headwise.distributed.spread import Spread
from headwise.masks import Mask
from headwise.masks.derived import derived

T = TypeVar("T")

# of calls without a mask
_of_no_mask: WeakKeyDictionary[Layout, dict[Hashable, object]] = WeakKeyDictionary()


def planned(mask: Mask | None, spread: Spread, key: Hashable, make: Callable[[], T]) -> T:
    """make(), or what it gave before for this mask, layout, rank and key."""
    if mask is not None:
        return derived(mask, ("planned", spread.layout, spread.rank, spread.group, key), make)
    known, here = _of_no_mask.setdefault(spread.layout, {}), (spread.rank, spread.group, key)
    if here not in known:
        known[here] = make()
    plan: T = known[here]  # type: ignore[assignment]  # kept under the key of what made it
    return plan
