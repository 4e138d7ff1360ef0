"""Attention over tokens that ranks share out, as functions that a watch hears."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.overrides import handle_torch_function, has_torch_function

from headwise.ops.active_spread import SpreadSequence

__all__ = ["shared_keys_attention", "spread_attention"]


def spread_attention(q: Tensor, k: Tensor, v: Tensor, *, spread: SpreadSequence, way: str, **rules: Any) -> Tensor:
    """What `spread.attend` gives of this rank's q, k and v (B, H, L of this rank, D)."""
    tensors = (q, k, v) if rules.get("weight") is None else (q, k, v, rules["weight"])
    if has_torch_function(tensors):
        out: Tensor = handle_torch_function(spread_attention, tensors, q, k, v, spread=spread, way=way, **rules)
        return out
    return spread.attend(q, k, v, way=way, **rules)


def shared_keys_attention(q: Tensor, k: Tensor, v: Tensor, *, attend: Callable[..., Tensor], **rules: Any) -> Tensor:
    """What `attend` gives of queries (B, Hq, L, D) to keys of which k and v (B, Hk, S, D) are this rank's."""
    if has_torch_function((q, k, v)):
        out: Tensor = handle_torch_function(shared_keys_attention, (q, k, v), q, k, v, attend=attend, **rules)
        return out
    return attend(q, k, v, **rules)
