"""Repeated calls: those like one before go to the backend that was chosen then, to torch's kernel without a check."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from headwise.masks import Mask
from headwise.masks.derived_tensors import DerivedTable, layout_table, plain_table, room, table
from headwise.masks.leaves import Allowed, Causal
from headwise.ops import grouped_queries, sdpa
from headwise.ops.backends import Backend
from headwise.ops.call import Call
from headwise.ops.dense_mask import may_have_empty_rows, may_hide_keys
from headwise.ops.device_calls import DeviceCall, device_call
from headwise.ops.sdpa_arguments import Kernel, arguments
from headwise.ops.second_derivative import SecondDerivative

# calls without a mask that are remembered; a mask keeps its own
MOST_CALLS = 256
# a mask as scores to add is kept up to this many, where torch makes them anew of a bool tensor in each call
MOST_SCORES_KEPT = 1 << 20
# on a GPU a mask of numbers, 32 MiB in halves
MOST_DEVICE_SCORES_KEPT = 1 << 24

# those without a mask; a mask keeps its own
without_mask = DerivedTable((), (), ())


@dataclass(slots=True, frozen=True)
class RepeatedCall:
    """The arguments of torch's kernel beside q, k and v, for calls of the same shapes, dtypes, flags and mask.

    attn_mask: scores to add, broadcastable to (B, Hq, Lq, Lk), None: all pairs, or is_causal. second: what the node is
    given for second derivatives. joined: how many query heads share each key head, where their queries are joined and
    attn_mask is made for these; 0: none are. has_masked: whether a key is masked for all queries, or a query may attend
    to nothing, so that NaN and inf of theirs must not spread. has_tail: whether the kernel may take a row of NaN for
    one that may attend to nothing.
    """

    attn_mask: Tensor | None
    is_causal: bool
    scale: float
    dropout: float
    is_grouped: bool
    second: SecondDerivative
    joined: int = 0
    has_masked: bool = False
    has_tail: bool = False

    def run(self, q: Tensor, k: Tensor, v: Tensor, mask: Mask | Tensor | None, numbers: int = 0) -> tuple[Tensor, bool]:
        """What torch's kernel gives (B, Hq, Lq, Dv), and whether it is the result.

        It is not where NaN or inf may have come in: that is left to the checked way, which takes it from here.
        mask: not read, since attn_mask was made of it. numbers: how many k and the outputs hold, where a `GuardedCall`
        says so.
        """
        if self.joined:
            out = grouped_queries.attend(q, k, v, self.attn_mask, self.joined, self.scale)
        else:
            out = F.scaled_dot_product_attention(
                q, k, v, self.attn_mask, self.dropout, self.is_causal, scale=self.scale, enable_gqa=self.is_grouped
            )
        if self.has_masked and not sdpa.is_unharmed(out, k, numbers):
            return out, False
        if self.has_tail and not sdpa.has_no_zero(out):
            return out, False
        return out, not out.requires_grad or self.second.attach(out)


def table_of(mask: Mask | Tensor | None) -> DerivedTable | None:
    """Where calls with a mask are kept; None: nowhere. Asked of a call that has a key, which is one that may be."""
    if mask is None:
        return without_mask
    return plain_table(mask) or layout_table(mask) if isinstance(mask, Mask) else None


def remember(call: Call, key: Hashable, chosen: Backend) -> tuple[DerivedTable, RepeatedCall | DeviceCall] | None:
    """Keep the backend of a checked call; of torch's kernel what it was given, and give that and where it is kept.

    Not where that was given copies of q, k or v, or a mask too large to be kept.
    """
    kept = table_of(call.mask)
    if kept is None:
        return None
    repeated = None
    if chosen.name == "sdpa":
        repeated = _repeated(call) if call.q.is_cpu else _repeated_on_device(call)
    scores = repeated.attn_mask if isinstance(repeated, RepeatedCall) else None
    size = 0 if scores is None else scores.nbytes + scores.numel()
    if call.mask is None:
        with room.lock:
            if len(kept.results) >= MOST_CALLS:
                kept.forget(next(iter(kept.results)))
            kept.results[key] = repeated or chosen
    else:
        kept.add(key, repeated or chosen, size)
    # what takes too much room is not kept
    is_kept = key in kept.results
    return (kept, repeated) if repeated is not None and is_kept else None


def _repeated(call: Call) -> RepeatedCall | None:
    """What torch's kernel gets; None where that is copies of q, k or v, or a mask too large to be kept."""
    at = arguments(call)
    scores, has_masked = at.attn_mask, False
    mask: Mask | None = Causal() if at.is_causal else None
    if at.q is not call.q or at.k is not call.k or at.v is not call.v:
        return None
    if scores is not None:
        if scores.numel() > MOST_SCORES_KEPT:
            return None
        # a mask of its own, since what is kept with a mask must not keep the mask
        with torch.inference_mode(False):
            mask = Allowed(scores.clone())
            has_masked = not (scores.any(dim=-1).all() and scores.any(dim=-2).all())
            scores = torch.zeros(scores.shape, dtype=call.q.dtype).masked_fill_(~scores, float("-inf"))
    joined = call.groups if grouped_queries.are_joined(call) else 0
    if joined:
        scores = grouped_queries.joined_scores(scores, joined)
    has_tail = call.k.shape[2] % sdpa.VECTOR > 0
    return _kept(call, at, mask, scores, joined, has_masked, has_tail)


def _repeated_on_device(call: Call) -> RepeatedCall | DeviceCall | None:
    """The same on a GPU: a mask of numbers is kept as scores to add, where nothing of a key or a row is cleared."""
    at = arguments(call)
    if at.attn_mask is not None:
        kept = table(call.mask) if call.mask is not None else None
        is_cleared = may_hide_keys(call.mask, call.sizes) or may_have_empty_rows(call.mask, call.sizes)
        if kept is None or kept.tensors or is_cleared or at.attn_mask.numel() > MOST_DEVICE_SCORES_KEPT:
            return device_call(call)
    if at.q is not call.q or at.k is not call.k or at.v is not call.v:
        return None
    scores = at.attn_mask
    with torch.inference_mode(False):
        if scores is not None:
            scores = torch.zeros_like(scores, dtype=call.q.dtype).masked_fill_(~scores, float("-inf"))
    # a mask of numbers is the key of what is kept with it
    return _kept(call, at, call.mask, scores)


def _kept(call: Call, at: Kernel, mask: Mask | None, scores: Tensor | None, *others: Any) -> RepeatedCall:
    """The arguments of a call. mask: that of its second derivatives. others: joined, has_masked, has_tail."""
    second = SecondDerivative({"mask": mask, "attn_bias": None, "scale": call.multiplier, "dropout": call.dropout})
    return RepeatedCall(scores, at.is_causal, call.multiplier, call.dropout, at.is_grouped, second, *others)
