"""Dense masks: a mask as bool, and the keys that it hides from all, each kept with the mask."""

from __future__ import annotations

import torch
from torch import Tensor

from headwise.masks import Mask
from headwise.masks.coordinates import Grid, Sizes
from headwise.masks.derived_tensors import derived

# a dense mask up to this many pairs is kept; to make a larger one is little beside the attention of so many pairs
MOST_PAIRS_KEPT = 1 << 22


def masked_keys(allowed: Tensor, groups: int) -> Tensor:
    """Keys that no query of the batch element may attend to, (B, Hk, Lk, 1), of a mask (B, Hq, Lq, Lk)."""
    return ~attended_keys(allowed, groups)


def attended_keys(allowed: Tensor, groups: int) -> Tensor:
    """Keys that some query of the batch element may attend to, (B, Hk, Lk, 1), of a mask (B, Hq, Lq, Lk)."""
    by_head = allowed[:, :, 0] if allowed.shape[2] == 1 else allowed.any(dim=2)
    if by_head.shape[1] > 1 and groups > 1:
        by_head = by_head.unflatten(1, (-1, groups)).any(dim=2)
    return by_head[..., None]


def dense(mask: Mask, sizes: Sizes, device: torch.device) -> Tensor:
    """A mask as bool, broadcastable to (B, Hq, Lq, Lk) and no larger than it must be; a small one is kept."""
    key = ("allowed", *sizes, device)
    return derived(
        mask, key, lambda: mask.allows(Grid.whole(sizes, device)), keeps=lambda t: t.numel() <= MOST_PAIRS_KEPT
    )


def may_hide_keys(mask: Mask | None, sizes: Sizes) -> bool:
    """Whether a mask may hide a key from all queries, for all that is known without reading a tensor."""
    return mask is not None and not (_includes_diagonal(mask) and sizes.Lq >= sizes.Lk)


def may_have_empty_rows(mask: Mask | None, sizes: Sizes) -> bool:
    """Whether a mask may leave a query without a key, for all that is known without reading a tensor."""
    return mask is not None and not (_includes_diagonal(mask) and sizes.Lq <= sizes.Lk)


def _includes_diagonal(mask: Mask) -> bool:
    # while compiling, to compare open lengths would make a program for some of them only
    return not torch.compiler.is_compiling() and mask.includes_diagonal()
