"""Statistics of the weights: one kernel over rows for what each row has, one over columns for what keys receive."""

# what triton compiles has its types by the call
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from headwise.ops.call import Call
from headwise.ops.triton_kernels import WIDEST, on_device
from headwise.ops.triton_kernels.scores import INTERPRETED, load_rows, place_of, tile_scores, visited_tiles
from headwise.ops.triton_kernels.tile_table import TileLists, tile_table

# queries and keys of a tile: of halves, and of float32, whose products take no matrix unit. Measured on an H200: 128
# take 0.83 of the time of 64, with four warps
BLOCK, SINGLES_BLOCK = 128, 64
# tl.dot needs this many features
NARROWEST = 16


class RowStatistics(NamedTuple):
    """What the rows of the weights p have, all (B, Hq, Lq) in float32.

    peak: the largest score that may be attended to, -inf where there is none. base, log: p = exp(score - base - log);
    on a row without keys base is the sink's logit, or -inf, and log is 0. lse: both in one number, the sink in it.
    mass: the sum of p. entropy: -sum p log p, in nats.
    """

    peak: Tensor
    base: Tensor
    log: Tensor
    lse: Tensor
    mass: Tensor
    entropy: Tensor


def row_statistics(call: Call) -> RowStatistics:
    """What the rows of a call's weights have, from one pass over the scores."""
    B, Hq, Lq, _ = call.sizes
    found = RowStatistics(*(call.q.new_empty((B, Hq, Lq), dtype=torch.float32) for _ in RowStatistics._fields))
    block = block_of(call)
    tables = tile_table(call, block)
    if B * Hq * Lq:
        sink = call.q if call.sink is None else call.sink.detach().contiguous()
        grid = (B * Hq * triton.cdiv(Lq, block),)
        with on_device(call):
            _row_kernel[grid](*found, sink, *_inputs(call, tables.rows, tables.entries), **_constants(call, "q", block))
    return found


def received(call: Call, rows: RowStatistics) -> Tensor:
    """What each key receives of all queries, (B, Hq, Lk) in float32: the sums of the weights by columns.

    rows: what `row_statistics` gave of the same call.
    """
    B, Hq, _, Lk = call.sizes
    found = call.q.new_empty((B, Hq, Lk), dtype=torch.float32)
    block = block_of(call)
    tables = tile_table(call, block)
    if B * Hq * Lk:
        grid = (B * Hq * triton.cdiv(Lk, block),)
        tensors = found, rows.base, rows.log
        with on_device(call):
            _column_kernel[grid](
                *tensors, *_inputs(call, tables.columns, tables.entries), **_constants(call, "k", block)
            )
    return found


def block_of(call: Call) -> int:
    """Queries and keys of a tile of this call."""
    return min(BLOCK, SINGLES_BLOCK) if call.q.dtype is torch.float32 else BLOCK


def _inputs(call: Call, lists: TileLists, entries: Tensor) -> tuple[Any, ...]:
    """The arguments that both kernels share: tensors, numbers, and the strides of what is broadcast."""
    B, Hq, Lq, Lk = call.sizes
    q, k = call.q.detach(), call.k.detach()
    bias = q if call.attn_bias is None else call.attn_bias.detach().expand(B, Hq, Lq, Lk)
    weight = q if call.weight is None else call.weight.detach().contiguous()
    tiles, places, counts = (t.expand(B, Hq, *t.shape[2:]) for t in lists)
    cap = 1.0 if call.softcap is None else float(call.softcap)
    return (
        q, k, weight, bias, tiles, places, counts, entries, Hq, call.groups, Lq, Lk, q.shape[-1],
        call.multiplier / cap, cap, *q.stride(), *k.stride(), *bias.stride(), *tiles.stride(), *counts.stride()[:3],
    )  # fmt: skip


def _constants(call: Call, held: str, block: int) -> dict[str, Any]:
    """What the kernels are compiled for."""
    D = call.q.shape[-1]
    is_additive = call.weight is not None
    options: dict[str, Any] = {
        "ADDITIVE": is_additive,
        "HAS_BIAS": call.attn_bias is not None,
        "HAS_CAP": call.softcap is not None,
        "HELD": held if D <= WIDEST and not is_additive else "",
        "BLOCK": block,
        "WIDTH": min(WIDEST, max(NARROWEST, triton.next_power_of_2(D))),
        "WIDEN": INTERPRETED,
    }
    return {**options, "HAS_SINK": call.sink is not None} if held == "q" else options


