"""Tensor masks: the mask that a bool tensor was made into before, so that what is derived from it is kept."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from headwise.masks.derived_tensors import may_keep
from headwise.masks.leaves import Allowed
from headwise.masks.mask import Mask

# each mask holds an alias of its tensor, so that the tensor goes when its owner lets it go, and the mask with it
_masks: Any = WeakTensorKeyDictionary()


def known_mask(t: Tensor) -> Allowed | None:
    """The mask that a bool tensor was made into before; None: none was, or the tensor lies elsewhere now."""
    mask: Allowed | None = _masks.get(t) if may_keep() else None
    if mask is None:
        return None
    alias = mask.t
    is_same = t.data_ptr() == alias.data_ptr() and t.shape == alias.shape and t.stride() == alias.stride()
    return mask if is_same and t.dtype is alias.dtype else None


def remembered(mask: Mask) -> Mask:
    """A mask of the same tensor, given for it from now on; the mask itself where nothing may be kept."""
    t = mask.t if isinstance(mask, Allowed) else None
    if type(t) is not Tensor or t.device.type == "meta" or not may_keep():
        return mask
    # which counts its changes in place with the tensor
    kept = Allowed(t.detach())
    _masks[t] = kept
    return kept
