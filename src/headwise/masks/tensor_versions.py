"""Tensor versions: how often the tensors of a mask were changed, so that a backward pass meets the same mask."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.utils import _pytree as pytree

from headwise.errors import MaskError
from headwise.masks.mask import Mask


def versions(mask: Mask | None) -> tuple[tuple[Tensor, int], ...]:
    """The tensors of a mask, each with the number of its changes in place, by which `check_unchanged` compares it."""
    if mask is None:
        return ()
    table: Any = mask.__dict__.get("_table")
    leaves = pytree.tree_leaves(mask) if table is None else table.tensors
    return tuple((t, t._version) for t in leaves if isinstance(t, Tensor) and not t.is_inference())


def check_unchanged(before: tuple[tuple[Tensor, int], ...]) -> None:
    """Raise MaskError where a tensor was changed in place since `versions` was asked."""
    for t, version in before:
        if t._version != version:
            raise MaskError(
                f"a mask must stay as it was between forward and backward, but its {t.dtype} tensor {tuple(t.shape)} "
                f"was changed in place {t._version - version} times: give forward a copy, mask tensor .clone()"
            )
