"""Kept: what is planned for a mask on a layout, once, for as long as the mask and the layout live."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import torch
from torch.utils import _pytree as pytree

from headwise.distributed.layouts import Layout
from headwise.distributed.spread import Spread
from headwise.errors import ArgumentError
from headwise.masks import Mask
from headwise.masks.derived import derived

T = TypeVar("T")

# of calls without a mask
_of_no_mask: WeakKeyDictionary[Layout, dict[Hashable, object]] = WeakKeyDictionary()


def planned(make: Callable[..., T], mask: Mask | None, spread: Spread, *sizes: Hashable) -> T:
    """make(mask, spread, *sizes), or what it gave before for them.

    A compiled program takes it for a constant of the mask and the spread, which it guards by their identity.
    """
    if torch.compiler.is_compiling():
        plan: T = getattr(_programs, _name(make, mask, spread, *sizes))
        return plan
    return _planned(make, mask, spread, *sizes)


def _planned(make: Callable[..., T], mask: Mask | None, spread: Spread, *sizes: Hashable) -> T:
    key = (make.__module__, make.__name__, *sizes)
    if mask is not None:
        place = ("planned", spread.layout, spread.rank, spread.group, key)
        return derived(mask, place, lambda: make(mask, spread, *sizes))
    known, here = _of_no_mask.setdefault(spread.layout, {}), (spread.rank, spread.group, key)
    if here not in known:
        known[here] = make(mask, spread, *sizes)
    plan: T = known[here]  # type: ignore[assignment]  # kept under the key of what made it
    return plan


class Programs:
    """Plans of compiled programs, each an attribute: what a program reads at each call, and guards."""


_programs = Programs()


def _name(make: Callable[..., Any], mask: Mask | None, spread: Spread, *sizes: Hashable) -> str:
    """Under which name this plan is among those of compiled programs: a constant of the mask and the spread."""
    if mask is not None and any(isinstance(leaf, torch.Tensor) for leaf in pytree.tree_leaves(mask)):
        raise ArgumentError(
            f"a compiled call over ranks plans for its mask once, but {mask!r} holds tensors, which may change: leave "
            "attention uncompiled, or give a mask of numbers (causal, window, prefix)"
        )
    name = f"plan{len(vars(_programs))}"
    setattr(_programs, name, _planned(make, mask, spread, *sizes))
    return name


# what torch.compiler.assume_constant_result does, without importing the compiler, which takes seconds
_name._dynamo_marked_constant = True  # type: ignore[attr-defined]
