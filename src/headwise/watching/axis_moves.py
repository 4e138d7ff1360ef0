"""Axis moves: what functions that only move axes, or take one of several heads, do to the axes of a tensor."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from headwise.watching.axes import Axes
from headwise.watching.provenance import Ran

__all__ = ["PARTS", "is_still", "moved_axes", "taken_axes"]

PERMUTES = frozenset(
    {"transpose", "permute", "swapaxes", "swapdims", "movedim", "moveaxis", "t", "adjoint", "matrix_transpose"}
)
PROPERTIES = frozenset({Tensor.T.__get__, Tensor.mT.__get__, Tensor.H.__get__, Tensor.mH.__get__})  # type: ignore[attr-defined]
# what leaves all elements in their order
RESHAPES = frozenset(
    {"view", "reshape", "flatten", "unflatten", "ravel", "view_as", "reshape_as", "unsqueeze", "squeeze"}
)
# what takes a part of the weights, such as one head or one block of rows
PARTS = frozenset({"__getitem__", "select", "narrow", "unbind", "split", "chunk"})
# what puts weights beside others, or beside zeros, as of a band
WHOLES = frozenset(
    {"pad", "cat", "stack", "expand", "repeat", "as_strided", "repeat_interleave", "concat", "concatenate"}
)


def is_still(weights: Tensor, result: Tensor, name: str) -> bool:
    """Whether a function of weights or scores gave such again: not a sum of them, and nothing that they scale."""
    if not result.is_floating_point() or result.is_nested or weights.is_nested:
        return False
    size, before = result.numel(), weights.numel()
    return size > 0 and (size <= before or name in WHOLES) and (2 * size > before or name in PARTS)


def moved_axes(ran: Ran, axes: Axes, result: Tensor) -> Axes | None:
    """The axes of what a function made of its first argument, which has `axes`; None: it does more than move them."""
    if ran.name in PERMUTES or ran.function in PROPERTIES:
        order = _order(ran)
        return None if order is None else axes.permuted(order)
    is_index = ran.name == "__getitem__" and result.numel() == ran.args[0].numel() and _is_plain(ran.args[1])
    return axes.reshaped(result.shape) if is_index or ran.name in RESHAPES else None


def taken_axes(ran: Ran, axes: Axes) -> Axes | None:
    """The axes that are left where one index of some has been taken, such as one head; None: more has been done."""
    if ran.name == "unbind":
        dropped = ran.options.get("dim", ran.args[1] if len(ran.args) > 1 else 0) % len(axes.groups)
        return axes.permuted([n for n in range(len(axes.groups)) if n != dropped])
    if ran.name == "select" or (ran.name == "__getitem__" and _is_plain(ran.args[1])):
        order = _order(ran)
        return None if order is None else axes.permuted(order)
    return None


def _order(ran: Ran) -> list[int] | None:
    """Which axis of the first argument every axis of the result is; None: one of them is new, or cut."""
    shape = ran.args[0].shape
    # a tensor without numbers, whose axes all have other sizes, and none a smaller one
    sizes = [max(shape) + 1 + n for n in range(len(shape))]
    result = ran.function(torch.empty(sizes, device="meta"), *ran.args[1:], **ran.options)
    return [sizes.index(size) for size in result.shape] if all(size in sizes for size in result.shape) else None


def _is_plain(index: Any) -> bool:
    """Whether an index is made of slices, numbers, None and ... only."""
    every = index if isinstance(index, tuple) else (index,)
    return all(i is None or i is Ellipsis or (isinstance(i, slice | int) and not isinstance(i, bool)) for i in every)
