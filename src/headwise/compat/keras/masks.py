"""The masks of Keras' attention layers as one Mask: True = attend, positions counted from the first token."""

from __future__ import annotations

import operator
from functools import reduce
from typing import NamedTuple

import torch
from torch import Tensor

from headwise.compat.mask_flags import as_flags
from headwise.errors import MaskError
from headwise.masks import Mask, allowed, causal, keys, window

__all__ = ["Rows", "joined", "row_flags"]


class Rows(NamedTuple):
    """The masks (B, T) of queries and (B, S) of values and keys, 0 = padding; None: all are real."""

    query: Tensor | None
    value: Tensor | None
    key: Tensor | None


def joined(
    rows: Rows,
    *,
    shape: tuple[int, int, int],
    device: torch.device | None = None,
    attention_mask: Tensor | None = None,
    is_causal: bool = False,
    sliding_window: int | None = None,
) -> Mask | None:
    """What all masks allow together; None: all pairs.

    shape: (B, Lq, Lk). device: of the queries, None: torch's default. attention_mask: bool, broadcastable to
    (B, H, Lq, Lk). is_causal: key j up to query i. sliding_window: keys less than so many positions away on either
    side, None: all. i and j both count from 0, where headwise elsewhere puts the last query at the last key.

    >>> print(joined(Rows(None, None, None), shape=(1, 2, 3), is_causal=True).draw(2, 3))
    #..
    ##.
    """
    B, Lq, Lk = shape
    parts: list[Mask] = []
    if attention_mask is not None:
        parts.append(allowed(attention_mask))
    for name, row, length in (("query", rows.query, Lq), ("value", rows.value, Lk), ("key", rows.key, Lk)):
        if row is None:
            continue
        flags = row_flags(f"{name}_mask", row, B, length)
        parts.append(allowed(flags[:, None, :, None]) if name == "query" else keys(flags))
    band = [causal()] if is_causal else []
    band += [window(before=sliding_window - 1, after=sliding_window - 1)] if sliding_window is not None else []
    if Lq != Lk:
        band = [mask.at(torch.arange(Lq, device=device), torch.arange(Lk, device=device)) for mask in band]
    parts += band
    return reduce(operator.and_, parts) if parts else None


def row_flags(name: str, row: Tensor, B: int, length: int) -> Tensor:
    """A mask of tokens as bool, (B, length) or (1, length)."""
    flags = as_flags(name, row)
    if tuple(flags.shape) not in ((B, length), (1, length)):
        raise MaskError(f"{name} must be (B={B}, {length}), but came as {tuple(flags.shape)}: one flag to each token")
    return flags
