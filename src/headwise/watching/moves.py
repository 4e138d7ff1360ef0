"""Moves: what functions that only move axes, or take one of several heads, do to the axes of a tensor."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from headwise.watching.axes import Axes

__all__ = ["moved_axes", "taken_axes"]

PERMUTES = frozenset(
    {"transpose", "permute", "swapaxes", "swapdims", "movedim", "moveaxis", "t", "adjoint", "matrix_transpose"}
)
PROPERTIES = frozenset({Tensor.T.__get__, Tensor.mT.__get__, Tensor.H.__get__, Tensor.mH.__get__})  # type: ignore[attr-defined]
# what leaves all elements in their order
RESHAPES = frozenset(
    {"view", "reshape", "flatten", "unflatten", "ravel", "view_as", "reshape_as", "unsqueeze", "squeeze"}
)


def moved_axes(
    function: Callable[..., Any], axes: Axes, args: Sequence[Any], options: Mapping[str, Any], result: Tensor
) -> Axes | None:
    """The axes of what a function made of its first argument, which has `axes`; None: it does more than move them."""
    name = getattr(function, "__name__", "")
    if name in PERMUTES or function in PROPERTIES:
        order = _order(function, args, options)
        return None if order is None else axes.permuted(order)
    if name in RESHAPES or (name == "__getitem__" and result.numel() == args[0].numel() and _is_plain(args[1])):
        return axes.reshaped(result.shape)
    return None


def taken_axes(
    function: Callable[..., Any], axes: Axes, args: Sequence[Any], options: Mapping[str, Any]
) -> Axes | None:
    """The axes that are left where one index of some has been taken, such as one head; None: more has been done."""
    name = getattr(function, "__name__", "")
    if name == "unbind":
        dropped = options.get("dim", args[1] if len(args) > 1 else 0) % len(axes.groups)
        return axes.permuted([n for n in range(len(axes.groups)) if n != dropped])
    if name == "select" or (name == "__getitem__" and _is_plain(args[1])):
        order = _order(function, args, options)
        return None if order is None else axes.permuted(order)
    return None


def _order(function: Callable[..., Any], args: Sequence[Any], options: Mapping[str, Any]) -> list[int] | None:
    """Which axis of the first argument every axis of the result is; None: one of them is new, or cut."""
    # a tensor without numbers, whose axes all have other sizes, and none a smaller one
    least = max(args[0].shape) + 1
    sizes = [least + n for n in range(args[0].ndim)]
    made = function(torch.empty(sizes, device="meta"), *args[1:], **options)
    if not all(size in sizes for size in made.shape):
        return None
    return [sizes.index(size) for size in made.shape]


def _is_plain(index: Any) -> bool:
    """Whether an index is made of slices, numbers, None and ... only."""
    every = index if isinstance(index, tuple) else (index,)
    return all(i is None or i is Ellipsis or (isinstance(i, slice | int) and not isinstance(i, bool)) for i in every)
