"""The arithmetic of one strip: scores, softmax and values forward, all gradients backward, in few passes."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from headwise.ops import additive_scores, fused_strips
from headwise.ops.call import block_of
from headwise.ops.dropout import Drops
from headwise.ops.segments import add_columns, columns_of
from headwise.ops.strips import Strip
from headwise.ops.workspace import Gradients, Workspace, score_dtype, without_empty

# the largest log-sum, up or down, by which results are joined
LARGEST_JOINED = 16.0


@dataclass(eq=False)
class Task:
    """One strip of a call, with its tensors.

    q (N, R, D), k (N, C, D), v (N, C, Dv), where N counts samples and key/value heads, R query heads and rows, and C
    columns; heads: the sizes (samples, query heads, rows) of the same. allowed: bool, broadcastable to (samples, query
    heads, rows, columns that the mask was asked for); None: all. limit: the same as scores to add, where torch's kernel
    computes the strip. empty: rows that may attend to nothing, (samples|1,
    heads|1, rows, 1); None: there is none. kept: what dropout keeps, (N, R, C); None: no dropout.
    """

    room: Workspace
    at: Strip
    q: Tensor
    k: Tensor
    v: Tensor
    heads: tuple[int, int, int]
    allowed: Tensor | None
    limit: Tensor | None
    empty: Tensor | None
    kept: Tensor | None

    @property
    def members(self) -> int:
        """How many query heads of the strip share each of its key/value heads."""
        members: int = self.at.members.stop - self.at.members.start
        return members

    @property
    def place(self) -> tuple[slice, slice, slice, slice]:
        """Where the rows of this strip are in a tensor (B, Hk, groups, Lq, ...)."""
        return self.at.samples, self.at.shared, self.at.members, self.at.rows

    def by_head(self, flat: Tensor) -> Tensor:
        """(N, R, ...) as (samples, query heads, rows, ...): a view."""
        whole: Tensor = flat.unflatten(1, (-1, self.heads[2])).unflatten(0, (self.heads[0], -1)).flatten(1, 2)
        return whole

    def without_empty_rows(self, flat: Tensor) -> Tensor:
        """(N, R, ...) with zeros in the rows that may attend to nothing."""
        if self.empty is None:
            return flat
        return flat.view(*self.heads, -1).masked_fill(self.empty, 0.0).view(flat.shape)


@dataclass(eq=False)
class ForwardOutputs:
    """What a forward pass made: out (B, Hk, groups, Lq, Dv) and lse (B, Hk, groups, Lq)."""

    out: Tensor
    lse: Tensor


def forward(room: Workspace, drops: Drops | None, number: int, at: Strip, out: Tensor, lse: Tensor | None) -> None:
    """Write the strip's rows of out (B, Hk, groups, Lq, Dv) and, where wanted, lse (B, Hk, groups, Lq)."""
    task = _task(room, drops, number, at)
    if room.is_fused:
        mixed, mixed_lse = fused_strips.forward(task)
        if at.joins and lse is not None:
            _join(out[task.place], lse[task.place], mixed, mixed_lse)
            return
        out[task.place] = task.without_empty_rows(mixed).view(out[task.place].shape)
        if lse is not None:
            lse[task.place] = _with_empty_rows(task, task.by_head(mixed_lse[..., None])).view(lse[task.place].shape)
        return
    logits, _ = _logits(task)
    if lse is not None:
        lse[task.place] = _lse(task, logits.to(lse.dtype)).view(lse[task.place].shape)
    weights = torch.softmax(logits, -1, out=logits)[..., : at.width]
    if task.kept is not None:
        weights.mul_(task.kept)
    mixed = torch.bmm(weights.to(task.v.dtype), task.v)
    if drops is not None:
        mixed.mul_(drops.raised)
    out[task.place] = task.without_empty_rows(mixed).view(out[task.place].shape)


