"""Fused strips: a strip by torch's own fused kernel, forward and backward, where that is exact."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from headwise.masks import Mask
from headwise.masks.coordinates import Grid, Sizes
from headwise.masks.derived_tensors import derived
from headwise.ops.strips import Strip
from headwise.ops.workspace import Workspace, open_pairs, without_empty

if TYPE_CHECKING:
    from headwise.ops.kernel import Task

aten = torch.ops.aten

# the most pairs of a strip whose mask is kept for the next call: a MiB in float32
MOST_PAIRS_KEPT = 1 << 18


def forward(task: Task) -> tuple[Tensor, Tensor]:
    """The strip's outputs (N, R, Dv) and lse (N, R), rows that may attend to nothing left to the caller."""
    q, k, v = _by_head(task, *_four(task))
    out, lse = aten._scaled_dot_product_flash_attention_for_cpu(
        q, k, v, is_causal=task.at.is_causal, attn_mask=task.limit, scale=task.room.call.multiplier
    )
    return out.reshape(task.q.shape), lse.reshape(task.q.shape[:2])


def backward(task: Task, gradient: Tensor, out: Tensor, lse: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of the strip's q, k and v, given that of its outputs (N, R, Dv), these, and their lse (N, R)."""
    q, k, v = _by_head(task, *_four(task))
    gradients = aten._scaled_dot_product_flash_attention_for_cpu_backward(
        gradient.view(q.shape), q, k, v, out.view(q.shape), lse.view(q.shape[:3]), 0.0, task.at.is_causal,
        attn_mask=task.limit, scale=task.room.call.multiplier,
    )  # fmt: skip
    of_q, *of_shared = gradients
    if k.shape[1] * k.shape[0] != task.k.shape[0]:
        of_shared = [t.unflatten(1, (-1, task.members)).sum(2) for t in of_shared]
    of_k, of_v = (t.reshape(like.shape) for t, like in zip(of_shared, (task.k, task.v), strict=True))
    return of_q.reshape(task.q.shape), of_k, of_v


def _by_head(task: Task, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The same; of a causal strip by query heads, each with keys and values of its own: they share one diagonal."""
    if not task.at.is_causal or task.members == 1:
        return q, k, v
    rows = q.unflatten(2, (task.members, -1)).flatten(1, 2)
    return rows, *(t.repeat_interleave(task.members, 1) for t in (k, v))


def _four(task: Task) -> tuple[Tensor, Tensor, Tensor]:
    """q, k and v as (samples, key/value heads, rows of all query heads that share one, width)."""
    samples = task.heads[0]
    q, k, v = (t.unflatten(0, (samples, -1)) for t in (task.q, task.k, task.v))
    return q, k, v


def limits(room: Workspace, at: Strip) -> tuple[Tensor | None, Tensor | None]:
    """The mask of a strip as scores to add, (b|1, shared|1, rows of all members, columns), and its empty rows.

    None: it hides nothing, and no row is empty.
    """
    call = room.call
    if call.mask is None or not at.mixed or at.is_causal:
        return None, None
    mask, dtype = call.mask, room.q.dtype
    return derived(
        mask,
        ("limits", at, *call.sizes, call.groups, dtype),
        lambda: _limits(mask, call.sizes, at, call.groups, dtype),
        keeps=lambda pair: pair[0] is None or pair[0].numel() <= MOST_PAIRS_KEPT,
    )


def _limits(
    mask: Mask, sizes: Sizes, at: Strip, groups: int, dtype: torch.dtype
) -> tuple[Tensor | None, Tensor | None]:
    pairs = open_pairs(mask, Grid.whole(sizes, torch.device("cpu")), at, at.mixed, groups)
    allowed, empty = without_empty(pairs, at, at.mixed)
    if allowed is None:
        return None, empty
    members = at.members.stop - at.members.start
    if members > 1:
        # the rows of the query heads that share a key/value head stand below each other
        is_shared = allowed.shape[1] == 1
        by_group = allowed[:, :, None] if is_shared else allowed.unflatten(1, (-1, members))
        allowed = by_group.expand(-1, -1, members, -1, -1).flatten(2, 3)
    start = at.mixed[0].start - at.columns[0].start
    limit = torch.zeros(*allowed.shape[:3], at.width, dtype=dtype)
    limit[..., start : start + allowed.shape[3]].masked_fill_(~allowed, -math.inf)
    return limit, empty
