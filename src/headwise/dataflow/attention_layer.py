"""Attention layer: calls of nn.MultiheadAttention, and replacements with another mask."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from headwise.dataflow.propagation import MarkedOp
from headwise.recording import Rebound, Site, site_of

__all__ = ["hidden_in_layer", "is_layer"]

MASKS = ("attn_mask", "key_padding_mask")


def is_layer(entry: MarkedOp) -> bool:
    """Whether an operation is a call of nn.MultiheadAttention."""
    return bool(entry.args) and isinstance(entry.args[0], nn.MultiheadAttention)


def hidden_in_layer(entry: MarkedOp, shown: Tensor, dropped: Sequence[Tensor]) -> dict[Site, Callable[..., Any]]:
    """The replacement that masks keys of a layer. shown: (batch * heads, queries, keys), True: allowed.

    dropped: masks of the original call to leave out; others are combined with `shown`.
    """
    bound = inspect.signature(entry.function).bind(*entry.args, **entry.options).arguments
    gone = {id(each) for each in dropped}
    overrides: dict[str, Any] = {name: None for name in MASKS if id(bound.get(name)) in gone}
    mask = None if "attn_mask" in overrides else bound.get("attn_mask")
    overrides |= {"attn_mask": _joined(~shown, mask), "is_causal": False}
    return {site_of(entry.operation): Rebound(entry.function, overrides)}


def _joined(hidden: Tensor, mask: Tensor | None) -> Tensor:
    if mask is None:
        return hidden
    if mask.dtype == torch.bool:
        return hidden | mask
    return mask.expand(hidden.shape).masked_fill(hidden, float("-inf"))
