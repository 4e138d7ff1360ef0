"""Additive attention (Bahdanau) by tiles, forward and backward: softmax(weightᵀ tanh(q + k)) v in O(L) memory."""

# what triton compiles has its types by the call
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from headwise.errors import BackendError
from headwise.ops import reference
from headwise.ops.call import Call
from headwise.ops.triton_kernels import on_device, why_not_additive
from headwise.ops.triton_kernels.scores import (
    INTERPRETED,
    additive_scores,
    load_feature,
    load_rows,
    open_pairs,
    place_of,
    product,
    tanh,
    visited_tiles,
)
from headwise.ops.triton_kernels.tile_table import TileTable, tile_table, walk

# queries and keys of a tile. Measured on an H200: forward and backward 16 take 1.13 of the time, forward 0.75
BLOCK = 32
# tl.dot needs this many features
NARROWEST = 16


class Attended(NamedTuple):
    """out (B, Hq, Lq, Dv) in the dtype of q, and lse (B, Hq, Lq) in float32, -inf on a row without keys."""

    out: Tensor
    lse: Tensor


def attend(call: Call) -> Attended:
    """Additive attention of a checked call, with gradients of q, k, v and weight; BackendError where no kernel does.

    A second derivative is that of the definition, recomputed in O(Lq·Lk·D) memory. The lse carries no gradient.
    """
    if reason := why_not_additive(call):
        raise BackendError(f"the Triton kernels cannot compute this call: {reason}")
    out, lse = AdditiveFunction.apply(call, call.q, call.k, call.v, call.weight)
    return Attended(out, lse)


