"""Mask flags: masks of other libraries in which 0 means blocked, in any dtype, as bool."""

from __future__ import annotations

import torch
from torch import Tensor

from headwise.errors import MaskError

__all__ = ["as_flags", "with_four_axes"]

# the axes of scores, by their number
WHOLE = {2: "(Lq, Lk)", 3: "(B, Lq, Lk)", 4: "(B, h, Lq, Lk)"}


def as_flags(name: str, mask: Tensor) -> Tensor:
    """A mask of any shape as bool, True where it is not 0.

    Bool and integers as they are; floating ones must hold 0 and 1 only, since scores to add (0 and -inf) would read
    the other way round. That is looked up in the values, which a compiled program does without.

    >>> as_flags("mask", torch.tensor([1.0, 0.0]))
    tensor([ True, False])
    """
    if not isinstance(mask, Tensor):
        raise MaskError(f"{name} must be a tensor, 0 = blocked, but {type(mask).__name__} came: use torch.tensor()")
    if mask.dtype is torch.bool:
        return mask
    if not (mask.is_floating_point() or mask.is_complex()) or torch.compiler.is_compiling():
        return mask != 0
    others = mask[(mask != 0) & (mask != 1)]
    if others.numel():
        shown = ", ".join(str(value) for value in others.unique()[:3].tolist())
        raise MaskError(
            f"{name} must hold 0 (blocked) and 1 (may attend), but {others.numel()} of {mask.numel()} values are "
            f"others, such as {shown}: turn scores to add into flags with scores == 0"
        )
    return mask != 0


def with_four_axes(name: str, mask: Tensor, axes: int) -> Tensor:
    """Flags for scores of so many axes, 2 to 4, with 1 in front up to four, where it is certain which axes they are.

    All of (B, h, Lq, Lk), (B, Lq, Lk) or (Lq, Lk), or the last two, with any number of 1 in front. Three axes beside
    scores of four are refused: torch reads them by heads, and people by samples.

    >>> with_four_axes("mask", torch.ones(5, 7), 4).shape
    torch.Size([1, 1, 5, 7])
    """
    allowed = as_flags(name, mask)
    missing = axes - allowed.ndim
    if missing < 0 or allowed.ndim < 2 or (missing and allowed.ndim == 3 and allowed.shape[0] != 1):
        raise MaskError(
            f"{name} must be {WHOLE[axes]} or (Lq, Lk), but came as {tuple(allowed.shape)}, which reads by samples or "
            "by heads: say which with mask[:, None] or mask[None]"
        )
    four: Tensor = allowed[(None,) * (4 - allowed.ndim)]
    return four
