"""All heads of a call whose heads ranks share, gathered on each of them."""

from __future__ import annotations

from dataclasses import fields, replace

from torch import Tensor

from headwise.masks import Mask
from headwise.masks.derived_tensors import has_function
from headwise.masks.leaves import Allowed
from headwise.ops.call import Call
from headwise.ops.shared_axis import SharedAxis, SharedHeads


def of_all_heads(call: Call, heads: SharedHeads | None) -> Call:
    """The call with the heads of all ranks, each of which must ask; heads: what is shared, None: as it is.

    A mask that may differ by head becomes a dense one.
    """
    if heads is None:
        return call
    axis, groups = heads.axis, heads.axis.length // heads.Hk
    # by query head, since ranks may hold the same key head, or parts of what it serves
    k = axis.joined(call.k.repeat_interleave(call.groups, dim=1), 1)[:, ::groups].contiguous()
    return replace(
        call,
        q=axis.joined(call.q, 1),
        k=k,
        v=k,
        mask=_mask(call, axis),
        attn_bias=_bias(call.attn_bias, call.q.shape[1], axis),
        sink=None if call.sink is None else axis.joined(call.sink.detach(), 0),
        weight=None if call.weight is None else axis.joined(call.weight.detach(), 0),
        prepared={},
    )


def may_differ_by_head(mask: Mask | None) -> bool:
    """Whether heads may have masks of their own, which ranks with one head each cannot tell from its sizes."""
    if mask is None:
        return False
    if isinstance(mask, Allowed):
        return mask.t.ndim == 4
    parts = (getattr(mask, field.name) for field in fields(mask))
    return has_function(mask) or any(may_differ_by_head(part) for part in parts if isinstance(part, Mask))


def _mask(call: Call, axis: SharedAxis) -> Mask | None:
    if call.mask is None or not may_differ_by_head(call.mask):
        return call.mask
    B, h, Lq, Lk = call.sizes
    dense = call.mask.allowed(Lq, Lk, batch=B, heads=h, device=call.q.device)
    dense = dense[None, None] if dense.ndim == 2 else dense
    return Allowed(axis.joined(dense.expand(-1, h, -1, -1), 1))


def _bias(bias: Tensor | None, h: int, axis: SharedAxis) -> Tensor | None:
    if bias is None or bias.ndim == 2:
        return bias
    return axis.joined(bias.detach().expand(-1, h, -1, -1), 1)
