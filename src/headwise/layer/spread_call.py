"""Spread calls: what a layer does where its sequence is spread over ranks, each of which holds some of the tokens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from headwise.errors import ArgumentError, ShapeError
from headwise.layer.local_heads import Share
from headwise.layer.scores import Additive, DotProduct
from headwise.ops.active_spread import SpreadSequence, active_spread
from headwise.positions.rotary import RotaryEmbedding


def spread_of(layer: nn.Module, spread: SpreadSequence | None) -> SpreadSequence | None:
    """The spread of a layer's call: the one given, or that of the `with spread:` around it; None: neither.

    A checkpoint runs the layer again in the backward pass, where the `with` may have ended: that is refused.
    """
    active = active_spread() if spread is None else spread
    if active is not None:
        layer.__dict__["_was_spread"] = True
    elif layer.__dict__.get("_was_spread") and not torch.compiler.is_compiling():
        if torch._C._current_graph_task_id() != -1:
            raise ArgumentError(
                "a checkpoint computes a layer again outside of the `with spread:` that was around it: give the layer "
                "spread=, or call backward inside of the `with`"
            )
        layer.__dict__["_was_spread"] = False
    return active


def check_spread(
    spread: SpreadSequence, query: Tensor, key: object, positions: object, cache: object, score: DotProduct | Additive
) -> None:
    """Raise where a call of a layer cannot be spread, or does not hold the tokens of this rank."""
    if key is not None:
        raise ArgumentError(
            "a spread is of self-attention, but key= came: call cross-attention outside of `with spread:`, on keys "
            "that every rank holds whole"
        )
    if cache is not None:
        raise ArgumentError(
            "a cache holds the keys of one process, but the sequence is spread over ranks: give spread= or cache="
        )
    if positions is not None:
        raise ArgumentError("positions= came beside a spread, which says where its tokens sit: leave it out")
    if isinstance(score, Additive):
        raise ArgumentError(f"a spread is of dot products, but this layer scores by {score}: run it in one process")
    mine = spread.positions.shape[0]
    if query.shape[1] != mine:
        raise ShapeError(
            f"query must hold the {mine} tokens of this rank, of {spread.length} in all, but came with L="
            f"{query.shape[1]}: take them with spread.local(x, dim=1)"
        )


def placed(
    module: nn.Module | None, spread: SpreadSequence, q: Tensor, k: Tensor, attn_bias: Tensor | None, share: Share
) -> tuple[Tensor, Tensor, Tensor | None]:
    """q and k (B, H, L of this rank, D) rotated by their places in the whole sequence, and its whole bias (L, L)."""
    if module is None:
        return q, k, attn_bias
    if isinstance(module, RotaryEmbedding):
        cos, sin = module.tables(spread.positions.to(q.device), q.dtype)
        return module.rotate(q, cos, sin), module.rotate(k, cos, sin), attn_bias
    everything = torch.arange(spread.length, device=q.device)
    bias = share.call("position", module, everything, everything)
    return q, k, bias if attn_bias is None else bias + attn_bias


def attention_over(spread: SpreadSequence, share: Share) -> Callable[..., Tensor]:
    """Attention over a spread, of those heads of the layer that are computed here."""

    def run(q: Tensor, k: Tensor, v: Tensor, **rules: Any) -> Tensor:
        seed = share.seed(q.device) if rules["dropout"] else None
        return spread.attention(q, k, v, first_head=share.first_head, seed=seed, **rules)

    return run
