"""Lse statistics: those of rows and of columns from one pass over the scores, of weights whose lse is known."""

# what triton compiles has its types by the call
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from headwise.ops.call import Call
from headwise.ops.triton_kernels import statistics
from headwise.ops.triton_kernels.scores import load_rows, place_of, tile_scores, visited_tiles
from headwise.ops.triton_kernels.statistics import RowStatistics, constants, inputs, log_sums, row_sums
from headwise.ops.triton_kernels.tile_table import tile_table

# programs that share the rows of a head: each has sums of its own over the columns, which are added in one order
PARTS = 16


def all_statistics(call: Call, lse: Tensor, *, resolved: float, misfit: float) -> tuple[RowStatistics, Tensor]:
    """What the rows of a call's weights have, and what each key receives (B, Hq, Lk), by an lse (B, Hq, Lq).

    lse: natural, with the sink in it, as a kernel gave it; on a row without a key it is not read. A run of rows with an
    lse of more than `resolved`, whose own rounding would show in the weights, is passed over a second time: if the lse
    of its scores is within `misfit` times its size of that given, it is taken in its place.
    """
    B, Hq, Lq, Lk = call.sizes
    rows = RowStatistics(*(call.q.new_empty((B, Hq, Lq), dtype=torch.float32) for _ in RowStatistics._fields))
    block = statistics.BLOCK
    parts = max(1, min(PARTS, triton.cdiv(Lq, block)))
    received = call.q.new_zeros((B, Hq, parts, Lk), dtype=torch.float32)
    if B * Hq * Lq:
        tables = tile_table(call, block)
        sink = call.q if call.sink is None else call.sink.detach().contiguous()
        passed = lse.detach().float().contiguous()
        _kernel[(B * Hq * parts,)](
            *rows, received, passed, sink, parts, resolved, misfit, *inputs(call, tables.rows, tables.entries),
            **constants(call, "q", block),
        )  # fmt: skip
    return rows, received.sum(2)


