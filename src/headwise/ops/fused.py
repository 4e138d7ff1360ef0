"""Fused: a strip by torch's own fused kernel, forward and backward, where that computes exactly what the strip asks."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from headwise.ops.kernel import Task

aten = torch.ops.aten


def forward(task: Task) -> tuple[Tensor, Tensor]:
    """The strip's outputs (N, R, Dv) and lse (N, R), rows that may attend to nothing left to the caller."""
    q, k, v = _four(task)
    out, lse = aten._scaled_dot_product_flash_attention_for_cpu(
        q, k, v, attn_mask=_additive(task), scale=task.room.call.multiplier
    )
    return out.reshape(task.q.shape), lse.reshape(task.q.shape[:2])


def backward(task: Task, gradient: Tensor, out: Tensor, lse: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of the strip's q, k and v, given that of its outputs (N, R, Dv), these, and their lse (N, R)."""
    q, k, v = _four(task)
    found = aten._scaled_dot_product_flash_attention_for_cpu_backward(
        gradient.view(q.shape), q, k, v, out.view(q.shape), lse.view(q.shape[:3]), 0.0, False,
        attn_mask=_additive(task), scale=task.room.call.multiplier,
    )  # fmt: skip
    of_q, of_k, of_v = (t.reshape(like.shape) for t, like in zip(found, (task.q, task.k, task.v), strict=True))
    return of_q, of_k, of_v


def _four(task: Task) -> tuple[Tensor, Tensor, Tensor]:
    """q, k and v as (samples, key/value heads, rows of all query heads that share one, width)."""
    samples = task.heads[0]
    q, k, v = (t.unflatten(0, (samples, -1)) for t in (task.q, task.k, task.v))
    return q, k, v


def _additive(task: Task) -> Tensor | None:
    """The strip's mask as scores to add, with an axis of 1 where samples or heads share it; None: it hides nothing."""
    allowed, at = task.allowed, task.at
    if allowed is None:
        return None
    shared, members = (each.stop - each.start for each in (at.shared, at.members))
    if members > 1:
        # the rows of the query heads that share a key/value head stand below each other
        is_shared = allowed.shape[1] == 1
        by_group = allowed[:, :, None] if is_shared else allowed.unflatten(1, (shared, members))
        allowed = by_group.expand(-1, -1, members, -1, -1).flatten(2, 3)
    asked, (first, *_) = task.room.asked(at), at.columns
    start = asked[0].start - first.start
    whole = torch.zeros(*allowed.shape[:3], at.width, dtype=task.q.dtype)
    whole[..., start : start + allowed.shape[3]].masked_fill_(~allowed, -math.inf)
    return whole
