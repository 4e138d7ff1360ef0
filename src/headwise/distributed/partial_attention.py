"""Partial attention: attention to some of the keys, merged with that to others by the log-sums, and its gradients."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from headwise.distributed.whole_call import WholeCall
from headwise.errors import BackendError
from headwise.masks.tensor_versions import check_unchanged
from headwise.ops import blockwise, reference
from headwise.ops.call import Call
from headwise.ops.kernel import joins_exactly
from headwise.ops.tile_dropout import TileDrops
from headwise.ops.workspace import fits_torch

# the tensors of a whole call that a gradient may flow to, in the order in which Functions over ranks take them
INPUTS = ("q", "k", "v", "attn_bias", "by_distance", "weight", "sink")
# the most scores held at once
SCORES = 1 << 22
# what a gradient may flow to, beside the sink, which joins last
TENSORS = ("q", "k", "v", "attn_bias", "weight")


class Partial(NamedTuple):
    """Outputs (B, Hq, Lq, Dv), in float32 at least, and lse (B, Hq, Lq) in float64, of the keys so far.

    A row that has seen no key is 0, with an lse of -inf. float64, since an lse of float32 is off by up to 2^-22 at 4,
    which the gradient of a sink would show.
    """

    out: Tensor
    lse: Tensor

    def joined(self, other: Partial) -> Partial:
        """That of both sets of keys. Rabe and Staats 2021, arXiv:2112.05682."""
        lse = torch.logaddexp(self.lse, other.lse)
        shares = ((part.lse - _finite(lse)).exp()[..., None].to(part.out.dtype) for part in (self, other))
        return Partial(self.out * next(shares) + other.out * next(shares), lse)

    def with_sink(self, sink: Tensor | None) -> Partial:
        """That with a sink (Hq,), which takes its share and carries no value; None: no sink."""
        if sink is None:
            return self
        lse = torch.logaddexp(self.lse, sink.to(self.lse.dtype)[:, None])
        return Partial(self.out * (self.lse - _finite(lse)).exp()[..., None].to(self.out.dtype), lse)


def nothing(call: Call) -> Partial:
    """That of no key."""
    out = call.q.new_zeros((*call.q.shape[:3], call.v.shape[3]), dtype=_working_dtype(call))
    return Partial(out, call.q.new_full(call.q.shape[:3], -math.inf, dtype=torch.float64))


def forward(call: Call, drops: TileDrops | None = None) -> Partial:
    """That of the keys of a call, whose sink is left to the end; halves are multiplied as float32."""
    if 0 in call.sizes:
        return nothing(call)
    call = _clean(_wide(call))
    if drops is None and _fits_torch(call):
        out, saved = blockwise.forward(call, None, with_lse=True)
        if saved is not None and joins_exactly(saved[1]):
            return Partial(out, saved[1].double())
    parts = [_rows(call.part(rows), _drops_of(drops, rows)) for rows in _pieces(call)]
    return Partial(torch.cat([part.out for part in parts], 2), torch.cat([part.lse for part in parts], 2))


def backward(call: Call, gradient: Tensor, whole: Partial, drops: TileDrops | None = None) -> dict[str, Tensor]:
    """The gradients of q, k, v, attn_bias and weight, in float32 at least, by this call's keys.

    gradient: of the outputs of all keys, `whole`, the sink's share in it.
    """
    call, gradient = _wide(call), gradient.to(whole.out.dtype)
    if 0 in call.sizes:
        return {name: torch.zeros_like(t) for name in TENSORS if (t := getattr(call, name)) is not None}
    call = _clean(call)
    if drops is None and _fits_torch(call) and bool(gradient.isfinite().all()) and joins_exactly(whole.lse):
        saved = (whole.out, whole.lse.to(whole.out.dtype))
        return blockwise.backward(call, None, gradient, ["q", "k", "v"], outputs=saved)
    total = {name: torch.zeros_like(t) for name in TENSORS if (t := getattr(call, name)) is not None}
    for rows in _pieces(call):
        part = call.part(rows)
        outputs = Partial(whole.out[:, :, rows], whole.lse[:, :, rows])
        gradients = _gradients(part, gradient[:, :, rows], outputs, _drops_of(drops, rows))
        total["q"][:, :, rows] += gradients["q"]
        total["k"] += gradients["k"]
        total["v"] += gradients["v"]
        if "weight" in total:
            total["weight"] += gradients["weight"]
        if "attn_bias" in total:
            bias = total["attn_bias"]
            into = bias[..., rows, :] if bias.shape[-2] > 1 else bias
            into += gradients["attn_bias"].view(into.shape)
    return total


def gradient_of_sink(sink: Tensor, gradient: Tensor, whole: Partial) -> Tensor:
    """That of a sink (Hq,), by the rows of a result of all keys with the sink's share in it."""
    weight = (sink.double()[:, None] - _finite(whole.lse)).exp()
    return -(weight * (gradient.double() * whole.out.double()).sum(-1)).sum((0, 2)).to(sink.dtype)


