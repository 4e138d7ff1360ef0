"""Fused: a strip by torch's own fused kernel, forward and backward, where that computes exactly what the strip asks."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from headwise.masks import Mask
from headwise.masks.derived import derived
from headwise.masks.places import Grid, Sizes
from headwise.ops.strips import Strip
from headwise.ops.workspace import Workspace, open_pairs, without_empty

if TYPE_CHECKING:
    from headwise.ops.kernel import Task

aten = torch.ops.aten

# the most pairs of a strip whose mask is kept for the next call: a MiB in float32
MOST_PAIRS_KEPT = 1 << 18


def forward(task: Task) -> tuple[Tensor, Tensor]:
    """The strip's outputs (N, R, Dv) and lse (N, R), rows that may attend to nothing left to the caller."""
    if task.at.is_causal:
        return _causal(task)
    q, k, v = _four(task)
    out, lse = aten._scaled_dot_product_flash_attention_for_cpu(
        q, k, v, attn_mask=task.limit, scale=task.room.call.multiplier
    )
    return out.reshape(task.q.shape), lse.reshape(task.q.shape[:2])


def backward(task: Task, gradient: Tensor, out: Tensor, lse: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of the strip's q, k and v, given that of its outputs (N, R, Dv), these, and their lse (N, R)."""
    if task.at.is_causal:
        return _causal_backward(task, gradient, out, lse)
    q, k, v = _four(task)
    found = aten._scaled_dot_product_flash_attention_for_cpu_backward(
        gradient.view(q.shape), q, k, v, out.view(q.shape), lse.view(q.shape[:3]), 0.0, False,
        attn_mask=task.limit, scale=task.room.call.multiplier,
    )  # fmt: skip
    of_q, of_k, of_v = (t.reshape(like.shape) for t, like in zip(found, (task.q, task.k, task.v), strict=True))
    return of_q, of_k, of_v


def _causal(task: Task) -> tuple[Tensor, Tensor]:
    """The same of a causal strip: of the columns that all rows see, and of the square, joined by their log-sums.

    Rabe and Staats 2021, arXiv:2112.05682.
    """
    scale, (q, k, v), (before, square) = task.room.call.multiplier, _four(task), _cut(task)
    out, lse = aten._scaled_dot_product_flash_attention_for_cpu(
        _by_head(task, q), *(_each_head(task, t[:, :, square]) for t in (k, v)), is_causal=True, scale=scale
    )
    # the kernel's outputs and log-sums are views of (samples, rows, heads): of one layout with those of the first part
    out, lse = out.reshape(q.shape), lse.reshape(q.shape[:3])
    if before.stop:
        first, first_lse = aten._scaled_dot_product_flash_attention_for_cpu(
            q, k[:, :, before], v[:, :, before], scale=scale
        )
        whole = torch.logaddexp(first_lse, lse)
        share, rest = ((part - whole).exp_()[..., None] for part in (first_lse, lse))
        out, lse = torch.addcmul(out * rest, first, share), whole
    return out.reshape(task.q.shape), lse.reshape(task.q.shape[:2])


def _causal_backward(task: Task, gradient: Tensor, out: Tensor, lse: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of a causal strip: those of its two parts, by the weights among all columns."""
    scale, (q, k, v), (before, square) = task.room.call.multiplier, _four(task), _cut(task)
    gradient, out, lse = gradient.view(q.shape), out.view(q.shape), lse.view(q.shape[:3])
    of_q, of_k, of_v = aten._scaled_dot_product_flash_attention_for_cpu_backward(
        _by_head(task, gradient), _by_head(task, q), *(_each_head(task, t[:, :, square]) for t in (k, v)),
        _by_head(task, out), _by_head(task, lse), 0.0, True, scale=scale,
    )  # fmt: skip
    of_q, of_k, of_v = of_q.reshape(q.shape), *(t.unflatten(1, (k.shape[1], -1)).sum(2) for t in (of_k, of_v))
    if before.stop:
        first = aten._scaled_dot_product_flash_attention_for_cpu_backward(
            gradient, q, k[:, :, before], v[:, :, before], out, lse, 0.0, False, scale=scale
        )
        of_q = first[0].add_(of_q)
        of_k, of_v = (torch.cat(pair, 2) for pair in zip(first[1:], (of_k, of_v), strict=True))
    return of_q.reshape(task.q.shape), of_k.reshape(task.k.shape), of_v.reshape(task.v.shape)


def _cut(task: Task) -> tuple[slice, slice]:
    """The columns of a causal strip that all rows see, and those of the square."""
    square = task.at.mixed[0]
    return slice(0, square.start), square


def _by_head(task: Task, t: Tensor) -> Tensor:
    """(samples, key/value heads, rows of all members, ...) as (samples, query heads, rows, ...)."""
    return t.unflatten(2, (-1, task.heads[2])).flatten(1, 2)


def _each_head(task: Task, t: Tensor) -> Tensor:
    """Keys or values (samples, key/value heads, columns, width), once for each query head."""
    members = task.heads[1] // t.shape[1]
    return t if members == 1 else t.repeat_interleave(members, 1)


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
        lambda: _made(mask, call.sizes, at, call.groups, dtype),
        keeps=lambda made: made[0] is None or made[0].numel() <= MOST_PAIRS_KEPT,
    )


def _made(mask: Mask, sizes: Sizes, at: Strip, groups: int, dtype: torch.dtype) -> tuple[Tensor | None, Tensor | None]:
    found = open_pairs(mask, Grid.whole(sizes, torch.device("cpu")), at, at.mixed, groups)
    allowed, empty = without_empty(found, at, at.mixed)
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
