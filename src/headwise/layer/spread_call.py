"""Spread calls: what a layer does where its sequence is spread over ranks, each of which holds some of the tokens."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from headwise.errors import ArgumentError, ShapeError
from headwise.layer.local_heads import Share
from headwise.layer.memory import Memory
from headwise.layer.token_positions import Placement, Positions
from headwise.masks import Mask
from headwise.ops.active_spread import SpreadSequence, active_spread
from headwise.positions import RotaryEmbedding
from headwise.positions.distance_bias import DistanceBias, distance_bias


def spread_of(
    layer: nn.Module, spread: SpreadSequence | None, query: Tensor, key: Tensor | Memory | None
) -> SpreadSequence | None:
    """The spread of a layer's call: the one given, or that of the `with spread:` around it; None: neither.

    Of self-attention, which has no key, it is that of the queries alone; a key is refused unless the spread says whose
    it is. A checkpoint runs the layer again in the backward pass, where the `with` may have ended: that is refused.
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
    if active is None or key is None:
        return None if active is None else active.queries
    # a model calls a layer inside of `with` as it likes, as attn(x, x, x) too; who gives spread= says whose keys come
    if isinstance(key, Tensor) and key.ndim > 1 and (spread is None or key is query):
        active.crossed.check_keys(key.shape[-2])
    return active.crossed


def check_spread(spread: SpreadSequence, query: Tensor, cache: object) -> None:
    """Raise where a call of a layer cannot be spread, or does not hold the queries of this rank."""
    if cache is not None:
        raise ArgumentError(
            "a cache holds the keys of one process, but the sequence is spread over ranks: give spread= or cache="
        )
    mine = spread.positions.shape[0]
    if query.shape[1] != mine:
        raise ShapeError(
            f"query must hold the {mine} tokens of this rank, of {spread.length} in all, but came with L="
            f"{query.shape[1]}: take them with spread.local(x, dim=1)"
        )


@dataclass(frozen=True)
class SpreadPlacement:
    """The positions of one call of a spread: the layer's own module, `positions=` of the whole map, and its heads."""

    module: nn.Module | None
    given: Positions | None
    spread: SpreadSequence
    is_self: bool
    share: Share

    def __call__(
        self, q: Tensor, k: Tensor, mask: Mask | None
    ) -> tuple[Tensor, Tensor, Mask | None, DistanceBias | None]:
        """q and k (B, H, L of this rank, D) rotated, the mask at its positions, and the bias of positions, if any."""
        Lq, Lk = self.spread.map_sizes(k.shape[2])
        placement = Placement(self.module, self.given, None, is_self=self.is_self, share=self.share)
        i, j = placement.positions((q.shape[0], Lq, Lk), q.device)
        if self.given is not None and mask is not None:
            mask = mask.at(i, j)
        if self.module is None:
            return q, k, mask, None
        if isinstance(self.module, RotaryEmbedding):
            rows, columns = self.spread.positions.to(i.device), self.spread.key_tokens(k.shape[2]).to(j.device)
            q = self.module.rotate(q, *self.module.tables(i[..., rows], q.dtype))
            return q, self.module.rotate(k, *self.module.tables(j[..., columns], k.dtype)), mask, None
        # of positions in order, the last query at the last key, the ends are known without reading them
        reach = (1 - Lk, Lq - 1) if self.given is None else None
        bias = distance_bias(partial(self.share.call, "position", self.module), i, j, reach=reach)
        return q, k, mask, bias


def attention_over(spread: SpreadSequence, share: Share) -> Callable[..., Tensor]:
    """Attention over a spread, of those heads of the layer that are computed here."""

    def run(q: Tensor, k: Tensor, v: Tensor, **rules: Any) -> Tensor:
        seed = share.seed(q.device) if rules["dropout"] else None
        return spread.attention(q, k, v, first_head=share.first_head, seed=seed, **rules)

    return run
