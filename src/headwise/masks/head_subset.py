"""Head subset: a mask of all heads of a call, restricted to the heads that one rank of many computes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

from torch import Tensor

from headwise.errors import MaskError
from headwise.masks.derived_tensors import derived, has_function
from headwise.masks.leaves import Allowed, Ruled
from headwise.masks.mask import Mask

AnyMask = TypeVar("AnyMask", Mask, Mask | None)


def some_heads(mask: AnyMask, heads: tuple[int, int, int] | None) -> AnyMask:
    """A mask for some heads of a call. heads: (first, past, all), first up to past of all heads; None: all of them.

    None stays None: no mask. A mask that is the same for all heads stays the object that it is. MaskError where its
    heads are neither 1 nor `all`, or `heads` are not in order.

    >>> import torch, headwise as hw
    >>> each = hw.allowed(torch.tensor([[[[True, False]], [[True, True]]]]))
    >>> print(some_heads(each, (1, 2, 2)).draw(1, 2))
    ##
    """
    if heads is None:
        return mask
    first, past, every = heads
    if not 0 <= first <= past <= every:
        raise MaskError(f"heads are (first, past, all) with 0 <= first <= past <= all; got {heads}")
    if mask is None or (mask.heads == 1 and not has_function(mask)):
        return mask
    if mask.heads not in (1, every):
        raise MaskError(f"a mask must fit H={every}, but {mask!r} has {mask.heads}: give it {every} or 1")
    whole: Mask = mask
    return derived(whole, ("heads", first, past), lambda: _narrowed(whole, first, past))


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
