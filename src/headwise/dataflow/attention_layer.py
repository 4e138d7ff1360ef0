"""Attention layer: torch's own layer of attention, called so that its queries see other keys."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from headwise.dataflow.propagation import Seen
from headwise.recording import Rebound, Site, site_of

__all__ = ["hidden_in_layer", "is_layer"]

MASKS = ("attn_mask", "key_padding_mask")


def is_layer(entry: Seen) -> bool:
    """Whether an operation is a call of torch's layer, of which the layer is known."""
    return bool(entry.args) and isinstance(entry.args[0], nn.MultiheadAttention)


def hidden_in_layer(entry: Seen, shown: Tensor, dropped: Sequence[Tensor]) -> dict[Site, Callable[..., Any]]:
    """What lets each query of a layer see some keys alone. shown: (samples * heads, queries, keys), True: it stays.

    dropped: the masks that it was called with and is not any more; another is kept beside.
    """
    bound = inspect.signature(entry.function).bind(*entry.args, **entry.options).arguments
    gone = {id(each) for each in dropped}
    given: dict[str, Any] = {name: None for name in MASKS if id(bound.get(name)) in gone}
    known = None if "attn_mask" in given else bound.get("attn_mask")
    given |= {"attn_mask": _joined(~shown, known), "is_causal": False}
    return {site_of(entry.operation): Rebound(entry.function, given)}


def _joined(hidden: Tensor, known: Tensor | None) -> Tensor:
    if known is None:
        return hidden
    if known.dtype == torch.bool:
        return hidden | known
    return known.expand(hidden.shape).masked_fill(hidden, float("-inf"))
