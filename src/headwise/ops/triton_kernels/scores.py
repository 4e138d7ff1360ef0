"""Scores of one tile inside a kernel: q·k or weightᵀ tanh(q + k), softcap, bias, mask."""

# what triton compiles has its types by the call
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"

from __future__ import annotations

import triton
import triton.language as tl
from triton.runtime.interpreter import InterpretedFunction


@triton.jit
def tanh(x):
    """tanh to a few roundings: a series near 0, where the quotient of exponentials has lost its digits."""
    # Abramowitz and Stegun 1964, 4.5.64
    square = x * x
    series = x + x * square * (-1 / 3 + square * (2 / 15 + square * (-17 / 315 + square * (62 / 2835))))
    # of -2|x|, so that it does not overflow
    power = tl.exp(-2.0 * tl.abs(x))
    quotient = (1.0 - power) / (1.0 + power)
    return tl.where(square < 0.0625, series, tl.where(x < 0, -quotient, quotient))


# interpreted kernels run on the CPU, where dot products of bfloat16 are wrong: there they are widened
INTERPRETED = isinstance(tanh, InterpretedFunction)


@triton.jit
def place_of(runs, Hq):
    """Which of all heads this program serves, its sample, its place among the sample's heads, and which of its runs."""
    head, run = (tl.program_id(0) // runs).to(tl.int64), tl.program_id(0) % runs
    return head, head // Hq, head % Hq, run


@triton.jit
def visited_tiles(
    tiles, places, counts, b, h, run, tile_sample, tile_head, tile_run, count_sample, count_head, count_run
):
    """Where the tiles of a run and the places of their entries begin, how many are mixed, and how many are visited."""
    skipped = b * tile_sample + h * tile_head + run * tile_run
    counts += b * count_sample + h * count_head + run * count_run
    return tiles + skipped, places + skipped, tl.load(counts), tl.load(counts + 1)


@triton.jit
def load_rows(x, start, length, stride, feature_stride, first, D, BLOCK: tl.constexpr, WIDTH: tl.constexpr):
    """Rows and features of x (length, D), from `start` and `first` on, zeros outside: (BLOCK, WIDTH)."""
    row = tl.arange(0, BLOCK)
    feature = first + tl.arange(0, WIDTH)
    at = x + start.to(tl.int64) * stride + row[:, None] * stride + feature[None, :] * feature_stride
    return tl.load(at, mask=(start + row < length)[:, None] & (feature < D)[None, :], other=0.0)


@triton.jit
def load_feature(x, start, length, stride, BLOCK: tl.constexpr):
    """One feature of the rows from `start` on, in float32, zeros outside: (BLOCK,)."""
    row = tl.arange(0, BLOCK)
    return tl.load(x + start.to(tl.int64) * stride + row * stride, mask=start + row < length, other=0.0).to(tl.float32)


@triton.jit
def product(a, b, WIDEN: tl.constexpr):
    """a @ b, summed in float32; of float32 without rounding it to TF32."""
    if WIDEN:
        return tl.dot(a.to(tl.float32), b.to(tl.float32), input_precision="ieee")
    return tl.dot(a, b, input_precision="ieee")


@triton.jit
def dot_scores(
    q, k, held, i, j, Lq, Lk, D, q_row, q_feature, k_row, k_feature,
    HELD: tl.constexpr, BLOCK: tl.constexpr, WIDTH: tl.constexpr, WIDEN: tl.constexpr,
):  # fmt: skip
    """q·k of the rows from i and the columns from j on, (BLOCK, BLOCK)."""
    if HELD == "q":
        t = product(held, tl.trans(load_rows(k, j, Lk, k_row, k_feature, 0, D, BLOCK, WIDTH)), WIDEN)
    elif HELD == "k":
        t = product(load_rows(q, i, Lq, q_row, q_feature, 0, D, BLOCK, WIDTH), tl.trans(held), WIDEN)
    else:
        t = tl.zeros((BLOCK, BLOCK), tl.float32)
        for first in range(0, D, WIDTH):
            rows = load_rows(q, i, Lq, q_row, q_feature, first, D, BLOCK, WIDTH)
            columns = load_rows(k, j, Lk, k_row, k_feature, first, D, BLOCK, WIDTH)
            t += product(rows, tl.trans(columns), WIDEN)
    return t


@triton.jit
def additive_scores(
    q, k, weight, i, j, Lq, Lk, D, q_row, q_feature, k_row, k_feature, BLOCK: tl.constexpr
):  # fmt: skip
    """weightᵀ tanh(q + k) of the rows from i and the columns from j on, (BLOCK, BLOCK)."""
    t = tl.zeros((BLOCK, BLOCK), tl.float32)
    for d in range(D):
        row = load_feature(q + d * q_feature, i, Lq, q_row, BLOCK)
        column = load_feature(k + d * k_feature, j, Lk, k_row, BLOCK)
        t += tl.load(weight + d).to(tl.float32) * tanh(row[:, None] + column[None, :])
    return t


@triton.jit
def open_pairs(entries, place, i, j, Lq, Lk, MASKED: tl.constexpr, BLOCK: tl.constexpr):
    """Which pairs of a tile may attend: within the map, and by the packed tile `place` where it is mixed."""
    row, column = tl.arange(0, BLOCK), tl.arange(0, BLOCK)
    inside = (i + row < Lq)[:, None] & (j + column < Lk)[None, :]
    if MASKED:
        at = entries + place.to(tl.int64) * BLOCK * BLOCK + row[:, None] * BLOCK + column[None, :]
        inside = inside & (tl.load(at) != 0)
    return inside


@triton.jit
def tile_scores(
    q, k, weight, bias, held, entries, place, i, j, Lq, Lk, D, factor, softcap,
    q_row, q_feature, k_row, k_feature, bias_row, bias_column,
    HELD: tl.constexpr, MASKED: tl.constexpr, ADDITIVE: tl.constexpr, HAS_BIAS: tl.constexpr, HAS_CAP: tl.constexpr,
    BLOCK: tl.constexpr, WIDTH: tl.constexpr, WIDEN: tl.constexpr,
):  # fmt: skip
    """The scores of one tile, -inf where a pair may not attend, and which may: both (BLOCK, BLOCK).

    q, k, weight and bias: those of one sample and head. held: the rows of q or of k, whichever HELD names, loaded
    before the loop; HELD "": neither, they are too wide. i, j: the first row and column. factor: what q·k is multiplied
    by, divided by the softcap.
    """
    may_attend = open_pairs(entries, place, i, j, Lq, Lk, MASKED, BLOCK)
    if ADDITIVE:
        t = additive_scores(q, k, weight, i, j, Lq, Lk, D, q_row, q_feature, k_row, k_feature, BLOCK)
    else:
        t = dot_scores(q, k, held, i, j, Lq, Lk, D, q_row, q_feature, k_row, k_feature, HELD, BLOCK, WIDTH, WIDEN)
    t *= factor
    if HAS_CAP:
        t = softcap * tanh(t)
    if HAS_BIAS:
        row, column = tl.arange(0, BLOCK), tl.arange(0, BLOCK)
        at = bias + i.to(tl.int64) * bias_row + j.to(tl.int64) * bias_column
        inside = (i + row < Lq)[:, None] & (j + column < Lk)[None, :]
        added = tl.load(at + row[:, None] * bias_row + column[None, :] * bias_column, mask=inside, other=0.0)
        added = added.to(tl.float32)
        may_attend = may_attend & (added != float("-inf"))
        t += added
    return tl.where(may_attend, t, float("-inf")), may_attend
