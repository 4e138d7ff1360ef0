"""Recomputation: statistics of a map whose gradients are computed anew, strip by strip, in O(L) memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from headwise.errors import ArgumentError
from headwise.maps.blocks import wants_gradient
from headwise.maps.score_tiles import wide_type
from headwise.maps.strips import MapStrip
from headwise.maps.transforms import in_torch_func
from headwise.ops.call import Call, transformed

LEAVES = ("q", "k", "attn_bias", "sink", "weight")


Of = Callable[[Call, MapStrip], tuple[Tensor, ...]]
Cut = Callable[[tuple[Tensor | None, ...], MapStrip], tuple[Tensor | None, ...]]


@dataclass(frozen=True)
class Recomputable:
    """Results of a map: how to compute them at once, and the same from a strip of it by differentiable steps.

    values: all of them, without gradients. shapes: of each result. strips: blocks that cover the map. of: the results
    that a strip alone gives. cut: for each result, the part of it, or of its gradient, that a strip's result is for.
    """

    values: Callable[[], tuple[Tensor, ...]]
    shapes: tuple[tuple[int, ...], ...]
    strips: Callable[[Call], Sequence[MapStrip]]
    of: Of
    cut: Cut


def differentiable(call: Call, reading: Recomputable) -> tuple[Tensor, ...]:
    """The values of a reading, joined to the derivatives of the call's q, k, attn_bias, sink and weight if wanted."""
    if transformed(call):
        with torch.autocast(call.q.device.type, enabled=False):
            return assembled(call, reading.strips(call), reading.of, reading.cut, reading.shapes)
    if not wants_gradient(call):
        return reading.values()
    results: tuple[Tensor, ...] = Recomputed.apply(reading, call, *(getattr(call, name) for name in LEAVES))  # type: ignore[no-untyped-call]
    return results


def assembled(
    call: Call, strips: Sequence[MapStrip], of: Of, cut: Cut, shapes: tuple[tuple[int, ...], ...]
) -> tuple[Tensor, ...]:
    """The results of all strips, each added where it belongs, by plain operations that every transform follows."""
    totals: tuple[Tensor, ...] = ()
    for strip in strips:
        results = of(strip.part(call), strip)
        # made from what it shall hold, so that in vmap it has room for all of it
        totals = totals or tuple(r.new_zeros(shape) for r, shape in zip(results, shapes, strict=True))
        for place, result in zip(cut(totals, strip), results, strict=True):
            if place is not None:
                place.add_(result)
    return totals or tuple(call.q.new_zeros(shape, dtype=wide_type(call)) for shape in shapes)


def of_rows(values: tuple[Tensor | None, ...], strip: MapStrip) -> tuple[Tensor | None, ...]:
    """The cut of results that have a number, or some, for each row."""
    return tuple(None if t is None else strip.of_rows(t) for t in values)


class Recomputed(torch.autograd.Function):
    """Runs a reading; its gradient runs each strip again."""

    @staticmethod
    def forward(ctx: Any, reading: Recomputable, call: Call, *leaves: Tensor | None) -> tuple[Tensor, ...]:
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*leaves)
        ctx.reading, ctx.call = reading, replace(call, q=call.q.detach(), k=call.k.detach(), v=call.k.detach())
        return reading.values()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        _refuse_batches(gradients)
        leaves = dict(zip(LEAVES, ctx.saved_tensors, strict=True))
        kind = leaves["q"].device.type
        with torch.autocast(kind, enabled=False):
            if torch.is_grad_enabled():
                found = _graph(ctx.reading, ctx.call, leaves, gradients)
            else:
                found = _streamed(ctx.reading, ctx.call, leaves, gradients)
        return None, None, *(found.get(name) for name in LEAVES)


def _refuse_batches(gradients: tuple[Tensor | None, ...]) -> None:
    """Raise where many gradients come as one, which sums that are kept outside have no room for."""
    if in_torch_func() or any(g is not None and torch._C._functorch.is_legacy_batchedtensor(g) for g in gradients):
        raise ArgumentError(
            "a map read outside torch.func takes one gradient at a time, but a batch of them came: hand them back one "
            "by one, or read the map inside torch.func.jacrev"
        )


Leaves = dict[str, Tensor | None]
Gradients = tuple[Tensor | None, ...]


def _streamed(reading: Recomputable, call: Call, leaves: Leaves, gradients: Gradients) -> dict[str, Tensor]:
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


def _graph(reading: Recomputable, call: Call, leaves: Leaves, gradients: Gradients) -> dict[str, Tensor]:
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


def _pairs(reading: Recomputable, part: Call, strip: MapStrip, gradients: Gradients) -> list[tuple[Tensor, Tensor]]:
    """Each result of a strip with its part of the gradient, where there is one."""
    cuts = reading.cut(gradients, strip)
    results = reading.of(part, strip)
    return [(r, g) for r, g in zip(results, cuts, strict=True) if g is not None and r.requires_grad]


def _with(call: Call, tensors: Leaves) -> Call:
    """The call with other tensors in these fields."""
    return replace(call, **tensors, v=tensors["k"], prepared={})  # type: ignore[arg-type]  # q and k are never None