def backward(
    room: Workspace,
    drops: Drops | None,
    number: int,
    at: Strip,
    gradient: Tensor,
    into: Gradients,
    outputs: ForwardOutputs | None,
) -> None:
    """Add the strip's share of every gradient, given that of out (B, Hk, groups, Lq, Dv).

    outputs: what the forward pass made, None: not kept, so it is computed again.
    """
    task = _task(room, drops, number, at)
    incoming = gradient[task.place].to(task.v.dtype).reshape(*task.q.shape[:2], -1)
    if incoming.stride(-1) != 1 or 0 in incoming.stride():
        # one that is expanded, as the gradient of a sum is, would be multiplied head by head
        incoming = incoming.contiguous()
    incoming = task.without_empty_rows(incoming)
    if outputs is not None and room.is_fused:
        _add_fused(task, incoming, outputs, into)
        return
    logits, capped = _logits(task)
    weights = torch.softmax(logits, -1, out=logits)
    if drops is not None:
        incoming = incoming * drops.raised
    if into.v is not None:
        used = weights[..., : at.width]
        if task.kept is not None:
            used = torch.mul(used, task.kept, out=room.buffer("used", tuple(used.shape), used.dtype))
        add_columns(into.v, at, torch.bmm(used.to(incoming.dtype).mT, incoming))
    if not into.of_scores:
        return
    slopes = room.buffer("slopes", tuple(weights.shape), weights.dtype)
    _product(slopes[..., : at.width], incoming, task.v, 1.0)
    if task.kept is not None:
        slopes[..., : at.width].mul_(task.kept)
    # the sink carries no value
    slopes[..., at.width :] = 0.0
    torch.ops.aten._softmax_backward_data.out(slopes, weights, -1, slopes.dtype, grad_input=slopes)
    _add_gradients_of_scores(task, slopes, capped, into)


def joins_exactly(lse: Tensor) -> bool:
    """Whether results that are joined by log-sums of float32, rounded as these are, stay within the error of one.

    A log-sum of 16 is off by up to 2^-20, and the weights by as much. That of a row without a key, -inf, is exact.
    """
    return float(lse.detach().masked_fill(lse.isneginf(), 0.0).abs().amax()) <= LARGEST_JOINED if lse.numel() else True


def _join(out: Tensor, lse: Tensor, mixed: Tensor, mixed_lse: Tensor) -> None:
    """Add outputs and lse of more columns to those of others, of rows with a column in both: arXiv:2112.05682."""
    mixed, mixed_lse = mixed.view(out.shape), mixed_lse.view(lse.shape)
    whole = torch.logaddexp(lse, mixed_lse)
    out.mul_((lse - whole).exp_()[..., None]).addcmul_(mixed, (mixed_lse - whole).exp_()[..., None])
    lse.copy_(whole)


def _add_fused(task: Task, incoming: Tensor, outputs: ForwardOutputs, into: Gradients) -> None:
    shape = task.q.shape[:2]
    # a row that sees nothing was computed as if it saw all, and its lse of -inf would make NaN of zeros
    lse = task.without_empty_rows(outputs.lse[task.place].reshape(*shape, 1))[..., 0]
    out = outputs.out[task.place].to(task.v.dtype).reshape(*shape, -1)
    gradients = fused_strips.backward(task, incoming, out, lse)
    if into.q is not None:
        _add_rows(into.q, task, gradients[0])
    if into.k is not None:
        add_columns(into.k, task.at, gradients[1])
    if into.v is not None:
        add_columns(into.v, task.at, gradients[2])


def _add_gradients_of_scores(task: Task, slopes: Tensor, capped: Tensor | None, into: Gradients) -> None:
    call, at = task.room.call, task.at
    heads = at.heads(call.groups)
    if into.sink is not None:
        into.sink[heads] += task.by_head(slopes[..., at.width :]).sum((0, 2, 3), dtype=into.sink.dtype)
    slopes = slopes[..., : at.width]
    if into.attn_bias is not None:
        _add_bias(task, slopes, into.attn_bias)
    if capped is not None:
        # the slope of tanh is 1 - tanh²
        slopes.mul_(capped.square_().neg_().add_(1.0))
    if call.weight is not None:
        gradients = additive_scores.gradients(task.q, task.k, _by_row(call.weight, task), slopes * call.multiplier)
        if into.weight is not None:
            into.weight[heads] += task.by_head(gradients.weight).sum((0, 2))
        if into.q is not None:
            _add_rows(into.q, task, gradients.q)
        if into.k is not None:
            add_columns(into.k, at, gradients.k)
        return
    slopes = slopes.to(task.q.dtype)
    if into.q is not None:
        _add_rows(into.q, task, torch.bmm(slopes, task.k).mul_(call.multiplier))
    if into.k is not None:
        add_columns(into.k, at, torch.bmm(slopes.mT, task.q).mul_(call.multiplier))


def _task(room: Workspace, drops: Drops | None, number: int, at: Strip) -> Task:
    q = room.q[at.samples, at.shared, at.members, at.rows]
    b, shared, members, rows, D = q.shape
    allowed, limit, empty = None, None, None
    if room.is_fused:
        limit, empty = fused_strips.limits(room, at)
    else:
        allowed, empty = without_empty(room.open_pairs(at), at, room.asked(at))
    k, v = (columns_of(t, at) for t in (room.k, room.v))
    kept = None if drops is None else drops.kept(number, at, room, score_dtype(room.call))
    heads = (b, shared * members, rows)
    task = Task(room, at, q.reshape(*at.shape[:2], D), k, v, heads, allowed, limit, empty, kept)
    task.q = task.without_empty_rows(task.q)
    return task