def packed(part: Partial) -> Tensor:
    """Outputs and log-sums in one tensor (B, Hq, Lq, Dv + 2): the log-sum in two parts of the outputs' dtype."""
    high = part.lse.to(part.out.dtype)
    low = torch.where(high.isfinite(), part.lse - high, 0.0).to(part.out.dtype)
    return torch.cat([part.out, high[..., None], low[..., None]], -1)


def unpacked(packed: Tensor) -> Partial:
    return Partial(packed[..., :-2], packed[..., -2].double() + packed[..., -1].double())


def saved_call(ctx: Any, way: str) -> tuple[WholeCall, tuple[Tensor, ...]]:
    """The call whose tensors, INPUTS, a Function has saved first, and what it has saved beside them.

    BackendError where a second derivative is wanted, MaskError where a mask has changed since forward.
    """
    if torch.is_grad_enabled():
        raise BackendError(
            f'way="{way}" gives one derivative, and a second one was asked for: use way="gather", which gives all'
        )
    check_unchanged(ctx.versions)
    saved = ctx.saved_tensors
    return whole_call(saved[: len(INPUTS)], ctx.rules), saved[len(INPUTS) :]


def whole_call(tensors: Sequence[Tensor | None], rules: dict[str, Any]) -> WholeCall:
    """The call of tensors in the order of INPUTS, and rules as `rules_of` gives them."""
    return WholeCall(**dict(zip(INPUTS, tensors, strict=True)), **rules)  # type: ignore[arg-type]  # the first three are tensors


def rules_of(call: WholeCall) -> dict[str, Any]:
    """What is no tensor that a gradient may flow to."""
    return {name: getattr(call, name) for name in ("mask", "scale", "softcap", "dropout", "distances", "prepared")}


def no_gradients(call: WholeCall, dtype: torch.dtype) -> dict[str, Tensor]:
    """Zeros for the gradient of each tensor but the sink, in this dtype at least."""
    tensors = {name: t for name in INPUTS if name != "sink" and (t := getattr(call, name)) is not None}
    return {name: t.new_zeros(t.shape, dtype=torch.promote_types(t.dtype, dtype)) for name, t in tensors.items()}


def add_to_rules(
    total: dict[str, Tensor], block: dict[str, Tensor], call: WholeCall, rows: Tensor, columns: Tensor
) -> None:
    """Add the gradients of a block to those of what all blocks share: the weight and the biases."""
    if "weight" in block:
        total["weight"] += block["weight"]
    if "attn_bias" in block:
        call.add_bias_gradient(total, rows, columns, block["attn_bias"])


def in_order(ctx: Any, call: WholeCall, gradients: dict[str, Tensor]) -> tuple[Tensor | None, ...]:
    """What backward returns of a Function whose last arguments are INPUTS: gradients, and None for the rest."""
    needed = ctx.needs_input_grad[-len(INPUTS) :]
    of_tensors = (
        gradients[name].to(getattr(call, name).dtype) if is_needed else None
        for name, is_needed in zip(INPUTS, needed, strict=True)
    )
    return *(None,) * (len(ctx.needs_input_grad) - len(INPUTS)), *of_tensors


def _rows(call: Call, drops: TileDrops | None) -> Partial:
    """By the definition, in two parts: the largest score of a row, and the log of the sum beside it."""
    logits, allowed = reference.scores(call), reference.open_pairs(call)
    if allowed is not None:
        logits = torch.where(allowed, logits, -math.inf)
    base = logits.amax(-1, keepdim=True)
    weights = (logits - _finite(base)).exp_()
    total = weights.sum(-1, keepdim=True)
    _, v = call.without_hidden_keys()
    if drops is not None:
        weights *= _kept(call, drops)
    # a row without a key has a total of 0
    out = (weights @ reference.shared(v, call.groups)) / total.masked_fill(total == 0, 1.0)
    return Partial(out, (base.double() + total.double().log())[..., 0])


