"""Map mask: which pairs of a map are open, what its mask makes of tiles, and how a map says it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from headwise.masks import Mask
from headwise.masks.tiles import FULL
from headwise.ops import reference

if TYPE_CHECKING:
    from headwise.maps.map import AttentionMap

__all__ = ["open_pairs", "shown", "tiles_of"]

LONGEST_MASK_SHOWN = 60


def open_pairs(m: AttentionMap, rows: slice) -> Tensor:
    """Which pairs of some queries may attend, by mask and bias, bool (B|1, H|1, rows, Lk)."""
    if m.axes.shared:
        return ~m.logits[:, :, rows].isneginf()
    part = m._call.part(rows)
    allowed = reference.open_pairs(part)
    if allowed is None:
        return torch.ones(1, 1, part.sizes.Lq, part.sizes.Lk, dtype=torch.bool, device=m.device)
    return allowed.expand(*allowed.shape[:2], part.sizes.Lq, part.sizes.Lk)


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
