"""Arguments of torch's fused kernels: q, k, v and the mask of a call, as they compute it exactly on each device."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend

from headwise.masks.leaves import Causal
from headwise.ops.call import Call
from headwise.ops.dense_mask import may_have_empty_rows


class Kernel(NamedTuple):
    """The arguments of scaled_dot_product_attention that compute a call exactly.

    is_grouped: whether query heads share the heads of k and v. rows: which queries may attend to a key, bool
    broadcastable to (B, Hq, Lq, 1), where attn_mask gives the others all keys; None: it does not.
    """

    q: Tensor
    k: Tensor
    v: Tensor
    attn_mask: Tensor | None
    is_causal: bool
    is_grouped: bool
    rows: Tensor | None = None


def is_on_device(t: Tensor) -> bool:
    """Whether the kernels are not those of the CPU, and nobody may wait for a number."""
    return t.device.type != "cpu"


def is_eager_on_cpu(out: Tensor) -> bool:
    """Whether a value may be looked at without waiting for a device or breaking a graph."""
    return not is_on_device(out) and not torch.compiler.is_compiling()


def reads_bias_wrong(call: Call) -> bool:
    """Whether torch's GPU kernels would take attn_bias for numbers of q's dtype, which it is not.

    torch 2.11 hands such a call to cuDNN, which gives NaN and numbers of other memory. Measured on an H200.
    """
    return call.attn_bias is not None and is_on_device(call.q) and _bias_dtype(call) is not call.q.dtype


def _scores_to_add(call: Call, dtype: torch.dtype) -> Tensor | None:
    """The mask as bool, or the bias with the mask in it, broadcastable to (B, Hq, Lq, Lk); None: all pairs."""
    bias = call.attn_bias
    if bias is None:
        scores = call.allowed
    else:
        bias = (bias if torch.is_grad_enabled() else bias.detach()).to(dtype)
        scores = bias if call.allowed is None else torch.where(call.allowed, bias, float("-inf"))
    return scores


def with_open_rows(allowed: Tensor) -> tuple[Tensor, Tensor]:
    """A mask (..., Lq, Lk) in which a query that may attend to nothing is given all keys, and which may, (..., Lq, 1).

    Of a row without a key torch's GPU kernels for halves give gradients of NaN. Measured on an H200, torch 2.11.
    """
    rows = allowed.any(dim=-1, keepdim=True)
    return allowed == rows, rows


def with_whole_rows(scores: Tensor, Lk: int) -> Tensor:
    """Rows of Lk keys side by side, as torch's GPU kernels read them; axes that are shared stay so.

    Of one entry for all keys they read past its end, or refuse it. Measured on torch 2.11.
    """
    if scores.shape[-1] != 1 and scores.stride(-1) == 1:
        return scores
    once = scores
    for axis in range(scores.ndim - 1):
        if scores.stride(axis) == 0:
            once = once.narrow(axis, 0, 1)
    return once.expand(*once.shape[:-1], Lk).contiguous().expand(*scores.shape[:-1], Lk)


def arguments(call: Call) -> Kernel:
    """What the kernel is given for a call."""
    at = asked(call)
    if torch.compiler.is_compiling():
        return at if at.attn_mask is None else _with_mask(at, call, at.attn_mask.dtype)
    if "sdpa" not in call.prepared:
        at = at if at.attn_mask is None else _with_mask(at, call, at.attn_mask.dtype)
        call.prepared["sdpa"] = _with_heads_of_their_own(at, call)
    kernel: Kernel = call.prepared["sdpa"]
    return kernel


def choice(at: Kernel, call: Call) -> int:
    """The kernel that torch takes for these arguments, a number of SDPBackend."""
    return torch._fused_sdp_choice(
        at.q, at.k, at.v, at.attn_mask, call.dropout, at.is_causal, scale=call.multiplier, enable_gqa=at.is_grouped
    )


def _with_heads_of_their_own(at: Kernel, call: Call) -> Kernel:
    """The arguments with keys and values repeated for each query head, where torch fuses no shared ones: float32.

    Not where it fuses the repeated ones no more than these.
    """
    if not (at.is_grouped and is_on_device(at.q)) or choice(at, call) != SDPBackend.MATH.value:
        return at
    k, v = (t.repeat_interleave(call.groups, dim=1) for t in (at.k, at.v))
    repeated = at._replace(k=k, v=v, is_grouped=False)
    return at if choice(repeated, call) == SDPBackend.MATH.value else repeated


def _with_mask(at: Kernel, call: Call, dtype: torch.dtype) -> Kernel:
    """The arguments with the numbers of the mask."""
    scores, rows = _scores_to_add(call, dtype), None
    if scores is not None and is_on_device(call.q):
        if scores.dtype is not torch.bool:
            _, rows = with_open_rows(~scores.isneginf())
            scores = torch.where(rows, scores, 0.0)
        elif may_have_empty_rows(call.mask, call.sizes):
            scores, rows = with_open_rows(scores)
        scores = with_whole_rows(scores, call.sizes.Lk)
    return at._replace(attn_mask=scores, rows=rows)


def asked(call: Call) -> Kernel:
    """The arguments without the numbers of the mask: one preparation for asking and running."""
    if torch.compiler.is_compiling():
        return _kernel(call)
    if "asked" not in call.prepared:
        call.prepared["asked"] = _kernel(call)
    kernel: Kernel = call.prepared["asked"]
    return kernel


def _kernel(call: Call) -> Kernel:
    """The arguments, with a mask that has the right dtype and axes and takes no memory: torch asks for no more."""
    q, (k, v) = call.q, (call.k, call.v)
    dtype, is_causal = None, False
    is_square = q.shape[2] in (1, k.shape[2])
    # the kernel writes -inf before it scales, which a scale of 0 or less turns into NaN or inf
    if type(call.mask) is Causal and is_square and call.attn_bias is None and call.multiplier > 0:
        # one query sits at the last key, and sees them all; an open length compares to a symbol, which is no bool
        if q.shape[2] != 1:
            is_causal = True
    elif call.mask is not None:
        dtype = torch.bool
        if not is_eager_on_cpu(q):
            k, v = call.without_hidden_keys()
    if call.attn_bias is not None:
        dtype = _bias_dtype(call)
    width = max(q.shape[-1], v.shape[-1])
    # features of zeros change no score, and give outputs that are cut off: both widths equal is what torch fuses
    q, k, v = (t if t.shape[-1] == width else F.pad(t, (0, width - t.shape[-1])) for t in (q, k, v))
    q, k, v = (t if t.stride(-1) == 1 else t.contiguous() for t in (q, k, v))
    unread = None if dtype is None else q.new_empty((), dtype=dtype).expand(1, 1, q.shape[2], k.shape[2])
    # an open number of heads compares to a symbol, which is no bool
    is_grouped = True if call.groups > 1 else False  # noqa: SIM210
    return Kernel(q, k, v, unread, is_causal, is_grouped)


def _bias_dtype(call: Call) -> torch.dtype | None:
    """The dtype in which attn_bias loses nothing, beside q; None: there is no bias.

    On the CPU torch takes a bias in the dtype of q or in float32.
    """
    if call.attn_bias is None:
        return None
    return torch.promote_types(call.q.dtype, call.attn_bias.dtype if is_on_device(call.q) else torch.float32)


def without_hidden_keys(at: Kernel, call: Call) -> Kernel:
    """The same call with zeros at keys that are masked for every query of their batch element."""
    hidden = call.hidden
    if hidden is None:
        return at
    return at._replace(k=at.k.masked_fill(hidden, 0.0), v=at.v.masked_fill(hidden, 0.0))
