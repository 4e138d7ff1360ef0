"""Plan cache: what is planned for a mask on a layout, once, for as long as the mask and the layout live."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Hashable
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import torch
from torch.utils import _pytree as pytree

from headwise.distributed.layouts import Layout
from headwise.distributed.sequences import Sequences
from headwise.errors import ArgumentError
from headwise.masks import Mask
from headwise.masks.derived_tensors import derived

T = TypeVar("T")

# of calls without a mask
_of_no_mask: WeakKeyDictionary[Layout, dict[Hashable, object]] = WeakKeyDictionary()


def planned(make: Callable[..., T], mask: Mask | None, spread: Sequences, *sizes: Hashable) -> T:
    """make(mask, spread, *sizes), or what it gave before for them.

    A compiled program takes it for a constant of the mask and the spread, which it guards by their identity.
    """
    if torch.compiler.is_compiling():
        plan: T = getattr(_programs, _name(make, mask, spread, *sizes))
        return plan
    return _planned(make, mask, spread, *sizes)


def _planned(make: Callable[..., T], mask: Mask | None, spread: Sequences, *sizes: Hashable) -> T:
    queries, source = spread.queries, spread.source
    key = (queries.rank, queries.group, source and source.layout, make.__module__, make.__name__, *sizes)
    if mask is not None:
        return derived(mask, ("planned", queries.layout, key), lambda: make(mask, spread, *sizes))
    plans = _of_no_mask.setdefault(queries.layout, {})
    if key not in plans:
        plans[key] = make(mask, spread, *sizes)
    plan: T = plans[key]  # type: ignore[assignment]  # kept under the key of what made it
    return plan


class Programs:
    """Plans of compiled programs, each an attribute: what a program reads at each call, and guards.

    A plan goes with its spread, which no program can be called with again.
    """


_programs, _numbers = Programs(), itertools.count()


def _name(make: Callable[..., Any], mask: Mask | None, spread: Sequences, *sizes: Hashable) -> str:
    """Under which name this plan is among those of compiled programs: a constant of the mask and the spread."""
    if mask is not None and any(isinstance(leaf, torch.Tensor) for leaf in pytree.tree_leaves(mask)):
        raise ArgumentError(
            f"a compiled call over ranks plans for its mask once, but {mask!r} holds tensors, which may change: leave "
            "attention uncompiled, or give a mask of numbers (causal, window, prefix)"
        )
    name = f"plan{next(_numbers)}"
    setattr(_programs, name, _planned(make, mask, spread, *sizes))
    weakref.finalize(spread, vars(_programs).pop, name, None).atexit = False
    return name


# what torch.compiler.assume_constant_result does, without importing the compiler, which takes seconds
_name._dynamo_marked_constant = True  # type: ignore[attr-defined]
