"""Visible pairs: which places see which in an attention, whatever its windows and heads."""

from __future__ import annotations

import torch
from torch import Tensor

from headwise.dataflow import AttentionOps, AttentionPattern, find_pattern

__all__ = ["pattern_of", "visible_pairs"]


def pattern_of(attention: AttentionOps) -> Tensor | None:
    """(queries, keys): whether a query at a place sees a key at a place; None: it cannot be told for all heads."""
    sight = find_pattern(attention)
    return None if sight is None else visible_pairs(sight)


def visible_pairs(sight: AttentionPattern) -> Tensor | None:
    """(queries, keys): whether a query at a place sees a key at a place; None: that differs between heads."""
    rows, columns = int(sight.row.max()) + 1, int(sight.column.max()) + 1
    usable = sight.seeing.expand(sight.weights.shape)
    # a key that comes twice, as in a window and in the one before it, is seen where either is
    shape = (*sight.weights.shape[:-1], columns)
    column = sight.column.expand(sight.weights.shape)
    shown, usable_keys = (
        torch.zeros(shape).scatter_reduce(-1, column, pairs.float(), "amax")
        for pairs in (sight.visible & usable, usable)
    )
    index = (sight.row[..., :1].expand(shape).flatten(), torch.arange(columns).expand(shape).flatten())
    counts, totals = (
        torch.zeros(rows, columns).index_put_(index, pairs.flatten(), accumulate=True) for pairs in (shown, usable_keys)
    )
    if bool(((counts > 0) & (counts < totals)).any()):
        return None
    return counts > 0 if bool((totals > 0).any()) else None
