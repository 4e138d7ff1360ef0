"""Some heads: a mask of all heads of a call, as those see it that one rank of many computes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

from torch import Tensor

from headwise.errors import MaskError
from headwise.masks.derived import derived, has_function
from headwise.masks.leaves import Allowed, Ruled
from headwise.masks.mask import Mask


def some_heads(mask: Mask | None, first: int, past: int, *, of: int) -> Mask | None:
    """A mask for the heads first..past of the `of` heads of a call; None: no mask.

    A mask that is the same for all heads stays the object that it is. MaskError where its heads are neither 1 nor `of`.

    >>> import torch, headwise as hw
    >>> each = hw.allowed(torch.tensor([[[[True, False]], [[True, True]]]]))
    >>> print(some_heads(each, 1, 2, of=2).draw(1, 2))
    ##
    """
    if mask is None or (mask.heads == 1 and not has_function(mask)):
        return mask
    if mask.heads not in (1, of):
        raise MaskError(f"a mask must fit H={of}, but {mask!r} has {mask.heads}: give it {of} or 1")
    known: Mask = mask
    return derived(known, ("heads", first, past), lambda: _narrowed(known, first, past))


@dataclass(frozen=True)
class _Later:
    """A function of a mask, asked by heads that are counted from `first`."""

    fn: Callable[..., Tensor]
    first: int

    def __call__(self, b: Tensor, h: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return self.fn(b, h + self.first, query, key)


def _narrowed(mask: Mask, first: int, past: int) -> Mask:
    if isinstance(mask, Allowed):
        return Allowed(mask.t[:, first:past]) if mask.heads > 1 else mask
    if isinstance(mask, Ruled):
        return replace(mask, fn=_Later(mask.fn, first))
    parts: dict[str, Any] = {
        field.name: _narrowed(part, first, past)
        for field in fields(mask)
        if isinstance(part := getattr(mask, field.name), Mask)
    }
    return replace(mask, **parts) if parts else mask