def _logits(task: Task) -> tuple[Tensor, Tensor | None]:
    """The masked scores (N, R, C), or (N, R, C + 1) with the sink's last; and tanh(score/softcap), None: no cap."""
    room, at, call = task.room, task.at, task.room.call
    N, R, C = at.shape
    logits = room.buffer("scores", (N, R, C + (call.sink is not None)), score_dtype(room.call))
    scores, capped = logits[..., :C], None
    if call.weight is None:
        _product(scores, task.q, task.k, call.multiplier)
    else:
        additive_scores.scores(task.q, task.k, _by_row(call.weight, task), out=scores)
        scores.mul_(call.multiplier)
    if call.softcap is not None:
        capped = room.buffer("capped", (N, R, C), score_dtype(room.call))
        torch.div(scores, call.softcap, out=capped).tanh_()
        torch.mul(capped, call.softcap, out=scores)
    by_head = task.by_head(scores)
    if call.attn_bias is not None:
        where = (at.samples, at.heads(call.groups), at.rows)
        parts = [block_of(call.attn_bias, (*where, run)) for run in at.columns]
        by_head.add_(parts[0] if len(parts) == 1 or parts[0].shape[-1] == 1 else torch.cat(parts, dim=-1))
    if task.allowed is not None:
        # +inf where a pair is open and -inf where it is hidden: the smaller of it and the score is the masked score
        limit = task.allowed.to(logits.dtype).sub_(0.5).mul_(math.inf)
        start = room.asked(at)[0].start - at.columns[0].start
        masked = by_head[..., start : start + limit.shape[-1]]
        if room.noisy:
            # the smaller of NaN and -inf is NaN
            masked.masked_fill_(~task.allowed, -math.inf)
        torch.minimum(masked, limit, out=masked)
        if task.empty is not None and room.closed:
            by_head.masked_fill_(task.empty, 0.0)
    if call.sink is not None:
        task.by_head(logits)[..., -1] = call.sink[at.heads(call.groups), None]
    return logits, capped


def _lse(task: Task, logits: Tensor) -> Tensor:
    return _with_empty_rows(task, task.by_head(torch.logsumexp(logits, dim=-1, keepdim=True)))


def _with_empty_rows(task: Task, lse: Tensor) -> Tensor:
    """The lse (samples, query heads, rows, 1), with that of nothing in the rows that may attend to nothing."""
    if task.empty is not None:
        sink = task.room.call.sink
        nothing = -math.inf if sink is None else sink[task.at.heads(task.room.call.groups), None, None].to(lse.dtype)
        lse = torch.where(task.empty, nothing, lse)
    return lse


def _product(out: Tensor, left: Tensor, right: Tensor, multiplier: float) -> None:
    """left · rightᵀ · multiplier into `out`, which may be of a wider dtype."""
    # torch 2.13 leaves `out` as it was where alpha is 0 in bfloat16
    if out.dtype is left.dtype and multiplier:
        torch.baddbmm(out, left, right.mT, beta=0, alpha=multiplier, out=out)
    else:
        out.copy_(torch.bmm(left, right.mT)).mul_(multiplier)


def _add_rows(into: Tensor, task: Task, found: Tensor) -> None:
    """Write (N, R, ...) into the strip's rows of (B, Hk, groups, Lq, ...), or add it where another strip has them."""
    rows = into[task.place]
    (rows.add_ if task.at.joins else rows.copy_)(found.view(rows.shape))


def _add_bias(task: Task, slopes: Tensor, into: Tensor) -> None:
    by_head, start = task.by_head(slopes), 0
    for run in task.at.columns:
        width = run.stop - run.start
        block = block_of(into, (task.at.samples, task.at.heads(task.room.call.groups), task.at.rows, run))
        block += by_head[..., start : start + width].to(into.dtype).sum_to_size(block.shape)
        start += width


def _by_row(weight: Tensor, task: Task) -> Tensor:
    """The weight of additive scoring (Hq, D) for each row: (N, R, D)."""
    of_heads = weight[task.at.heads(task.room.call.groups)].to(task.q.dtype)
    return of_heads[None, :, None].expand(*task.heads, -1).reshape(task.q.shape)
