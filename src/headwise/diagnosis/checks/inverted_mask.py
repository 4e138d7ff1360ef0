"""Inverted mask: a mask of torch's attention that masks what it should allow, and the call with it inverted.

Padding that is joined with an inverted triangle is right then, too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from headwise.dataflow import MarkedOp

__all__ = ["inverted", "is_inverted_triangle"]

# below it no score of numbers near 1 lies
FAR = -1e3


def inverted(function: Callable[..., Any]) -> Callable[..., Any]:
    """A call of torch's attention whose mask allows what the given one masks, and the other way round."""

    def right(*args: Any, **options: Any) -> Any:
        mask = options.pop("attn_mask", args[3] if len(args) > 3 else None)
        return function(*args[:3], attn_mask=None if mask is None else _turned(mask), **options)

    return right


def is_inverted_triangle(entry: MarkedOp) -> bool:
    """Whether the mask of a call, the other way round, lets queries attend to earlier keys and to their own only."""
    args, options = entry.rules
    mask = options.get("attn_mask", args[3] if len(args) > 3 else None)
    if not isinstance(mask, Tensor) or mask.ndim < 2 or mask.shape[-1] != mask.shape[-2]:
        return False
    allowed = _turned(mask)
    allowed = allowed if allowed.dtype is torch.bool else allowed == 0
    lower = torch.ones(mask.shape[-2:], dtype=torch.bool, device=mask.device).tril()
    return not bool((allowed & ~lower).any()) and bool(torch.equal(allowed.reshape(-1, *lower.shape).any(0), lower))


def _turned(mask: Tensor) -> Tensor:
    if mask.dtype is torch.bool:
        return ~mask
    return torch.zeros_like(mask).masked_fill(mask > FAR, float("-inf"))
