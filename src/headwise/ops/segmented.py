"""Attention by strips to keys and values that stand in several tensors, whose whole is never made."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise

from torch import Tensor

from headwise.masks import Mask
from headwise.ops import blockwise, kernel
from headwise.ops.call import Call
from headwise.ops.segments import Segments
from headwise.ops.strips import Strip, Strips, strips
from headwise.ops.workspace import Gradients, Workspace, is_finite

# each join of partial results rounds their log-sums
MOST_JOINED = 4


@dataclass(frozen=True, eq=False)
class SegmentedCall:
    """q (B, Hq, Lq, D), and k and v (B, Hk, Lk, D) in segments, of finite numbers, float32 or float64, on the CPU.

    mask: between them, None: no mask; scale: multiplies q·k, None: 1/sqrt(D). torch's kernel computes its strips.
    """

    q: Tensor
    k: Segments
    v: Segments
    mask: Mask | None
    scale: float | None

    def forward(self, out: Tensor, lse: Tensor) -> None:
        """Write the outputs (B, Hq, Lq, D) and their lse (B, Hq, Lq)."""
        room, groups = self._room(), self._groups
        for has_squares in (True, False):
            cut = self._strips(room.call, has_squares=has_squares)
            lse.fill_(-math.inf)
            if not cut.covers_rows(room.call.sizes):
                out.zero_()
            if _write(room, cut, out.unflatten(1, (-1, groups)), lse.unflatten(1, (-1, groups))):
                return

    def backward(self, gradient: Tensor, made: tuple[Tensor, Tensor], into: Gradients) -> None:
        """Add the gradients of q (B, Hq, Lq, D), k and v, given that of the outputs, these, and their lse.

        That of q is written. Those of k and v are too where their segments are fresh.
        """
        room, groups = self._room(), self._groups
        cut = self._strips(room.call, has_squares=kernel.joins_exactly(made[1]))
        if into.q is not None:
            if not cut.covers_rows(room.call.sizes):
                into.q.zero_()
            into = Gradients(q=into.q.unflatten(1, (-1, groups)), k=into.k, v=into.v)
        kept = kernel.ForwardOutputs(*(t.unflatten(1, (-1, groups)) for t in made))
        grouped = gradient.unflatten(1, (-1, groups))
        for number, strip in enumerate(cut):
            kernel.backward(room, None, number, strip, grouped, into, kept)

    def splits_columns(self, lse: Tensor) -> bool:
        """Whether backward, of outputs with this lse, adds to each column once."""
        call = self._room().call
        return self._strips(call, has_squares=kernel.joins_exactly(lse)).splits_columns(call.sizes, call.groups)

    @property
    def _groups(self) -> int:
        return self.q.shape[1] // self.k.parts[0].shape[1]

    def _strips(self, call: Call, *, has_squares: bool) -> Strips:
        # the kernel writes -inf before it scales, which a scale of 0 or less turns into NaN or inf
        has_squares = has_squares and call.multiplier > 0
        cut = strips(call.mask, call.sizes, call.groups, blockwise.FUSED._replace(spare=0), has_squares=has_squares)
        return Strips(part for strip in cut for part in self._by_segment(strip))

    def _by_segment(self, strip: Strip) -> list[Strip]:
        """What is before a causal square, which joins it anyway, as strips of one segment each, which is not copied."""
        if not strip.joins:
            return [strip]
        (run,) = strip.columns
        ends = accumulate(part.shape[2] for part in self.k.parts)
        bounds = [run.start, *(end for end in ends if run.start < end < run.stop), run.stop]
        if len(bounds) - 1 > MOST_JOINED:
            return [strip]
        return [replace(strip, columns=(slice(start, stop),)) for start, stop in pairwise(bounds)]

    def _room(self) -> Workspace:
        first = self.k.parts[0]
        # of the sizes of the whole, without its memory
        whole = first.new_empty(()).expand(*first.shape[:2], self.k.length, first.shape[3])
        call = Call(self.q, whole, whole, self.mask, scale=self.scale)
        q = self.q.unflatten(1, (-1, call.groups))
        return Workspace(call, q, self.k, self.v, False, False, True, 0)


def all_finite(*tensors: Tensor) -> bool:
    """Whether tensors hold no NaN and no inf; False too where a sum overflows."""
    return all(map(is_finite, tensors))


def _write(room: Workspace, cut: Strips, out: Tensor, lse: Tensor) -> bool:
    """Write outputs and lse by strips; False, and the rest is left out, where they cannot be joined exactly."""
    has_joins = any(strip.joins for strip in cut)
    for number, strip in enumerate(cut):
        kernel.forward(room, None, number, strip, out, lse)
        if has_joins and not kernel.joins_exactly(lse):
            return False
    return True