@triton.jit
def _row_kernel(
    peak_to, base_to, log_to, lse_to, mass_to, entropy_to, sink,
    q, k, weight, bias, tiles, places, counts, entries, Hq, groups, Lq, Lk, D, factor, softcap,
    q_sample, q_head, q_row, q_feature, k_sample, k_head, k_row, k_feature,
    bias_sample, bias_head, bias_row, bias_column, tile_sample, tile_head, tile_run, tile_next,
    count_sample, count_head, count_run,
    ADDITIVE: tl.constexpr, HAS_BIAS: tl.constexpr, HAS_CAP: tl.constexpr, HAS_SINK: tl.constexpr, HELD: tl.constexpr,
    BLOCK: tl.constexpr, WIDTH: tl.constexpr, WIDEN: tl.constexpr,
):  # fmt: skip
    """One program: the statistics of BLOCK rows of one head."""
    head, b, h, run = place_of(tl.cdiv(Lq, BLOCK), Hq)
    i = run * BLOCK
    q += b * q_sample + h * q_head
    k += b * k_sample + h // groups * k_head
    weight += h * D
    bias += b * bias_sample + h * bias_head
    tiles, places, mixed, visited = visited_tiles(
        tiles, places, counts, b, h, run, tile_sample, tile_head, tile_run, count_sample, count_head, count_run
    )
    held = i
    if HELD == "q":
        held = load_rows(q, i, Lq, q_row, q_feature, 0, D, BLOCK, WIDTH)
    top, total, slope = _row_sums(
        q, k, weight, bias, held, entries, tiles, places, mixed, visited, i, Lq, Lk, D, factor, softcap,
        q_row, q_feature, k_row, k_feature, bias_row, bias_column, tile_next,
        HELD, ADDITIVE, HAS_BIAS, HAS_CAP, BLOCK, WIDTH, WIDEN,
    )  # fmt: skip
    row = i + tl.arange(0, BLOCK)
    at, inside = head * Lq + row, row < Lq
    is_empty = _is_empty(top, total)
    base, log, lse = _log_sums(top, total, sink + h, HAS_SINK)
    share = tl.exp(-log)
    mass = tl.where(is_empty, 0.0, total * share)
    # a row of NaN: the maximum of a device passes over it
    tl.store(peak_to + at, tl.where((total != total) & (top < float("inf")), total, top), mask=inside)
    tl.store(base_to + at, base, mask=inside)
    tl.store(log_to + at, log, mask=inside)
    tl.store(lse_to + at, lse, mask=inside)
    tl.store(mass_to + at, mass, mask=inside)
    # -sum p (score - top - log), of which both terms are positive
    tl.store(entropy_to + at, tl.where(is_empty, 0.0, mass * log - slope * share), mask=inside)


