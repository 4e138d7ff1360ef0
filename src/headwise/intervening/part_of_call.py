"""Part of a call: some heads and rows of a call of attention, as a call of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from headwise.masks import Mask
from headwise.masks.selection import picked
from headwise.watching import CallRecord

__all__ = ["part_of", "runs"]


def runs(heads: Sequence[int]) -> Iterator[tuple[int, int]]:
    """The runs [first, past) of neighbours among some heads in increasing order.

    >>> list(runs([0, 1, 2, 5, 7, 8]))
    [(0, 3), (5, 6), (7, 9)]
    """
    first = 0
    for n in range(1, len(heads) + 1):
        if n == len(heads) or heads[n] != heads[n - 1] + 1:
            yield heads[first], heads[n - 1] + 1
            first = n


def part_of(record: CallRecord, first: int, past: int, rows: Tensor | None) -> CallRecord:
    """The heads from `first` up to `past` of a call, at some of its rows. rows: None: all of them."""
    Hq, Lq, Lk = *record.q.shape[1:3], record.k.shape[2]
    group = Hq // record.k.shape[1]
    shared = torch.arange(first, past, device=record.q.device) // group
    q, k, v = record.q[:, first:past], record.k[:, shared], record.values()[:, shared]
    mask = _mask(record.mask, (first, past, Hq), (Lq, Lk), rows, q)
    bias, sink, weight = record.attn_bias, record.sink, record.weight
    if bias is not None and bias.ndim == 4 and bias.shape[1] > 1:
        bias = bias[:, first:past]
    if rows is not None:
        q = q[:, :, rows]
        bias = bias[..., rows, :] if bias is not None and bias.shape[-2] > 1 else bias
    if weight is not None and weight.ndim == 2:
        weight = weight[first:past]
    sink = sink[first:past] if sink is not None and sink.ndim else sink
    return replace(record, q=q, k=k, v=v, mask=mask, attn_bias=bias, sink=sink, weight=weight, lse=None)


def _mask(
    mask: Mask | None, heads: tuple[int, int, int], sizes: tuple[int, int], rows: Tensor | None, like: Tensor
) -> Mask | None:
    index = torch.arange(sizes[0], device=like.device) if rows is None else rows
    if mask is None or (rows is None and mask.heads == 1 and heads[1] - heads[0] == heads[2]):
        return mask
    return picked(mask, index, torch.arange(sizes[1], device=like.device), sizes=sizes, heads=heads)
