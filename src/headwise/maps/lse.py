"""Lse: the log-sum-exp of a map's rows, whatever convention a kernel gave it in, and whether it fits."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from headwise.errors import ArgumentError, ShapeError
from headwise.maps import blocks
from headwise.maps.recompute import Reading, differentiable
from headwise.maps.scan import finite, rows_without_keys
from headwise.maps.strips import strips
from headwise.ops.call import Call

# rows of each head that `deviation` computes
SAMPLED = 16


def natural_lse(lse: Tensor, *, base: float = 2.0) -> Tensor:
    """A log-sum-exp to another base as a natural one, of the same shape; FlashInfer's kernels give base 2.

    >>> import torch
    >>> natural_lse(torch.tensor([3.0]), base=2).exp()
    tensor([8.])
    """
    if not base > 0 or base == 1 or not math.isfinite(base):
        raise ArgumentError(f"base= is that of a logarithm, so it must be greater than 0 and not 1; got {base}")
    return lse * math.log(base)


def normalized(call: Call, lse: Tensor) -> Tensor:
    """A kernel's lse (B, Hq, Lq) in the dtype of the map; kernels give 0.0, -inf or +inf on rows without a key.

    -inf on such rows, or the sink's logit; NaN on any other row where it is +inf, which no softmax has.
    """
    dtype = torch.promote_types(call.q.dtype, torch.float32)
    natural = lse.detach().to(dtype)
    if call.sizes.Lk == 0:
        natural = torch.full_like(natural, float("-inf"))
    natural = natural.masked_fill(natural.isposinf(), float("nan"))
    without = rows_without_keys(call)
    if without is None:
        return natural.clone()
    nothing = natural.new_tensor(float("-inf")) if call.sink is None else call.sink.detach().to(dtype)[:, None]
    return torch.where(without, nothing, natural)


def differentiable_lse(call: Call, known: Tensor) -> Tensor:
    """The lse of a call whose value is known, with the gradient that the log-sum-exp of its scores has."""
    reading = Reading(
        values=lambda: (known.clone(),),
        strips=lambda whole: strips(whole),
        of=lambda part, strip: (_of_rows(part),),
        cut=lambda gradients, strip: tuple(None if g is None else strip.of_rows(g) for g in gradients),
    )
    return differentiable(call, reading)[0]


def _of_rows(part: Call) -> Tensor:
    """The lse of a block that holds whole rows."""
    logits = blocks.logits(part)
    if part.sink is not None:
        column = part.sink.to(logits.dtype)[None, :, None, None].expand(*logits.shape[:-1], 1)
        logits = torch.cat([logits, column], dim=-1)
    return torch.logsumexp(logits, dim=-1)


def check_lse(lse: Tensor, call: Call) -> None:
    """Raise unless an lse has one number for each row of a call."""
    B, Hq, Lq, _ = call.sizes
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


def deviation(call: Call, lse: Tensor) -> float:
    """The largest distance of a sampled row's sum, the sink's share in it, from 1; 0.0 of a map without rows."""
    B, Hq, Lq, _ = call.sizes
    if 0 in (B, Hq, Lq):
        return 0.0
    worst = lse.new_zeros(())
    for row in torch.linspace(0, Lq - 1, min(SAMPLED, Lq)).long().tolist():
        part, base = call.part(slice(row, row + 1)), lse[:, :, row]
        total = blocks.weights(part, base[..., None]).sum(-1)[..., 0]
        if call.sink is not None:
            total = total + (call.sink.to(lse.dtype) - finite(base)).exp()
        is_empty = base.isneginf() & (total == 0)
        # not torch.maximum of finite numbers only: NaN fits nothing
        worst = torch.maximum(worst, (total - 1).abs().masked_fill(is_empty, 0.0).amax())
    return float(worst)