@triton.jit
def _row_sums(
    q, k, weight, bias, held, entries, tiles, places, mixed, visited, i, Lq, Lk, D, factor, softcap,
    q_row, q_feature, k_row, k_feature, bias_row, bias_column, tile_next,
    HELD: tl.constexpr, ADDITIVE: tl.constexpr, HAS_BIAS: tl.constexpr, HAS_CAP: tl.constexpr,
    BLOCK: tl.constexpr, WIDTH: tl.constexpr, WIDEN: tl.constexpr,
):  # fmt: skip
    """Of the rows from i on: the largest score, and with x = score - largest the sums of exp(x) and of x exp(x)."""
    top = tl.full((BLOCK,), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    slope = tl.zeros((BLOCK,), tl.float32)
    for n in range(mixed):
        j, place = tl.load(tiles + n * tile_next) * BLOCK, tl.load(places + n * tile_next)
        t, _ = tile_scores(
            q, k, weight, bias, held, entries, place, i, j, Lq, Lk, D, factor, softcap, q_row, q_feature, k_row,
            k_feature, bias_row, bias_column, HELD, True, ADDITIVE, HAS_BIAS, HAS_CAP, BLOCK, WIDTH, WIDEN,
        )  # fmt: skip
        top, total, slope = _sums_with(t, top, total, slope)
    for n in range(mixed, visited):
        j = tl.load(tiles + n * tile_next) * BLOCK
        t, _ = tile_scores(
            q, k, weight, bias, held, entries, j, i, j, Lq, Lk, D, factor, softcap, q_row, q_feature, k_row,
            k_feature, bias_row, bias_column, HELD, False, ADDITIVE, HAS_BIAS, HAS_CAP, BLOCK, WIDTH, WIDEN,
        )  # fmt: skip
        top, total, slope = _sums_with(t, top, total, slope)
    return top, total, slope


@triton.jit
def _is_empty(top, total):
    """Whether rows may attend to nothing; the maximum of a device passes over NaN, which the sum has."""
    return (top == float("-inf")) & (total == 0.0)


@triton.jit
def _log_sums(top, total, sink, HAS_SINK: tl.constexpr):
    """The two parts of each row's log-sum, base and log, and both in one, by its largest score and sum of exp(x)."""
    is_empty = _is_empty(top, total)
    base = tl.where(is_empty, 0.0, top)
    log = tl.log(total)
    lse = tl.where(is_empty, float("-inf"), top + log)
    if HAS_SINK:
        logit = tl.load(sink).to(tl.float32)
        # a bias of -1e38 is as far below the sink as float32 reaches
        gap = logit - base
        log = _log_add(log, tl.where(gap > 3.4e38, 3.4e38, gap))
        lse = _log_add(lse, tl.where(is_empty, logit, logit + 0.0 * base))
        base = tl.where(is_empty, logit, base)
    else:
        base = top
    log = tl.where(is_empty, 0.0, log)
    return base, log, lse


@triton.jit
def _sums_with(t, top, total, slope):
    """The largest score of rows, and with x = score - largest the sums of exp(x) and of x exp(x), with one tile more.

    Milakov and Gimelshein 2018, arXiv:1805.02867, and the same for the second sum.
    """
    higher = tl.maximum(top, tl.max(t, 1))
    # a row without an open pair so far has no largest score to subtract
    base = tl.where(higher == float("-inf"), 0.0, higher)
    # exp(-1000) is 0 already, and a larger step could overflow beside it
    step = tl.minimum(base - tl.where(top == float("-inf"), 0.0, top), 1000.0)
    shrink = tl.exp(top - base)
    shifted = t - base[:, None]
    powers = tl.exp(shifted)
    # 0·(-inf) is NaN, and such a pair adds nothing
    products = powers * tl.where(shifted == float("-inf"), 0.0, shifted)
    slope = shrink * (slope - step * total) + tl.sum(products, 1)
    return higher, shrink * total + tl.sum(powers, 1), slope


@triton.jit
def _log_add(a, b):
    """log(exp(a) + exp(b))."""
    larger = tl.maximum(a, b)
    is_infinite = (larger == float("-inf")) | (larger == float("inf"))
    total = tl.exp(a - larger) + tl.exp(b - larger)
    return tl.where(is_infinite & (a == a) & (b == b), larger, larger + tl.log(total))


@triton.jit
def _column_kernel(
    received_to, bases, logs,
    q, k, weight, bias, tiles, places, counts, entries, Hq, groups, Lq, Lk, D, factor, softcap,
    q_sample, q_head, q_row, q_feature, k_sample, k_head, k_row, k_feature,
    bias_sample, bias_head, bias_row, bias_column, tile_sample, tile_head, tile_run, tile_next,
    count_sample, count_head, count_run,
    ADDITIVE: tl.constexpr, HAS_BIAS: tl.constexpr, HAS_CAP: tl.constexpr, HELD: tl.constexpr,
    BLOCK: tl.constexpr, WIDTH: tl.constexpr, WIDEN: tl.constexpr,
):  # fmt: skip
    """One program: what BLOCK keys receive of all queries of one head."""
    head, b, h, run = place_of(tl.cdiv(Lk, BLOCK), Hq)
    j = run * BLOCK
    q += b * q_sample + h * q_head
    k += b * k_sample + h // groups * k_head
    weight += h * D
    bias += b * bias_sample + h * bias_head
    bases += head * Lq
    logs += head * Lq
    tiles, places, mixed, visited = visited_tiles(
        tiles, places, counts, b, h, run, tile_sample, tile_head, tile_run, count_sample, count_head, count_run
    )
    held = j
    if HELD == "k":
        held = load_rows(k, j, Lk, k_row, k_feature, 0, D, BLOCK, WIDTH)
    total = tl.zeros((BLOCK,), tl.float32)
    for n in range(mixed):
        i, place = tl.load(tiles + n * tile_next) * BLOCK, tl.load(places + n * tile_next)
        t, may_attend = tile_scores(
            q, k, weight, bias, held, entries, place, i, j, Lq, Lk, D, factor, softcap, q_row, q_feature, k_row,
            k_feature, bias_row, bias_column, HELD, True, ADDITIVE, HAS_BIAS, HAS_CAP, BLOCK, WIDTH, WIDEN,
        )  # fmt: skip
        total += tl.sum(_tile_weights(t, may_attend, bases, logs, i, Lq, BLOCK), 0)
    for n in range(mixed, visited):
        i = tl.load(tiles + n * tile_next) * BLOCK
        t, may_attend = tile_scores(
            q, k, weight, bias, held, entries, i, i, j, Lq, Lk, D, factor, softcap, q_row, q_feature, k_row,
            k_feature, bias_row, bias_column, HELD, False, ADDITIVE, HAS_BIAS, HAS_CAP, BLOCK, WIDTH, WIDEN,
        )  # fmt: skip
        total += tl.sum(_tile_weights(t, may_attend, bases, logs, i, Lq, BLOCK), 0)
    column = j + tl.arange(0, BLOCK)
    tl.store(received_to + head * Lk + column, total, mask=column < Lk)


@triton.jit
def _tile_weights(t, may_attend, bases, logs, i, Lq, BLOCK: tl.constexpr):
    """exp(t - base - log) where a pair may attend, 0 elsewhere; on a row of NaN too."""
    row = i + tl.arange(0, BLOCK)
    base = tl.load(bases + row, mask=row < Lq, other=0.0)
    log = tl.load(logs + row, mask=row < Lq, other=0.0)
    base = tl.where(base == float("-inf"), 0.0, base)
    return tl.where(may_attend, tl.exp(t - base[:, None] - log[:, None]), 0.0)
