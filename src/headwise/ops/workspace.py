"""Workspace: the tensors of a call as a kernel of strips reads them, and the room that its strips share."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

from headwise.masks import Mask
from headwise.masks.coordinates import Grid
from headwise.ops.call import Call, block_of
from headwise.ops.segments import Segments
from headwise.ops.strips import BLOCK, Runs, Strip


@dataclass(eq=False)
class Workspace:
    """A call, its tensors in the dtype of the products, and buffers by name.

    q (B, Hk, groups, Lq, D), k (B, Hk, Lk, D), v (B, Hk, Lk, Dv). closed: whether the bias holds -inf, which hides a
    pair as a mask does. noisy: whether it holds NaN, which a hidden pair must not show. is_fused: whether torch's own
    kernel computes the strips exactly. most: the scores of the largest strip.
    """

    call: Call
    q: Tensor
    k: Tensor | Segments
    v: Tensor | Segments
    closed: bool
    noisy: bool
    is_fused: bool
    most: int
    buffers: dict[str, Tensor] = field(default_factory=dict)

    @staticmethod
    def of(call: Call, strips: Iterable[Strip], *, is_dropped: bool = False) -> Workspace:
        """The workspace of a checked call and its strips; what is computed in it has no graph."""
        dtype, wants_torch = product_dtype(call), fits_torch(call, is_dropped=is_dropped)
        # each is one pass over O(L) numbers, made only where it is asked for
        is_clean = (call.mask is not None or wants_torch) and is_finite(call.k) and is_finite(call.v)
        k, v = (call.k, call.v) if call.mask is None or is_clean else _without_noise(call)
        is_fused = wants_torch and is_finite(call.q) and (is_clean or (is_finite(k) and is_finite(v)))
        # samples computed together are flattened strip by strip, which copies what is not contiguous
        q, k, v = (t.to(dtype) if t.shape[0] == 1 else t.to(dtype).contiguous() for t in (call.q, k, v))
        closed, noisy = _oddities(call.attn_bias)
        q = q.unflatten(1, (call.k.shape[1], call.groups))
        # one column more, for a sink beside the scores, and whole words of 64 bits, for what dropout draws
        most = max((strip.shape[0] * strip.shape[1] * (strip.shape[2] + 1) for strip in strips), default=0)
        most = -(-most // 4) * 4
        return Workspace(call, q, k, v, closed, noisy, is_fused, most)

    @cached_property
    def grid(self) -> Grid:
        """Every place of the map, to ask the mask about."""
        return Grid.whole(self.call.sizes, self.call.q.device)

    def buffer(self, name: str, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """Room of this shape, whose values are those of whoever used it last."""
        if name not in self.buffers:
            # as large as any strip needs it: fresh memory costs more than the arithmetic done in it
            self.buffers[name] = torch.empty(self.most, dtype=dtype, device=self.q.device)
        return self.buffers[name][: math.prod(shape)].view(shape)

    def open_pairs(self, at: Strip) -> Tensor | None:
        """Which pairs of the columns that `asked` names may attend: bool (b|1, h|1, rows, columns); None: all."""
        call, columns = self.call, self.asked(at)
        if not columns:
            return None
        by_mask = (
            None if call.mask is None or not at.mixed else open_pairs(call.mask, self.grid, at, columns, call.groups)
        )
        if not self.closed or call.attn_bias is None:
            return by_mask
        where = (at.samples, at.heads(call.groups), at.rows)
        by_bias = [~block_of(call.attn_bias, (*where, run)).isneginf() for run in columns]
        rows = at.rows.stop - at.rows.start
        parts = [t.expand(*t.shape[:2], rows, run.stop - run.start) for t, run in zip(by_bias, columns, strict=True)]
        open_by_bias = torch.cat(parts, dim=-1)
        return open_by_bias if by_mask is None else by_mask & open_by_bias

    def asked(self, at: Strip) -> Runs:
        """The columns of a strip whose pairs may be hidden."""
        return at.columns if self.closed else at.mixed


@dataclass(eq=False)
class Gradients:
    """The gradients that are wanted, as they are summed up; None: not wanted.

    q (B, Hk, groups, Lq, D), k (B, Hk, Lk, D), v (B, Hk, Lk, Dv), weight (Hq, D), attn_bias with four axes, sink (Hq,).
    """

    q: Tensor | None = None
    k: Tensor | Segments | None = None
    v: Tensor | Segments | None = None
    weight: Tensor | None = None
    attn_bias: Tensor | None = None
    sink: Tensor | None = None

    @property
    def of_scores(self) -> bool:
        """Whether any gradient passes through the scores."""
        return any(t is not None for t in (self.q, self.k, self.weight, self.attn_bias, self.sink))


def open_pairs(mask: Mask, grid: Grid, at: Strip, columns: Runs, groups: int) -> Tensor:
    """Which pairs of a strip's rows and these columns a mask allows: bool (b|1, h|1, rows, columns)."""
    heads, rows = at.heads(groups), at.rows.stop - at.rows.start
    parts = []
    for run in columns:
        allowed = mask.allows(grid.part(at.rows, run, samples=at.samples, heads=heads))
        parts.append(allowed.expand(*allowed.shape[:2], rows, run.stop - run.start))
    if len(parts) == 1:
        return parts[0]
    # torch.broadcast_shapes brings sympy, which takes a second to import
    shape = torch.broadcast_tensors(*(part.new_empty(part.shape[:2]) for part in parts))[0].shape
    return torch.cat([part.expand(*shape, *part.shape[2:]) for part in parts], dim=-1)


