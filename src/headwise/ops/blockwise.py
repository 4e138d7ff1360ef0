"""Attention by strips of rows on the CPU: pays for what a mask leaves, multiplies halves as halves, drops cheaply."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from headwise.masks.leaves import Allowed
from headwise.masks.tensor_versions import check_unchanged, versions
from headwise.ops import costs, kernel, reference
from headwise.ops.call import Call, transformed
from headwise.ops.dropout import Drops, SavedDrops, drawn_seed
from headwise.ops.segments import Segments
from headwise.ops.strips import Bounds, Strips, strips
from headwise.ops.workspace import Gradients, Workspace, fits_torch, score_dtype

# the tensors of a call that a gradient may flow to, in the order in which Tiled takes them
TENSORS = ("q", "k", "v", "weight", "attn_bias", "sink")

# the most bytes of scores held at once: small enough for the last cache, large enough to pay for the calls, and half as
# many where two key heads with all their queries fit in that; additive scores are made a few rows at a time, so that
# more of them at once gain nothing
BYTES, ADDITIVE_SCORES = 1 << 23, 1 << 18
# torch's fused kernel holds none of them, is fastest from 768 rows on, and shares heads among threads
# a call of it for another strip takes as long as so many pairs, measured with AVX2
FUSED = Bounds(most=1 << 24, rows=2048, fewest=128, spare=1 << 17)


def why_not(call: Call) -> str:
    """Why a call cannot be computed by strips; "" where it can."""
    if call.q.device.type != "cpu":
        return "strips are computed on the CPU only"
    return ""


def why_slower(call: Call) -> str:
    """Why "auto" does not compare strips with other backends, although they could run; "" where it does."""
    if torch.compiler.is_exporting():
        return "an exported program is to run where headwise is not"
    if transformed(call):
        return "a transform is computed by the definition anyway"
    if torch.compiler.is_compiling():
        return "while compiling sizes are open and no mask is read: strips run where they are named"
    if not costs.rules_of(call) and type(call.mask) is Allowed and 4 * call.mask.t.numel() > math.prod(call.sizes):
        return "to look for empty tiles in so large a mask would cost what it gains"
    return ""


def run(call: Call) -> Tensor:
    """The outputs of a checked call, (B, Hq, Lq, Dv)."""
    if torch.compiler.is_compiling():
        from headwise.ops import custom_ops

        return custom_ops.run(call)
    if transformed(call):
        # what has no rule for a transform is computed by the definition, which has
        return reference.run(call)
    seed = int(drawn_seed(call.generator, call.q.device)) if call.dropout else None
    return outputs(call, None if seed is None else Drops(call.dropout, seed))


def outputs(call: Call, drops: Drops | None) -> Tensor:
    """The outputs of a call with the drops of a seed."""
    tensors = [getattr(call, name) for name in TENSORS]
    if torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors):
        out: Tensor = Tiled.apply(call, drops, *tensors)  # type: ignore[no-untyped-call]
        return out
    return forward(call, drops)[0]


def forward(call: Call, drops: Drops | None, *, with_lse: bool = False) -> tuple[Tensor, tuple[Tensor, Tensor] | None]:
    """Outputs (B, Hq, Lq, Dv) and, where it is wanted, what backward is given of it, without their graph.

    Which is the outputs in the dtype of the products, whose rounding would show in the gradients, and lse (B, Hq, Lq).
    """
    with torch.no_grad():
        room, cut = _room(call, drops)
        out, lse, is_exact = _forward(room, cut, drops, with_lse=with_lse)
        if not is_exact:
            out, lse, _ = _forward(*_by_mask(call, drops, is_fused=True), drops, with_lse=with_lse)
        return out.to(call.q.dtype), (out, lse) if with_lse and lse is not None else None


def _forward(
    room: Workspace, cut: Strips, drops: Drops | None, *, with_lse: bool
) -> tuple[Tensor, Tensor | None, bool]:
    """Outputs in the dtype of the products, lse where it is wanted or strips join by it, and whether it is so exactly.

    Where it is not, the rest is left out.
    """
    call = room.call
    # rows in no strip see nothing
    out = (torch.empty if cut.covers_rows(call.sizes) else torch.zeros)(
        *call.q.shape[:3], call.v.shape[-1], dtype=room.q.dtype if room.is_fused else call.q.dtype
    )
    has_joins = any(strip.joins for strip in cut)
    lse = _lse_of_nothing(call) if with_lse or has_joins else None
    grouped = out.unflatten(1, (-1, call.groups)) if out.numel() else out
    grouped_lse = None if lse is None else lse.unflatten(1, (-1, call.groups))
    for number, strip in enumerate(cut):
        kernel.forward(room, drops, number, strip, grouped, grouped_lse)
        if has_joins and lse is not None and not kernel.joins_exactly(lse):
            return out, lse, False
    return out, lse, True


def backward(
    call: Call,
    drops: Drops | None,
    gradient: Tensor,
    wanted: list[str],
    *,
    outputs: tuple[Tensor, Tensor] | None = None,
) -> dict[str, Tensor]:
    """The gradients of the tensors named, given that of the outputs, without their graph.

    outputs: the outputs and their lse (B, Hq, Lq), None: not kept, so they are computed again where they are needed.
    """
    with torch.no_grad():
        room, cut = _room(call, drops, outputs=outputs, is_backward=True)
        # what every entry is written into first needs no zeros
        written = {"q": cut.covers_rows(call.sizes), "k": cut.splits_columns(call.sizes, call.groups)}
        written["v"] = written["k"]
        into = {name: _sum_of(getattr(call, name), is_written=written.get(name, False)) for name in wanted}
        views: dict[str, Any] = dict(into)
        for name, t in into.items():
            if name == "q" and t.numel():
                views[name] = t.unflatten(1, (-1, call.groups))
            if name == "attn_bias" and t.ndim == 2:
                views[name] = t[None, None]
            if name in ("k", "v"):
                views[name] = Segments((t,), is_fresh=written[name])
        kept = None
        if outputs is not None and gradient.numel():
            kept = kernel.ForwardOutputs(*(t.unflatten(1, (-1, call.groups)) for t in outputs))
        grouped = gradient.unflatten(1, (-1, call.groups)) if gradient.numel() else gradient
        for number, strip in enumerate(cut):
            kernel.backward(room, drops, number, strip, grouped, Gradients(**views), kept)
        return {name: t.to(getattr(call, name).dtype) for name, t in into.items()}


def definition(call: Call, drops: Drops | None) -> Tensor:
    """The same outputs by the definition, in O(Lq·Lk) memory: for derivatives of derivatives."""
    weights = reference.weights(call, reference.scores(call))
    if drops is not None:
        weights = weights * kept(call, drops) * drops.raised
    _, v = call.without_hidden_keys()
    return (weights @ reference.shared(v, call.groups).to(weights.dtype)).to(call.q.dtype)


def kept(call: Call, drops: Drops) -> Tensor:
    """What the drops of a call keep, 1 or 0 for each pair that may attend: (B, Hq, Lq, Lk) in float32."""
    with torch.no_grad():
        room = Workspace.of(call, strips_of(call))
    whole = torch.zeros(*call.sizes)
    for number, strip in enumerate(strips_of(call)):
        block = whole[strip.samples, strip.heads(call.groups), strip.rows]
        drawn = drops.kept(number, strip, room, torch.float32).view(*block.shape[:3], strip.width)
        for run, part in zip(
            strip.columns, drawn.split([run.stop - run.start for run in strip.columns], -1), strict=True
        ):
            block[..., run] = part
    return whole


class Tiled(torch.autograd.Function):
    """A call by strips, forward and backward; a derivative of a derivative is taken of the definition, recomputed."""

    @staticmethod
    def forward(ctx: Any, call: Call, drops: Drops | None, *tensors: Tensor | None) -> Tensor:
        ctx.rules = {name: getattr(call, name) for name in ("mask", "scale", "softcap")}
        ctx.rules["prepared"] = {"strips": strips_of(call)}
        ctx.drops, ctx.versions = drops, versions(call.mask)
        kept: dict[int, Tensor] = {}
        drawn = drops if drops is None or not _saves_drops(call) else SavedDrops.of(drops, kept)
        out, outputs = forward(call, drawn, with_lse=fits_torch(call, is_dropped=drops is not None))
        ctx.has_outputs = outputs is not None
        ctx.save_for_backward(*tensors, *(outputs or ()), *kept.values())
        ctx.strips = tuple(kept)
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        check_unchanged(ctx.versions)
        # a checkpoint unpacks what was saved once
        saved = ctx.saved_tensors
        tensors, rest = dict(zip(TENSORS, saved, strict=False)), saved[len(TENSORS) :]
        outputs, kept = (rest[:2], rest[2:]) if ctx.has_outputs else (None, rest)
        wanted = [name for name, needed in zip(TENSORS, ctx.needs_input_grad[2:], strict=True) if needed]
        with torch.autocast("cpu", enabled=False):
            if torch.is_grad_enabled():
                # views: the tensors may come from one another, and a gradient ends where it is asked for
                tensors = {name: t if t is None else t.view_as(t) for name, t in tensors.items()}
                again = definition(Call(**tensors, **ctx.rules), ctx.drops)
                inputs = [tensors[name] for name in wanted]
                of_inputs = dict(
                    zip(wanted, torch.autograd.grad(again, inputs, gradients[0], create_graph=True), strict=True)
                )
            else:
                call = Call(**tensors, **ctx.rules)
                drops = SavedDrops.of(ctx.drops, dict(zip(ctx.strips, kept, strict=True))) if kept else ctx.drops
                of_inputs = backward(call, drops, gradients[0], wanted, outputs=outputs)
        return None, None, *(of_inputs.get(name) for name in TENSORS)


def strips_of(call: Call) -> Strips:
    """The strips of a call, cut once."""
    if "strips" not in call.prepared:
        bounds, has_squares = _bounds(call), False
        if fits_torch(call, is_dropped=call.dropout > 0):
            # the kernel writes -inf before it scales, which a scale of 0 or less turns into NaN or inf
            bounds, has_squares = FUSED, call.multiplier > 0
        call.prepared["strips"] = strips(call.mask, call.sizes, call.groups, bounds, has_squares=has_squares)
    cut: Strips = call.prepared["strips"]
    return cut


def _saves_drops(call: Call) -> bool:
    """Whether what the drops keep, a byte a pair, takes no more memory than q, k, v and the outputs."""
    outputs = math.prod((*call.q.shape[:3], call.v.shape[3])) * call.q.element_size()
    return sum(math.prod(strip.shape) for strip in strips_of(call)) <= outputs + sum(
        t.numel() * t.element_size() for t in (call.q, call.k, call.v)
    )


def _bounds(call: Call) -> Bounds:
    """How large the strips of a call may be, where torch's kernel does not compute them."""
    if call.weight is not None:
        return Bounds(ADDITIVE_SCORES)
    _, _, Lq, Lk = call.sizes
    most = BYTES // score_dtype(call).itemsize
    return Bounds(most // 2 if 2 * call.groups * Lq * Lk <= most // 2 else most)


def _room(
    call: Call, drops: Drops | None, *, outputs: tuple[Tensor, Tensor] | None = None, is_backward: bool = False
) -> tuple[Workspace, Strips]:
    """The workspace of a call, and its strips. outputs: what a backward pass is given of the outputs and their lse."""
    cut = strips_of(call)
    room = Workspace.of(call, cut, is_dropped=drops is not None)
    # without outputs and lse torch's kernel has no backward pass
    is_fused = room.is_fused and not (is_backward and outputs is None)
    is_exact = outputs is None or not any(strip.joins for strip in cut) or kernel.joins_exactly(outputs[1])
    if (is_fused and is_exact) or not any(strip.is_causal for strip in cut):
        return room, cut
    return _by_mask(call, drops, is_fused=is_fused)


def _by_mask(call: Call, drops: Drops | None, *, is_fused: bool) -> tuple[Workspace, Strips]:
    """The same by strips that ask the mask, of a size to hold their scores where torch's kernel does not run."""
    cut = strips(call.mask, call.sizes, call.groups, FUSED if is_fused else _bounds(call))
    return Workspace.of(call, cut, is_dropped=drops is not None), cut


def _lse_of_nothing(call: Call) -> Tensor:
    """The lse of rows that may attend to nothing, for every row: (B, Hq, Lq)."""
    wide = torch.promote_types(call.q.dtype, torch.float32)
    lse = call.q.new_full(call.q.shape[:3], -math.inf, dtype=wide)
    return lse if call.sink is None else lse.copy_(call.sink[:, None])


def _sum_of(t: Tensor, *, is_written: bool) -> Tensor:
    """Where the gradient of a tensor is summed up, halves in float32: zeros, unless each entry is written first."""
    return (torch.empty if is_written else torch.zeros)(t.shape, dtype=torch.promote_types(t.dtype, torch.float32))
