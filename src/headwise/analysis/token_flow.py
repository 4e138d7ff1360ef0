"""Token flow: how much of each input token reaches an output through all layers, by rollout and by relevance."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor

from headwise.analysis.layer_maps import NamedMaps, checked_run, named_layers
from headwise.errors import ArgumentError
from headwise.maps import AttentionMap
from headwise.maps.files import LoadedMaps
from headwise.maps.name_lookup import LONGEST_LIST
from headwise.maps.score_tiles import pieces
from headwise.maps.statistics import rows_in_use
from headwise.masks.leaves import values_are_at_hand
from headwise.watching import Seen
from headwise.wording.progress_bar import progress_bar

__all__ = ["relevance", "rollout"]

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
    >>> model = torch.nn.Sequential(hw.MultiHeadAttention(8, 2), hw.MultiHeadAttention(8, 4))
    >>> with torch.no_grad(), hw.watch(model) as seen:
    ...     _ = model(torch.randn(3, 5, 8))
    >>> rollout(seen, token=-1).shape
    torch.Size([3, 5])
    """
    maps = [layer for _, layer in _stacked_layers("rollout", seen, token=token, skip_unseen=skip_unseen)]
    B, _, L, _ = maps[0].shape
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


def relevance(seen: Seen, *, token: int, skip_unseen: bool = False) -> Tensor:
    """What the output of query `token` of the last layer owes to each input token, (B, L), by weights and gradients.

    Each layer adds to the relevance of its inputs the mean over heads of its weights times the gradients by them,
    where that is positive: R = R + Ā R, Ā = mean of (A ⊙ ∇A)⁺, from R = 1 for each token itself, which stands for the
    residual path; the row of `token` is given, the token's own 1 in it. It goes from the last layer to the first, so
    that no product of two maps is made: O(L) memory for O(L²) time a layer.

    seen: what `hw.watch(model, gradients=True)` gave, after `backward()` of the scalar that is explained, such as a
    logit: one that the output at `token` decides. Every map must be (B, H, L, L); a map that no gradient has reached
    raises ArgumentError. token, skip_unseen: as in `rollout`.
    Chefer, Gur & Wolf 2021, arXiv:2103.15679, eq. 5 and 6.

    >>> import headwise as hw
    >>> model = torch.nn.Sequential(hw.MultiHeadAttention(8, 2), hw.MultiHeadAttention(8, 4))
    >>> with hw.watch(model, gradients=True) as seen:
    ...     out = model(torch.randn(3, 5, 8))
    >>> out[:, -1].sum().backward()
    >>> relevance(seen, token=-1).shape
    torch.Size([3, 5])
    """
    layers = [layer for _, layer in _stacked_layers("relevance", seen, token=token, skip_unseen=skip_unseen)]
    B, _, L, _ = layers[0].shape
    share = torch.zeros(B, L, dtype=layers[0].dtype, device=layers[0].device)
    share[:, token] = 1.0
    for layer in reversed(layers):
        share = share.to(layer.device, layer.dtype)
        share = share + _owed_through(layer, share)
    return share


def _owed_through(layer: AttentionMap, share: Tensor) -> Tensor:
    """The shares (B, L) of a layer's queries, handed to its keys by the weights that the output owes something to."""
    result = torch.zeros_like(share)
    heads = layer.shape[1]
    for strip, entries in layer.attribution().strips():
        rows = share[strip.samples, strip.rows]
        # a row without a share passes nothing on, even one of NaN
        kept = torch.where(rows[:, None, :, None] == 0, 0.0, entries.clamp(min=0.0))
        result[strip.samples, strip.columns] += torch.einsum("br,bhrk->bk", rows, kept) / heads
    return result


def _stacked_layers(reader: str, run: Any, *, token: int, skip_unseen: bool) -> NamedMaps:
    """The layers of one stack, whose maps are all (B, H, L, L); ArgumentError where they are not, or some are unseen.

    token: a query of the last layer, which must be there.
    """
    run = checked_run(reader, run)
    if run.unseen and not skip_unseen:
        missing = "; ".join(f'"{name}" {why}' for name, why in list(run.unseen.items())[:LONGEST_LIST])
        raise ArgumentError(
            f"{reader} must go through every layer, but {len(run.unseen)} could not be watched: {missing}; give "
            "skip_unseen=True if they are no layers of this stack, or may be left out"
        )
    named = named_layers(reader, run)
    B, _, L, _ = named[0][1].shape
    for name, m in named:
        if (m.shape[0], *m.shape[2:]) != (B, L, L):
            raise ArgumentError(
                f'{reader} needs maps of one stack, (B={B}, H, L={L}, L={L}), but "{name}" gave {tuple(m.shape)}: '
                "watch the layers of one stack with only="
            )
    if not -L <= token < L:
        raise ArgumentError(f"token must lie in {-L}..{L - 1}, as there are L={L} tokens; got {token}")
    return named
