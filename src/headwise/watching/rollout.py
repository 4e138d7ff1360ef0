"""Rollout: how much of each input token reaches a token of the last layer, through the maps of all layers."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext

import torch
from torch import Tensor

from headwise.errors import ArgumentError
from headwise.maps import AttentionMap
from headwise.maps.files import LoadedMaps
from headwise.maps.name_lookup import LONGEST_LIST
from headwise.maps.score_tiles import pieces
from headwise.maps.statistics import rows_in_use
from headwise.masks.leaves import values_are_at_hand
from headwise.watching.sequences import layers_of
from headwise.watching.watched_maps import Seen
from headwise.wording.progress_bar import progress_bar

__all__ = ["rollout"]

# entries of one strip of a map that are in memory at once
STRIP = 1 << 22
# maps of more entries than this are read with a bar, where stderr is a terminal
LONG = 1 << 26
# as many rows are read alone, in place of a pass over all of them
FEW = 16


def rollout(seen: Seen | LoadedMaps, *, token: int, skip_unseen: bool = False) -> Tensor:
    """Attention rollout: the share of each input token in query `token` of the last layer, (B, L), rows summing to 1.

    Of each layer, the mean over heads plus the identity, for the residual path, its rows made to sum to 1; these are
    multiplied through all layers in running order; the calls of one layer on a growing sequence are one map. token: the
    query's index, from the end where negative. No product of two maps is made: O(L) memory for O(L²) time a layer.
    Every map must be (B, H, L, L) with the same B and L: watch the layers of one stack with only=, if there are others.
    skip_unseen: whether to go on without the attention that could not be watched, if seen.unseen lists some; else that
    is refused. seen: what `watch` gives, or `load_maps`.
    Abnar & Zuidema 2020, arXiv:2005.00928, sec. 3.

    >>> import headwise as hw
    >>> from headwise.watching import watch
    >>> model = torch.nn.Sequential(hw.MultiHeadAttention(8, 2), hw.MultiHeadAttention(8, 4))
    >>> with torch.no_grad(), watch(model) as seen:
    ...     _ = model(torch.randn(3, 5, 8))
    >>> rollout(seen, token=-1).shape
    torch.Size([3, 5])
    """
    if not isinstance(seen, Seen | LoadedMaps):
        raise ArgumentError(
            f"rollout goes through what watch or load_maps gives, but {type(seen).__name__} came: give one of these"
        )
    if seen.unseen and not skip_unseen:
        missing = "; ".join(f'"{name}" {why}' for name, why in list(seen.unseen.items())[:LONGEST_LIST])
        raise ArgumentError(
            f"rollout must go through every layer, but {len(seen.unseen)} could not be watched: {missing}; give "
            "skip_unseen=True if they are no layers of this stack, or may be left out"
        )
    named = layers_of(seen)
    maps = [layer for _, layer in named]
    if not maps:
        raise ArgumentError(
            "rollout needs the map of one layer at least, but seen is empty: run the model in the block"
        )
    B, _, L, _ = maps[0].shape
    for name, m in named:
        if (m.shape[0], *m.shape[2:]) != (B, L, L):
            raise ArgumentError(
                f'rollout needs maps of one stack, (B={B}, H, L={L}, L={L}), but "{name}" gave {tuple(m.shape)}: watch '
                "the layers of one stack with only="
            )
    if not -L <= token < L:
        raise ArgumentError(f"token must lie in {-L}..{L - 1}, as there are L={L} tokens; got {token}")
    share = torch.zeros(B, L, dtype=maps[0].dtype, device=maps[0].device)
    share[:, token] = 1.0
    with progress_bar("en") if len(maps) * L * L > LONG else nullcontext(_silent) as tell:
        for count, layer in enumerate(reversed(maps)):
            tell("step.maps", {"done": count, "total": len(maps)})
            # the first rows are known without a read of the device
            rows = slice(token % L, token % L + 1) if count == 0 else slice(0, L)
            share = _through(layer, share.to(layer.device, layer.dtype), rows)
    return share


def _silent(key: str, values: Mapping[str, object]) -> None:
    """Tell nobody."""


def _through(layer: AttentionMap, share: Tensor, rows: slice) -> Tensor:
    """share (B, L) of this layer's outputs, as shares of its inputs; it is 0 at all but these rows."""
    taken = rows.stop - rows.start
    if values_are_at_hand(share.detach()):
        taken = int(share.detach().ne(0).any(0).sum())
    if taken <= FEW or layer.needs_gradient() or share.requires_grad:
        return _through_rows(layer, share, rows)
    # a row without a share passes nothing on, even one of NaN
    weight = torch.where(share == 0, 0.0, share / (1.0 + layer.mass().mean(dim=1)))
    return layer.weighted_rows(weight).mean(dim=1) + weight


def _through_rows(layer: AttentionMap, share: Tensor, within: slice) -> Tensor:
    """The same by rows that are read one strip at a time, which is differentiable, and faster where there are few."""
    B, H, L, _ = layer.shape
    size = max(1, STRIP // max(1, B * H * L))
    result = torch.zeros_like(share)
    for rows in pieces(L, size, within):
        used, is_used = rows_in_use(share[:, rows].detach())
        if used.stop == used.start:
            continue
        rows = slice(rows.start + used.start, rows.start + used.stop)
        weights = layer[:, :, rows].mean(dim=1)
        if is_used is not None:
            weights = weights.masked_fill(~is_used[:, None], 0.0)
        weight = share[:, rows] / (1.0 + weights.sum(dim=-1))
        result = result + torch.einsum("br,brk->bk", weight, weights)
        result[:, rows] += weight
    return result
