"""Rows of a map that ranks share: the call of those that one rank has, and that of all of them."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from headwise.masks.simplification import narrowed
from headwise.ops.active_spread import SpreadSequence
from headwise.ops.call import Call
from headwise.positions.distance_bias import DistanceBias


def call_of_rows(call: Call, spread: SpreadSequence, by_distance: DistanceBias | None) -> Call:
    """The call of this rank's rows and the keys that they need, of all ranks; every rank must ask.

    call: of this rank's queries and keys, with the mask and bias of the whole map. by_distance: added to the scores,
    None: nothing.
    """
    k = spread.keys(call.k.detach(), call.mask, heads=call.q.shape[1])
    rows, columns, bias = spread.positions, torch.arange(k.shape[2]), call.attn_bias
    if bias is not None and bias.shape[-2] > 1:
        bias = bias.index_select(-2, rows.to(bias.device))
    bias = _biased(bias, by_distance, rows, columns)
    mask = narrowed(call.mask, rows, columns, sizes=(spread.length, k.shape[2]))
    return replace(call, k=k, v=k, mask=mask, attn_bias=bias, prepared={})


def joined_call(call: Call, spread: SpreadSequence, by_distance: DistanceBias | None) -> Call:
    """The call of all rows and all keys, on every rank; every rank must ask."""
    keys = spread.columns
    q, k = spread.rows.joined(call.q, 2), call.k if keys is None else keys.joined(call.k, 2)
    bias = _biased(call.attn_bias, by_distance, *(torch.arange(t.shape[2]) for t in (q, k)))
    return replace(call, q=q, k=k, v=k, attn_bias=bias)


def _biased(bias: Tensor | None, by_distance: DistanceBias | None, rows: Tensor, columns: Tensor) -> Tensor | None:
    """A bias of some rows and columns with that by distance; None: there is neither."""
    if by_distance is None:
        return bias
    part = by_distance.block(rows, columns)
    return part if bias is None else bias + part
