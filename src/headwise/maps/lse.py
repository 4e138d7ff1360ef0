"""Lse: the log-sum-exp of a map's rows, whatever convention a kernel gave it in, and whether it fits."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from headwise.errors import ArgumentError, ShapeError
from headwise.maps import blocks
from headwise.maps.logsum import LogSum, of_logits
from headwise.maps.recomputation import Recomputable, differentiable, of_rows
from headwise.maps.scan import log_sums, rows_without_keys
from headwise.maps.score_tiles import Region
from headwise.maps.strips import strips
from headwise.masks.leaves import values_are_at_hand
from headwise.ops import reference
from headwise.ops.call import Call

# rows of each head that `deviation` computes
SAMPLED = 16
# the largest lse whose rounding leaves the weights alone, in roundings of float32: 256
RESOLVED = 2.0**-15
# how many roundings apart the lse of a kernel and of this map may be and still be of one row
MISFIT = 64


def natural_lse(lse: Tensor, *, base: float = 2.0) -> Tensor:
    """A log-sum-exp to another base as a natural one, of the same shape; FlashInfer's kernels give base 2.

    >>> import torch
    >>> natural_lse(torch.tensor([3.0]), base=2).exp()
    tensor([8.])
    """
    if not isinstance(lse, Tensor):
        raise ArgumentError(f"lse must be a tensor, but {type(lse).__name__} came: pass what the kernel gave")
    if not base > 0 or base == 1 or not math.isfinite(base):
        raise ArgumentError(f"base= is that of a logarithm, so it must be greater than 0 and not 1; got {base}")
    return lse * math.log(base)


def normalized(call: Call, lse: Tensor) -> LogSum:
    """The log-sums that a kernel's lse (B, Hq, Lq) stands for; kernels give 0.0, -inf or +inf on rows without a key.

    On such rows -inf, or the sink's logit; NaN on any other row where it is +inf, which no softmax has. A row whose lse
    is so large that its own rounding would show in the weights is computed anew, if the lse fits it at all.
    """
    dtype = torch.promote_types(call.q.dtype, torch.float32)
    natural = lse.detach().to(dtype)
    if call.sizes.Lk == 0:
        natural = torch.full_like(natural, float("-inf"))
    natural = natural.masked_fill(natural.isposinf(), float("nan"))
    without = rows_without_keys(call)
    if without is not None:
        nothing = natural.new_tensor(float("-inf")) if call.sink is None else call.sink.detach().to(dtype)[:, None]
        natural = torch.where(without, nothing, natural)
    passed = LogSum(natural.clone(), torch.zeros_like(natural), natural)
    limits = rounding_limits(lse, dtype)
    blurred = natural.abs() > limits.resolved
    if without is not None:
        blurred &= ~without
    if values_are_at_hand(blurred) and not bool(blurred.any()):
        return passed
    return _sharpened(call, passed, blurred, limits.misfit)


class RoundingLimits(NamedTuple):
    """Which rows are computed anew: those with a larger lse than `resolved`, whose rounding would show in the weights.

    misfit: how far, times its size, such an lse may be from that of its row and still be taken for it.
    """

    resolved: float
    misfit: float


def rounding_limits(lse: Tensor, dtype: torch.dtype) -> RoundingLimits:
    """The limits of an lse that is given in its dtype and read in this one."""
    # a half has no more digits than float32 gives it
    step = max(torch.finfo(lse.dtype).eps, torch.finfo(dtype).eps)
    return RoundingLimits(RESOLVED / min(step, torch.finfo(torch.float32).eps), MISFIT * step)


def _sharpened(call: Call, passed: LogSum, blurred: Tensor, rounding: float) -> LogSum:
    """The log-sums that were passed, with these rows computed anew; where those passed do not fit, they stay.

    Which rows these are is not read from a device: there all are computed.
    """
    region = None
    if values_are_at_hand(blurred):
        places = blurred.nonzero()
        runs = (slice(int(least), int(most) + 1) for least, most in zip(places.amin(0), places.amax(0), strict=True))
        region = Region(*runs)
    computed = log_sums(call, region).sums
    is_new = blurred & ((computed.lse - passed.lse).abs() <= rounding * computed.lse.abs())
    return LogSum(*(torch.where(is_new, new, old) for new, old in zip(computed, passed, strict=True)))


def differentiable_sums(call: Call, values: Callable[[], LogSum], region: Region | None = None) -> LogSum:
    """The log-sums of a call whose values are known, with the derivative that the log-sum-exp of its scores has.

    region: the rows that are wanted; None: all.
    """
    reading = Recomputable(
        values=lambda: tuple(t.clone() for t in values()),
        shapes=(call.sizes[:3],) * 3,
        strips=lambda whole: strips(whole, region=region),
        of=lambda part, strip: of_logits(blocks.logits(part), part.sink),
        cut=of_rows,
    )
    return LogSum(*differentiable(call, reading))


def check_lse(lse: Tensor, call: Call) -> None:
    """Raise unless an lse has one number for each row of a call."""
    B, Hq, Lq, _ = call.sizes
    if not isinstance(lse, Tensor):
        raise ArgumentError(
            f"lse must be a tensor (B={B}, Hq={Hq}, Lq={Lq}), one number a row, or None, but {type(lse).__name__} "
            "came: pass what the kernel gave"
        )
    if lse.shape != (B, Hq, Lq):
        raise ShapeError(
            f"lse must be (B={B}, Hq={Hq}, Lq={Lq}), one number a row, but came as {tuple(lse.shape)}: cut off what a "
            "kernel has added to its last axis, and put the heads before the rows"
        )
    if not lse.is_floating_point() or lse.device != call.q.device:
        raise ArgumentError(
            f"lse must be floating and on the device of q, {call.q.device}, but came as {lse.dtype} on {lse.device}: "
            "move it with .to()"
        )


def deviation(call: Call, sums: LogSum) -> float:
    """The largest distance of a sampled row's sum, the sink's share in it, from 1; 0.0 of a map without pairs."""
    Lq = call.sizes.Lq
    if 0 in call.sizes:
        return 0.0
    worst = sums.base.new_zeros(())
    for row in torch.linspace(0, Lq - 1, min(SAMPLED, Lq)).long().tolist():
        rows = slice(row, row + 1)
        part, part_sums = call.part(rows), sums.of(slice(None), slice(None), rows)
        total = blocks.weights(part, part_sums).sum(-1)
        if call.sink is not None:
            total = total + part_sums.beside(call.sink.to(total.dtype)[:, None, None])[..., 0].exp()
        open_ = reference.open_pairs(part)
        is_empty = (total == 0) & (False if open_ is None else ~open_.any(-1))
        # not torch.maximum of finite numbers only: NaN fits nothing
        worst = torch.maximum(worst, (total - 1).abs().masked_fill(is_empty, 0.0).amax())
    return float(worst)
