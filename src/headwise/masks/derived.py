"""Derived: what is computed from a mask, kept with the mask and shared by every call that uses it."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from headwise.masks.leaves import Ruled
from headwise.masks.mask import Mask

T = TypeVar("T")

# tensors of a mask up to this many entries are compared with copies of them, which costs less than the mask does
MOST_COMPARED = 1 << 18
# a mask that meets new sizes at each step, as in decoding, forgets the oldest results
MOST_RESULTS = 64
# masks without tensors are equal by their numbers, and share one table
MOST_TABLES = 64


@dataclass(slots=True, eq=False)
class Table:
    """Results derived from a mask by a key that names what they are and for which sizes, dtype and device.

    tensors: those of the mask; copies: of what they held when the results were made.
    """

    tensors: tuple[Tensor, ...]
    copies: tuple[Tensor, ...]
    results: dict[Hashable, Any] = field(default_factory=dict)

    def is_current(self) -> bool:
        """Whether the tensors of the mask still hold what the results were derived from."""
        return all(torch.equal(t, copy) for t, copy in zip(self.tensors, self.copies, strict=True))

    def add(self, key: Hashable, result: Any) -> None:
        if len(self.results) >= MOST_RESULTS:
            self.results.pop(next(iter(self.results)), None)
        self.results[key] = result


# of a mask that was not used yet
STALE = Table((), ())


def table(mask: Mask) -> Table | None:
    """The results that are kept with a mask; None where none may be.

    None: while compiling, under a torch.func transform or a dispatch mode, whose tensors must not outlive them; for
    masks with a function, which may read anything, or with tensors that are not plain ones on the CPU or too large.
    A tensor that was changed in place, by whatever means, empties the table.
    """
    if (
        torch.compiler.is_compiling()
        or torch._C._functorch.peek_interpreter_stack() is not None
        or torch._C._len_torch_dispatch_stack()
    ):
        return None
    known: Table | None = mask.__dict__.get("_table", STALE)
    if known is None:
        return None
    if known is STALE or not known.is_current():
        known = _table_of(mask)
        # beside the fields: not compared, not copied, not pickled, and no part of the tree
        object.__setattr__(mask, "_table", known)
    return known


def derived(mask: Mask, key: Hashable, make: Callable[[], T], *, keeps: Callable[[T], bool] = lambda result: True) -> T:
    """make(), or what it gave before under this key, while the mask is the same. keeps: whether to keep a result."""
    kept = table(mask)
    if kept is None:
        return make()
    if key in kept.results:
        result: T = kept.results[key]
        return result
    # a tensor made in inference mode could not be saved for a backward pass later
    with torch.inference_mode(False), torch.no_grad():
        result = make()
    if keeps(result):
        kept.add(key, result)
    return result


def _table_of(mask: Mask) -> Table | None:
    if has_function(mask):
        return None
    tensors = tuple(leaf for leaf in pytree.tree_leaves(mask) if isinstance(leaf, Tensor))
    if not tensors:
        return _table_of_numbers(mask)
    if any(type(t) is not Tensor or t.device.type != "cpu" for t in tensors):
        return None
    if sum(t.numel() for t in tensors) > MOST_COMPARED:
        return None
    return Table(tensors, tuple(t.clone() for t in tensors))


@lru_cache(maxsize=MOST_TABLES)
def _table_of_numbers(_: Mask) -> Table:
    return Table((), ())


def has_function(mask: Mask) -> bool:
    """Whether a part of a mask is a function, which may read anything."""
    return isinstance(mask, Ruled) or any(has_function(part) for part in mask._parts())
