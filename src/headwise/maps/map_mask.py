"""Map mask: what the mask of a map makes of its tiles, and how a map says it."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from headwise.masks import Mask
from headwise.masks.tiles import FULL

__all__ = ["shown", "tiles_of"]

LONGEST_MASK_SHOWN = 60


def tiles_of(mask: Mask | None, sizes: Sequence[int], block: tuple[int, int], device: torch.device) -> Tensor:
    """What a mask makes of each tile of a map (B, Hq, Lq, Lk), as `AttentionMap.tiles` gives it."""
    B, Hq, Lq, Lk = sizes
    if mask is not None:
        return mask.tiles(Lq, Lk, block=block, batch=B, heads=Hq)
    counts = (-(-Lq // block[0]), -(-Lk // block[1]))
    return torch.full((1, 1, *counts), FULL, dtype=torch.int8, device=device)


def shown(mask: Mask) -> str:
    """A mask as the `repr` of a map says it."""
    text = repr(mask)
    return "mask=" + (text if len(text) <= LONGEST_MASK_SHOWN else f"{text[:LONGEST_MASK_SHOWN]}…")