def without_empty(allowed: Tensor | None, at: Strip, asked: Runs) -> tuple[Tensor | None, Tensor | None]:
    """The pairs with every row that sees nothing open, and those rows (b|1, h|1, rows, 1); None: there is none.

    Such a row is computed as if it saw all, and zeroed at the end: a softmax of nothing is NaN.
    """
    if allowed is None or sum(run.stop - run.start for run in asked) != at.width:
        return allowed, None
    empty = ~allowed.any(dim=-1, keepdim=True)
    return (allowed | empty, empty) if bool(empty.any()) else (allowed, None)


def product_dtype(call: Call) -> torch.dtype:
    """The dtype of the matrix products: bfloat16 where this machine multiplies it fast, float32 for other halves.

    float16 products of torch 2.13 on a CPU without float16 instructions are 17 times slower than float32's.
    """
    dtype = call.q.dtype
    if call.weight is None and dtype is torch.bfloat16 and multiplies_bfloat16():
        return dtype
    return torch.promote_types(dtype, torch.float32)


def score_dtype(call: Call) -> torch.dtype:
    """The dtype of the scores: that of the products, or float32 where a bias, a cap or a sink is to be exact."""
    dtype = product_dtype(call)
    if call.attn_bias is None and call.softcap is None and call.sink is None and call.weight is None:
        return dtype
    return torch.promote_types(dtype, torch.float32)


def multiplies_bfloat16() -> bool:
    """Whether this machine, and torch as it is built for it, multiplies bfloat16 as such."""
    return torch.backends.mkldnn.is_available() and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def fits_torch(call: Call, *, is_dropped: bool) -> bool:
    """Whether torch's fused kernel has all the rules of a call; of bfloat16 products, strips make more."""
    rules = (call.weight, call.attn_bias, call.softcap, call.sink)
    is_plain = not is_dropped and all(rule is None for rule in rules) and call.q.shape[-1] == call.v.shape[-1]
    return is_plain and product_dtype(call) in (torch.float32, torch.float64)


def _oddities(bias: Tensor | None) -> tuple[bool, bool]:
    """Whether a bias holds -inf, and NaN; found in one pass where it holds neither."""
    if bias is None or not bias.numel():
        return False, False
    lowest = float(bias.detach().amin())
    if math.isfinite(lowest):
        return False, False
    return bool(bias.isneginf().any()), math.isnan(lowest)


def is_finite(t: Tensor) -> bool:
    """Whether a tensor holds no NaN and no inf; False too where its sum overflows."""
    return math.isfinite(float(t.sum(dtype=torch.float32 if t.dtype is torch.float16 else None)))


def _without_noise(call: Call) -> tuple[Tensor, Tensor]:
    """k and v with zeros at keys hidden from every query."""
    k, v = call.k, call.v
    if call.mask is None:
        return k, v
    B, Hq, Lq, Lk = call.sizes
    grid = Grid.whole(call.sizes, call.q.device)
    may_attend = torch.zeros(B, Hq, Lk, dtype=torch.bool, device=k.device)
    for start in range(0, Lq, BLOCK):
        may_attend |= call.mask.allows(grid.part(slice(start, min(start + BLOCK, Lq)), slice(None))).any(dim=2)
    hidden = ~may_attend.unflatten(1, (-1, call.groups)).any(dim=2)[..., None]
    return k.masked_fill(hidden, 0.0), v.masked_fill(hidden, 0.0)