@triton.jit
def _kernel(
    peak_to, base_to, log_to, lse_to, mass_to, entropy_to, received_to, passed, sink, parts, resolved, misfit,
    q, k, weight, bias, tiles, places, counts, entries, Hq, groups, Lq, Lk, D, factor, softcap,
    q_sample, q_head, q_row, q_feature, k_sample, k_head, k_row, k_feature,
    bias_sample, bias_head, bias_row, bias_column, tile_sample, tile_head, tile_run, tile_next,
    count_sample, count_head, count_run,
    ADDITIVE: tl.constexpr, HAS_BIAS: tl.constexpr, HAS_CAP: tl.constexpr, HAS_SINK: tl.constexpr, HELD: tl.constexpr,
    BLOCK: tl.constexpr, WIDTH: tl.constexpr, WIDEN: tl.constexpr,
):  # fmt: skip
    """One program: every one of `parts` runs of BLOCK rows of one head, and what the keys receive of these rows."""
    head, b, h, part = place_of(parts, Hq)
    q += b * q_sample + h * q_head
    k += b * k_sample + h // groups * k_head
    weight += h * D
    bias += b * bias_sample + h * bias_head
    received_to += (head * parts + part) * Lk
    for run in range(part, tl.cdiv(Lq, BLOCK), parts):
        of_tiles, of_places, mixed, visited = visited_tiles(
            tiles, places, counts, b, h, run, tile_sample, tile_head, tile_run, count_sample, count_head, count_run
        )
        i = run * BLOCK
        row = i + tl.arange(0, BLOCK)
        at, inside = head * Lq + row, row < Lq
        loaded = i
        if HELD == "q":
            loaded = load_rows(q, i, Lq, q_row, q_feature, 0, D, BLOCK, WIDTH)
        lse = tl.load(passed + at, mask=inside, other=0.0)
        # no softmax has an lse of +inf; a row without keys may
        lse = tl.where(lse == float("inf"), float("nan"), lse)
        base = tl.where(lse == float("-inf"), 0.0, lse)
        log = tl.zeros((BLOCK,), tl.float32)
        is_blurred = tl.abs(base) > resolved
        if tl.max(is_blurred.to(tl.int32), 0) > 0:
            top, total, _ = row_sums(
                q, k, weight, bias, loaded, entries, of_tiles, of_places, mixed, visited, i, Lq, Lk, D, factor, softcap,
                q_row, q_feature, k_row, k_feature, bias_row, bias_column, tile_next,
                HELD, ADDITIVE, HAS_BIAS, HAS_CAP, BLOCK, WIDTH, WIDEN,
            )  # fmt: skip
            of_base, of_log, of_lse = log_sums(top, total, sink + h, HAS_SINK)
            is_new = is_blurred & (tl.abs(of_lse - lse) <= misfit * tl.abs(of_lse))
            base, log = tl.where(is_new, of_base, base), tl.where(is_new, of_log, log)
            lse = tl.where(is_new, of_lse, lse)
        top = tl.full((BLOCK,), float("-inf"), tl.float32)
        mass, slope = tl.zeros((BLOCK,), tl.float32), tl.zeros((BLOCK,), tl.float32)
        for n in range(mixed):
            j, place = tl.load(of_tiles + n * tile_next) * BLOCK, tl.load(of_places + n * tile_next)
            t, may_attend = tile_scores(
                q, k, weight, bias, loaded, entries, place, i, j, Lq, Lk, D, factor, softcap, q_row, q_feature, k_row,
                k_feature, bias_row, bias_column, HELD, True, ADDITIVE, HAS_BIAS, HAS_CAP, BLOCK, WIDTH, WIDEN,
            )  # fmt: skip
            top, mass, slope = _with_tile(t, may_attend, base, log, top, mass, slope, received_to, j, Lk, BLOCK)
        for n in range(mixed, visited):
            j = tl.load(of_tiles + n * tile_next) * BLOCK
            t, may_attend = tile_scores(
                q, k, weight, bias, loaded, entries, j, i, j, Lq, Lk, D, factor, softcap, q_row, q_feature, k_row,
                k_feature, bias_row, bias_column, HELD, False, ADDITIVE, HAS_BIAS, HAS_CAP, BLOCK, WIDTH, WIDEN,
            )  # fmt: skip
            top, mass, slope = _with_tile(t, may_attend, base, log, top, mass, slope, received_to, j, Lk, BLOCK)
        is_empty = (top == float("-inf")) & (mass == 0.0)
        nothing = float("-inf")
        if HAS_SINK:
            nothing = tl.load(sink + h).to(tl.float32)
        # a row of NaN: the maximum of a device passes over it
        tl.store(peak_to + at, tl.where((mass != mass) & (top < float("inf")), mass, top), mask=inside)
        tl.store(base_to + at, tl.where(is_empty, nothing, base), mask=inside)
        tl.store(log_to + at, tl.where(is_empty, 0.0, log), mask=inside)
        tl.store(lse_to + at, tl.where(is_empty, nothing, lse), mask=inside)
        tl.store(mass_to + at, mass, mask=inside)
        tl.store(entropy_to + at, -slope, mask=inside)


@triton.jit
def _with_tile(t, may_attend, base, log, top, mass, slope, received_to, j, Lk, BLOCK: tl.constexpr):
    """The largest score, the sum of p and that of p log p with one tile more, whose columns' sums are added up too."""
    logarithms = t - base[:, None] - log[:, None]
    # on a row of NaN too, a pair that may not attend adds nothing
    p = tl.where(may_attend, tl.exp(logarithms), 0.0)
    products = p * tl.where(logarithms == float("-inf"), 0.0, logarithms)
    column = j + tl.arange(0, BLOCK)
    # no other program adds here, so that the same call gives the same bits
    tl.atomic_add(received_to + column, tl.sum(p, 0), mask=column < Lk, sem="relaxed")
    slope += tl.sum(tl.where(may_attend, products, 0.0), 1)
    return tl.maximum(top, tl.max(t, 1)), mass + tl.sum(p, 1), slope
