"""Recompute: readings of a map whose gradients are computed anew, strip by strip, in O(L) memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from headwise.maps.strips import Strip
from headwise.ops.call import Call

LEAVES = ("q", "k", "attn_bias", "sink", "weight")


@dataclass(frozen=True)
class Reading:
    """Results of a map: how to compute them at once, and the same from a strip of it by differentiable steps.

    values: all of them, without gradients. strips: blocks that cover the map. of: the results that a strip alone
    gives. cut: for each result, the part of its gradient that a strip's result has.
    """

    values: Callable[[], tuple[Tensor, ...]]
    strips: Callable[[Call], Sequence[Strip]]
    of: Callable[[Call, Strip], tuple[Tensor, ...]]
    cut: Callable[[tuple[Tensor | None, ...], Strip], tuple[Tensor | None, ...]]


def differentiable(call: Call, reading: Reading) -> tuple[Tensor, ...]:
    """The values of a reading, joined to the gradients of the call's q, k, attn_bias, sink and weight."""
    results: tuple[Tensor, ...] = Recomputed.apply(reading, call, *(getattr(call, name) for name in LEAVES))  # type: ignore[no-untyped-call]
    return results


class Recomputed(torch.autograd.Function):
    """Runs a reading; its gradient runs each strip again."""

    @staticmethod
    def forward(ctx: Any, reading: Reading, call: Call, *leaves: Tensor | None) -> tuple[Tensor, ...]:
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*leaves)
        ctx.reading, ctx.call = reading, replace(call, q=call.q.detach(), k=call.k.detach(), v=call.k.detach())
        return reading.values()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        leaves = dict(zip(LEAVES, ctx.saved_tensors, strict=True))
        kind = leaves["q"].device.type
        with torch.autocast(kind, enabled=False):
            if torch.is_grad_enabled():
                found = _graph(ctx.reading, ctx.call, leaves, gradients)
            else:
                found = _streamed(ctx.reading, ctx.call, leaves, gradients)
        return None, None, *(found.get(name) for name in LEAVES)


Leaves = dict[str, Tensor | None]
Gradients = tuple[Tensor | None, ...]


def _streamed(reading: Reading, call: Call, leaves: Leaves, gradients: Gradients) -> dict[str, Tensor]:
    """The gradient of each leaf that wants one, summed over strips."""
    wanted = {name: t for name, t in leaves.items() if t is not None and t.requires_grad}
    whole = _with(call, {name: None if t is None else t.detach() for name, t in leaves.items()})
    sums = {name: torch.zeros_like(t, dtype=torch.promote_types(t.dtype, torch.float32)) for name, t in wanted.items()}
    # cut like the call itself, so that each strip finds its own part of the sums; what needs no sum stays as it is
    target = _with(replace(whole, mask=None), {name: sums.get(name, getattr(whole, name)) for name in LEAVES})
    for strip in reading.strips(whole):
        part = strip.part(whole)
        # wide, so that gradients in half precision are rounded once, when all are summed
        fresh = {name: getattr(part, name).to(sums[name].dtype).detach().requires_grad_() for name in wanted}
        with torch.enable_grad():
            alone = _with(part, {name: fresh.get(name, getattr(part, name)) for name in LEAVES})
            pairs = _pairs(reading, alone, strip, gradients)
            found = torch.autograd.grad(
                [r for r, _ in pairs], list(fresh.values()), [g for _, g in pairs], allow_unused=True
            )
        places = strip.part(target)
        for name, gradient in zip(fresh, found, strict=True):
            if gradient is not None:
                getattr(places, name).add_(gradient)
    return {name: total.to(wanted[name].dtype) for name, total in sums.items()}


def _graph(reading: Reading, call: Call, leaves: Leaves, gradients: Gradients) -> dict[str, Tensor]:
    """The same with a graph of its own, for a second derivative: this holds the whole map."""
    # views: leaves may come from one another, and a gradient ends where it is asked for
    views: Leaves = {name: None if t is None else t.view_as(t) for name, t in leaves.items()}
    whole = _with(call, views)
    wanted = {name: t for name, t in views.items() if t is not None and t.requires_grad}
    pairs = [pair for strip in reading.strips(whole) for pair in _pairs(reading, strip.part(whole), strip, gradients)]
    found = torch.autograd.grad(
        [r for r, _ in pairs], list(wanted.values()), [g for _, g in pairs], create_graph=True, allow_unused=True
    )
    return {name: g for name, g in zip(wanted, found, strict=True) if g is not None}


def _pairs(reading: Reading, part: Call, strip: Strip, gradients: Gradients) -> list[tuple[Tensor, Tensor]]:
    """Each result of a strip with its part of the gradient, where there is one."""
    cuts = reading.cut(gradients, strip)
    return [(r, g) for r, g in zip(reading.of(part, strip), cuts, strict=True) if g is not None]


def _with(call: Call, tensors: Leaves) -> Call:
    """The call with other tensors in these fields."""
    return replace(call, **tensors, v=tensors["k"], prepared={})  # type: ignore[arg-type]  # q and k are never None
