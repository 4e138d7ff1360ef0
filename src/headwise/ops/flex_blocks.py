"""Blocks: the tiles of a mask as FlexAttention reads them, and its numbers as tensors."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from headwise.masks import Mask
from headwise.masks.coordinates import Grid, Sizes
from headwise.masks.leaves import Causal
from headwise.masks.tiles import FULL, MIXED, TileGrid

# the sizes of a tile, which torch's kernels cut further
BLOCK = 128
# pairs of a mask that are asked at once, where no compiler fuses the question with its answer
ENTRIES = 1 << 24


class Blocks(NamedTuple):
    """The tiles of a mask as FlexAttention reads them, and the keys that are masked for every query.

    counts, full_counts (B|1, H|1, rows): how many mixed and full tiles a row of tiles has. indices, full_indices
    (B|1, H|1, rows, columns): which ones, the others after them. hidden: bool, broadcastable to (B, Hk, Lk, 1).
    """

    counts: Tensor
    indices: Tensor
    full_counts: Tensor
    full_indices: Tensor
    hidden: Tensor


def blocks(mask: Mask, B: int, H: int, Lq: int, Lk: int, groups: int, device: torch.device, has_column: bool) -> Blocks:
    """The blocks of a mask for these sizes; its pairs are never held all at once."""
    sizes, mask = Sizes(B, H, Lq, Lk), with_tensors(mask, device)
    tiles = TileGrid.whole(sizes, (BLOCK, BLOCK), device)
    kinds = tiles.classify(mask.spans(tiles))
    if has_column:
        # the tile of the sink is asked pair by pair, and is one more where the keys end with a tile
        kinds = F.pad(kinds, (0, 1 - min(1, Lk % BLOCK)))
        is_last = torch.arange(kinds.shape[3], device=device) == kinds.shape[3] - 1
        kinds = torch.where(is_last, MIXED, kinds)
    if type(mask) is Causal:
        # the last query sees every key
        hidden = torch.zeros((1, 1, 1, 1), dtype=torch.bool, device=device)
    else:
        attended = _attended_keys(mask, Grid.whole(sizes, device), sizes)
        if attended.shape[1] > 1:
            attended = attended.unflatten(1, (-1, groups)).any(dim=2)
        hidden = ~attended[..., None]
    return Blocks(*_listed(kinds == MIXED), *_listed(kinds == FULL), hidden)


def shape_of(mask: Mask, grid: Grid) -> tuple[int, int, int]:
    """How many samples, heads and rows a mask tells apart: 1 where all are alike, and of rows else 2."""
    B, H, rows, _ = mask.allows(grid.part(slice(0, 2), slice(0, 1))).shape
    return B, H, rows


def _attended_keys(mask: Mask, grid: Grid, sizes: Sizes) -> Tensor:
    """The keys that some query may attend to, bool (B|1, H|1, Lk|1)."""
    if torch.compiler.is_compiling():
        return mask.allows(grid).any(dim=2)
    every, shape = slice(None), shape_of(mask, grid)
    rows = max(1, ENTRIES // max(1, sizes.Lk * shape[0] * shape[1]))
    parts = [
        mask.allows(grid.part(slice(start, min(start + rows, sizes.Lq)), every)).any(dim=2)
        for start in range(0, sizes.Lq, rows)
    ]
    return torch.stack(torch.broadcast_tensors(*parts)).any(dim=0)


def _listed(tiles: Tensor) -> tuple[Tensor, Tensor]:
    """How many tiles of a row are True, and their columns before the others: int32."""
    return tiles.sum(-1).to(torch.int32), tiles.to(torch.int8).argsort(dim=-1, descending=True, stable=True).to(
        torch.int32
    )


def with_tensors(mask: Mask, device: torch.device) -> Mask:
    """The same mask with its numbers as 0-d tensors: one kernel then serves every number."""
    changed: dict[str, Any] = {}
    for f in fields(mask):
        value = getattr(mask, f.name)
        if isinstance(value, Mask):
            changed[f.name] = with_tensors(value, device)
        elif isinstance(value, int | torch.SymInt):
            changed[f.name] = number(value, device)  # type: ignore[arg-type]  # torch.full takes a SymInt
    return replace(mask, **changed) if changed else mask


def number(n: int, device: torch.device) -> Tensor:
    """A number as a 0-d tensor, made where it is: torch.tensor would copy it from the host."""
    return torch.full((), n, dtype=torch.int64, device=device)
