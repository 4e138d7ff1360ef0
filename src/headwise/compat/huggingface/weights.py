"""The dense attention weights that output_attentions=True asks of a model of transformers."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor, nn

from headwise.maps.matrix import MAX_BYTES
from headwise.ops.call import Rules, autocasts, cast_by_autocast
from headwise.ops.reference import attention_weights

__all__ = ["dense_weights", "weights_are_asked_for"]


def weights_are_asked_for(beside: dict[str, Any]) -> bool:
    """Whether a model was called with output_attentions=True, by the keywords of its attention or by its collector."""
    if beside.get("output_attentions"):
        return True
    if torch.compiler.is_compiling():
        # transformers 5.23 collects nothing there
        return False
    from transformers.utils import output_capturing

    collector = getattr(output_capturing, "_active_collector", None)
    collected = None if collector is None else collector.get()
    return collected is not None and any("attentions" in name for name in collected)


def dense_weights(module: nn.Module, q: Tensor, k: Tensor, rules: Rules) -> Tensor:
    """The weights (B, Hq, Lq, Lk) of a call in the dtype of its queries, before dropout, with gradients.

    Warns in the first layer where those of all layers together take more than a GiB.
    """
    _warn_of_size(module, q, k)
    if not autocasts(q):
        return attention_weights(q, k, **rules).to(q.dtype)
    q, k, _ = cast_by_autocast(q, k, k)
    with torch.autocast(q.device.type, enabled=False):
        return attention_weights(q, k, **rules).to(q.dtype)


def _warn_of_size(module: nn.Module, q: Tensor, k: Tensor) -> None:
    if torch.compiler.is_compiling() or getattr(module, "layer_idx", None):
        return
    layers = getattr(getattr(module, "config", None), "num_hidden_layers", 1)
    (B, Hq, Lq, _), Lk = q.shape, k.shape[2]
    size = layers * B * Hq * Lq * Lk * q.dtype.itemsize
    if size > MAX_BYTES:
        warnings.warn(
            f"output_attentions=True makes the weights of {layers} layers dense, ({B}, {Hq}, {Lq}, {Lk}) each, which "
            f"take {size / (1 << 30):,.1f} GiB: hw.watch(model) holds queries and keys in their place",
            stacklevel=4,
        )