def _gradients(call: Call, gradient: Tensor, whole: Partial, drops: TileDrops | None) -> dict[str, Tensor]:
    """By the definition, with the weights among all keys."""
    with torch.enable_grad():
        leaves = {n: t.detach().requires_grad_() for n in TENSORS if (t := getattr(call, n)) is not None and n != "v"}
        again = replace(call, **leaves, prepared=dict(call.prepared))
        logits = reference.scores(again)
    allowed, detached = reference.open_pairs(call), logits.detach()
    if allowed is not None:
        detached = torch.where(allowed, detached, -math.inf)
    # in two parts, since one of float32 is too coarse for the lse
    lse = _finite(whole.lse)[..., None]
    base = lse.to(detached.dtype)
    weights = ((detached - base) - (lse - base).to(detached.dtype)).exp_()
    _, v = call.without_hidden_keys()
    slopes = gradient @ reference.shared(v, call.groups).mT
    used = weights
    if drops is not None:
        kept = _kept(call, drops)
        slopes, used = slopes * kept, weights * kept
    slopes = weights * (slopes - (gradient * whole.out).sum(-1, keepdim=True))
    if allowed is not None:
        slopes = torch.where(allowed, slopes, 0.0)
    names = list(leaves)
    gradients = dict(zip(names, torch.autograd.grad(logits, [leaves[n] for n in names], slopes), strict=True))
    by_head = used.mT @ gradient
    gradients["v"] = by_head.unflatten(1, (-1, call.groups)).sum(2)
    return gradients


def _drops_of(drops: TileDrops | None, rows: slice) -> TileDrops | None:
    return None if drops is None else replace(drops, rows=drops.rows[rows])


def _kept(call: Call, drops: TileDrops) -> Tensor:
    """What the weights are multiplied by, (B, Hq, Lq, Lk): 0 where dropped, and what raises the rest."""
    return (blockwise.kept(call, drops) * drops.raised).to(call.q.dtype)


def _finite(lse: Tensor) -> Tensor:
    return lse.masked_fill(lse.isneginf(), 0.0)


def _pieces(call: Call) -> list[slice]:
    B, Hq, Lq, Lk = call.sizes
    # additive scores have a sum for each feature
    rows = max(1, SCORES // max(1, B * Hq * Lk * (1 if call.weight is None else call.q.shape[3])))
    return [slice(start, min(start + rows, Lq)) for start in range(0, Lq, rows)]


def _wide(call: Call) -> Call:
    """The call with its tensors in the dtype that is computed in."""
    dtype = _working_dtype(call)
    bias, weight = (None if t is None else t.to(dtype) for t in (call.attn_bias, call.weight))
    return replace(call, q=call.q.to(dtype), k=call.k.to(dtype), v=call.v.to(dtype), attn_bias=bias, weight=weight)


def _clean(call: Call) -> Call:
    """The call with zeros in place of NaN or inf of keys that no query may see, so that it is computed as without."""
    if call.mask is None or (_is_finite(call.k) and _is_finite(call.v)):
        return call
    k, v = call.without_hidden_keys()
    return replace(call, k=k, v=v)


def _is_finite(t: Tensor) -> bool:
    """Whether a tensor holds no NaN and no inf; False too where its sum overflows, which only costs time."""
    return math.isfinite(float(t.sum()))


def _working_dtype(call: Call) -> torch.dtype:
    """float32 at least, and float64 with a bias of float64."""
    narrow = call.attn_bias is None or call.attn_bias.dtype is not torch.float64
    return torch.promote_types(call.q.dtype, torch.float32) if narrow else torch.float64


def _fits_torch(call: Call) -> bool:
    """Whether torch's fused kernel gives outputs and log-sums of a call exactly, and takes these back."""
    is_plain = call.q.is_cpu and call.sink is None and fits_torch(call, is_dropped=False)
    return is_plain and all(map(_is_finite, (call.q, call.k, call.v)))