class AdditiveFunction(torch.autograd.Function):
    """Additive attention by tiles; keeps its outputs and their lse, and computes the weights anew on the way back."""

    @staticmethod
    def forward(ctx: Any, call: Call, q: Tensor, k: Tensor, v: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        out, lse = forward(call)
        ctx.rules = {"mask": call.mask, "scale": call.scale, "prepared": call.prepared}
        ctx.save_for_backward(q, k, v, weight, out, lse)
        ctx.mark_non_differentiable(lse)
        return out, lse

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        *given, out, lse = ctx.saved_tensors
        needed = ctx.needs_input_grad[1:]
        if not torch.is_grad_enabled():
            q, k, v, weight = given
            found = backward(Call(q, k, v, weight=weight, **ctx.rules), Attended(out, lse), gradients[0])
            return None, *(t if is_needed else None for t, is_needed in zip(found, needed, strict=True))
        # views: the tensors may come from one another, and a gradient ends where it is asked for
        q, k, v, weight = views = [t.view_as(t) for t in given]
        again = reference.run(Call(q, k, v, weight=weight, **{**ctx.rules, "prepared": {}}))
        wanted = [t for t, is_needed in zip(views, needed, strict=True) if is_needed]
        made = iter(torch.autograd.grad(again, wanted, gradients[0], create_graph=True))
        return None, *(next(made) if is_needed else None for is_needed in needed)


def forward(call: Call) -> Attended:
    """The outputs and their lse, without a graph."""
    B, Hq, Lq, _ = call.sizes
    out = call.q.new_empty((B, Hq, Lq, call.v.shape[-1]))
    lse = call.q.new_empty((B, Hq, Lq), dtype=torch.float32)
    if B * Hq * Lq:
        tables = tile_table(call, BLOCK)
        q, k, v, weight = _prepared(call, tables)
        grid = (B * Hq * triton.cdiv(Lq, BLOCK),)
        tensors = out, lse, q, k, v, weight
        with on_device(call):
            _forward_kernel[grid](*tensors, *walk(call, tables.rows), tables.entries, *_sizes(call)[:-1])
    return Attended(out, lse)


def backward(call: Call, made: Attended, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The gradients of q, k, v and weight, given that of the outputs; without a graph."""
    B, Hq, Lq, Lk = call.sizes
    D, runs = call.q.shape[-1], triton.cdiv(Lq, BLOCK)
    of_q, of_k, of_v = (t.new_zeros(t.shape, dtype=torch.float32) for t in (call.q, call.k, call.v))
    # a sum for each program, added up in an order that is always the same
    of_weight = call.q.new_zeros((B, Hq, runs, D), dtype=torch.float32)
    if B * Hq * Lq * Lk:
        tables = tile_table(call, BLOCK)
        q, k, v, weight = _prepared(call, tables)
        gradient = gradient.contiguous()
        # a row's sum of p · (gradient of p), by which the softmax's gradient differs from its factor
        mean = (gradient.float() * made.out.float()).sum(-1)
        lse = made.lse.masked_fill(made.lse.isneginf(), 0.0)
        shared = (q, k, v, weight, lse, mean, gradient)
        rows, columns = (B * Hq * runs,), (B * k.shape[1] * triton.cdiv(Lk, BLOCK),)
        with on_device(call):
            _row_kernel[rows](of_q, of_weight, *shared, *walk(call, tables.rows), tables.entries, *_sizes(call))
            _column_kernel[columns](of_k, of_v, *shared, *walk(call, tables.columns), tables.entries, *_sizes(call))
    return (
        of_q.to(call.q.dtype), of_k.to(call.k.dtype), of_v.to(call.v.dtype),
        of_weight.sum((0, 2)).mul_(call.multiplier).to(_weight_of(call).dtype),
    )  # fmt: skip


def _weight_of(call: Call) -> Tensor:
    if call.weight is None:
        raise BackendError("the kernels of additive attention need weight (Hq, D), but None came")
    return call.weight.detach()


def _prepared(call: Call, tables: TileTable) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """q (B, Hq, D, Lq) and k (B, Hk, D, Lk), a feature of neighbouring rows side by side; v; weight times the scale.

    A key that no query may attend to may hold anything: here its k and v are 0.
    """
    k, v = call.k.detach(), call.v.detach()
    if call.mask is not None and tables.seen.shape[-1] == k.shape[2]:
        seen = tables.seen
        if seen.shape[1] > 1:
            seen = seen.unflatten(1, (-1, call.groups)).any(2)
        k, v = (t.masked_fill(~seen[..., None], 0.0) for t in (k, v))
    weight = (_weight_of(call).float() * call.multiplier).contiguous()
    return call.q.detach().mT.contiguous(), k.mT.contiguous(), v.contiguous(), weight


def _sizes(call: Call) -> tuple[int, ...]:
    """The sizes of a call, and those that the kernels are compiled for."""
    D, Dv = call.q.shape[-1], call.v.shape[-1]
    width, v_width = (max(NARROWEST, triton.next_power_of_2(n)) for n in (D, Dv))
    return call.sizes.H, call.groups, call.sizes.Lq, call.sizes.Lk, D, Dv, BLOCK, v_width, INTERPRETED, width


@triton.jit
def _forward_kernel(
    out_to, lse_to, q, k, v, weight,
    tiles, places, counts, tile_sample, tile_head, tile_run, tile_next, count_sample, count_head, count_run,
    entries, Hq, groups, Lq, Lk, D, Dv,
    BLOCK: tl.constexpr, V_WIDTH: tl.constexpr, WIDEN: tl.constexpr,
):  # fmt: skip
    """One program: BLOCK rows of the outputs of one head. Dao 2023, arXiv:2307.08691, algorithm 1."""
    runs = tl.cdiv(Lq, BLOCK)
    head, b, h, run = place_of(runs, Hq)
    i, key_head = run * BLOCK, head // groups
    q += head * D * Lq
    k += key_head * D * Lk
    v += key_head * Lk * Dv
    weight += h * D
    tiles, places, mixed, visited = visited_tiles(
        tiles, places, counts, b, h, run, tile_sample, tile_head, tile_run, count_sample, count_head, count_run
    )
    top = tl.full((BLOCK,), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    # features by rows: triton 3.6 and 3.7 compile no kernel whose powers are the first factor here
    out = tl.zeros((V_WIDTH, BLOCK), tl.float32)
    for n in range(visited):
        # to read entries is little beside so many tanh, so that one loop serves mixed and full tiles
        j, place = tl.load(tiles + n * tile_next) * BLOCK, tl.load(places + n * tile_next)
        t, _ = _scores(q, k, weight, entries, place, n < mixed, i, j, Lq, Lk, D, BLOCK)
        higher = tl.maximum(top, tl.max(t, 1))
        base = tl.where(higher == float("-inf"), 0.0, higher)
        shrink, powers = tl.exp(top - base), tl.exp(t - base[:, None])
        values = load_rows(v, j, Lk, Dv, 1, 0, Dv, BLOCK, V_WIDTH)
        total = shrink * total + tl.sum(powers, 1)
        out = out * shrink[None, :] + product(tl.trans(values), tl.trans(powers.to(values.dtype)), WIDEN)
        top = higher
    row, feature = i + tl.arange(0, BLOCK), tl.arange(0, V_WIDTH)
    # the maximum of a device passes over NaN, which the sum has
    is_empty = (top == float("-inf")) & (total == 0.0)
    out = tl.where(is_empty[None, :], 0.0, out / tl.where(is_empty, 1.0, total)[None, :])
    tl.store(lse_to + head * Lq + row, tl.where(is_empty, top, top + tl.log(total)), mask=row < Lq)
    at = out_to + (head * Lq + row)[None, :] * Dv + feature[:, None]
    tl.store(at, out, mask=(row < Lq)[None, :] & (feature < Dv)[:, None])


@triton.jit
def _scores(q, k, weight, entries, place, is_mixed, i, j, Lq, Lk, D, BLOCK: tl.constexpr):
    """The scores of one tile, -inf where a pair may not attend, and which may."""
    may_attend = open_pairs(entries, place, i, j, Lq, Lk, False, BLOCK)
    if is_mixed:
        may_attend = open_pairs(entries, place, i, j, Lq, Lk, True, BLOCK)
    t = additive_scores(q, k, weight, i, j, Lq, Lk, D, 1, Lq, 1, Lk, BLOCK)
    return tl.where(may_attend, t, float("-inf")), may_attend


@triton.jit
def _slopes(
    q, k, v, weight, lse, mean, gradient, entries, place, is_mixed, i, j, Lq, Lk, D, Dv,
    BLOCK: tl.constexpr, V_WIDTH: tl.constexpr, WIDEN: tl.constexpr,
):  # fmt: skip
    """The weights p of one tile, the gradients of its scores, and the rows of the outputs' gradient."""
    t, may_attend = _scores(q, k, weight, entries, place, is_mixed, i, j, Lq, Lk, D, BLOCK)
    row = i + tl.arange(0, BLOCK)
    log_sum = tl.load(lse + row, mask=row < Lq, other=0.0)
    p = tl.where(may_attend, tl.exp(t - log_sum[:, None]), 0.0)
    of_out = load_rows(gradient, i, Lq, Dv, 1, 0, Dv, BLOCK, V_WIDTH)
    of_p = product(of_out, tl.trans(load_rows(v, j, Lk, Dv, 1, 0, Dv, BLOCK, V_WIDTH)), WIDEN)
    factor = tl.load(mean + row, mask=row < Lq, other=0.0)
    return p, tl.where(may_attend, p * (of_p - factor[:, None]), 0.0), of_out


@triton.jit
def _row_kernel(
    of_q_to, of_weight_to, q, k, v, weight, lse, mean, gradient,
    tiles, places, counts, tile_sample, tile_head, tile_run, tile_next, count_sample, count_head, count_run,
    entries, Hq, groups, Lq, Lk, D, Dv,
    BLOCK: tl.constexpr, V_WIDTH: tl.constexpr, WIDEN: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """One program: the gradients of BLOCK rows of q, and the part of the weight's that comes from them."""
    runs = tl.cdiv(Lq, BLOCK)
    head, b, h, run = place_of(runs, Hq)
    i, key_head = run * BLOCK, head // groups
    q += head * D * Lq
    k += key_head * D * Lk
    v += key_head * Lk * Dv
    weight += h * D
    lse += head * Lq
    mean += head * Lq
    gradient += head * Lq * Dv
    tiles, places, mixed, visited = visited_tiles(
        tiles, places, counts, b, h, run, tile_sample, tile_head, tile_run, count_sample, count_head, count_run
    )
    of_q = tl.zeros((BLOCK, WIDTH), tl.float32)
    of_weight = tl.zeros((WIDTH,), tl.float32)
    feature = tl.arange(0, WIDTH)
    for n in range(visited):
        j, place = tl.load(tiles + n * tile_next) * BLOCK, tl.load(places + n * tile_next)
        _, slopes, _ = _slopes(
            q, k, v, weight, lse, mean, gradient, entries, place, n < mixed, i, j, Lq, Lk, D, Dv, BLOCK, V_WIDTH, WIDEN
        )
        for d in range(D):
            row, column = load_feature(q + d * Lq, i, Lq, 1, BLOCK), load_feature(k + d * Lk, j, Lk, 1, BLOCK)
            bent = tanh(row[:, None] + column[None, :])
            by_weight = tl.sum(tl.sum(slopes * bent, 1), 0)
            by_row = tl.sum(slopes * (1.0 - bent * bent), 1) * tl.load(weight + d)
            # the sums of one feature stand in one column
            of_weight += tl.where(feature == d, by_weight, 0.0)
            of_q += tl.where((feature == d)[None, :], by_row[:, None], 0.0)
    row = i + tl.arange(0, BLOCK)
    at = of_q_to + (head * Lq + row)[:, None] * D + feature[None, :]
    tl.store(at, of_q, mask=(row < Lq)[:, None] & (feature < D)[None, :])
    tl.store(of_weight_to + (head * runs + run) * D + feature, of_weight, mask=feature < D)


@triton.jit
def _column_kernel(
    of_k_to, of_v_to, q, k, v, weight, lse, mean, gradient,
    tiles, places, counts, tile_sample, tile_head, tile_run, tile_next, count_sample, count_head, count_run,
    entries, Hq, groups, Lq, Lk, D, Dv,
    BLOCK: tl.constexpr, V_WIDTH: tl.constexpr, WIDEN: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """One program: the gradients of BLOCK rows of k and v, from all query heads that share them."""
    # of the heads of keys, whose sample the query heads below say
    key_head, _, _, run = place_of(tl.cdiv(Lk, BLOCK), Hq)
    j = run * BLOCK
    k += key_head * D * Lk
    v += key_head * Lk * Dv
    of_k = tl.zeros((BLOCK, WIDTH), tl.float32)
    of_v = tl.zeros((BLOCK, V_WIDTH), tl.float32)
    feature, value = tl.arange(0, WIDTH), tl.arange(0, V_WIDTH)
    for member in range(groups):
        head = key_head * groups + member
        b, h = head // Hq, head % Hq
        of_tiles, of_places, mixed, visited = visited_tiles(
            tiles, places, counts, b, h, run, tile_sample, tile_head, tile_run, count_sample, count_head, count_run
        )
        for n in range(visited):
            i, place = tl.load(of_tiles + n * tile_next) * BLOCK, tl.load(of_places + n * tile_next)
            p, slopes, of_out = _slopes(
                q + head * D * Lq, k, v, weight + h * D, lse + head * Lq, mean + head * Lq,
                gradient + head * Lq * Dv, entries, place, n < mixed, i, j, Lq, Lk, D, Dv, BLOCK, V_WIDTH, WIDEN,
            )  # fmt: skip
            of_v += product(tl.trans(p.to(of_out.dtype)), of_out, WIDEN)
            for d in range(D):
                row = load_feature(q + head * D * Lq + d * Lq, i, Lq, 1, BLOCK)
                bent = tanh(row[:, None] + load_feature(k + d * Lk, j, Lk, 1, BLOCK)[None, :])
                by_column = tl.sum(slopes * (1.0 - bent * bent), 0) * tl.load(weight + h * D + d)
                of_k += tl.where((feature == d)[None, :], by_column[:, None], 0.0)
    column = j + tl.arange(0, BLOCK)
    at = key_head * Lk + column
    inside = (column < Lk)[:, None]
    tl.store(of_k_to + at[:, None] * D + feature[None, :], of_k, mask=inside & (feature < D)[None, :])
    tl.store(of_v_to + at[:, None] * Dv + value[None, :], of_v, mask=inside & (value < Dv)[None, :])
