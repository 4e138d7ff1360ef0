"""torch's own kernels, wherever they are fused and exact: an adaptor to scaled_dot_product_attention."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn.attention import SDPBackend

from headwise.masks.leaves import Causal
from headwise.ops import grouped_queries, reference
from headwise.ops.call import Call, transformed
from headwise.ops.second_derivative import SecondDerivative, TwiceDifferentiable

# the CPU kernel reads keys by vectors of at most 16, and the last Lk % 16 one by one
VECTOR = 16
# torch's sums take another thread from so many numbers on
GRAIN = 1 << 15


class Kernel(NamedTuple):
    """The arguments of scaled_dot_product_attention that compute a call exactly.

    rows: which queries may attend to a key, bool broadcastable to (B, Hq, Lq, 1), where attn_mask gives the others all
    keys; None: it does not.
    """

    q: Tensor
    k: Tensor
    v: Tensor
    attn_mask: Tensor | None
    is_causal: bool
    rows: Tensor | None = None


def why_not(call: Call) -> str:
    """Why torch's fused kernels would not compute this call exactly; "" where they do."""
    if call.weight is not None:
        return "torch's kernels score by q·k only"
    if call.softcap is not None:
        return "torch's kernels have no softcap"
    if call.sink is not None:
        return "torch's kernels have no sink"
    if call.generator is not None:
        return "torch's kernels draw dropout from the global generator only"
    if _learned(call.attn_bias):
        return "torch's fused kernels give no gradient to attn_bias"
    if is_on_device(call.q) and call.multiplier <= 0:
        return "torch's GPU kernels need a scale greater than 0"
    if call.attn_bias is not None and reads_bias_wrong(call):
        return f"torch's GPU kernels read attn_bias as {call.q.dtype}, as q is, and it is {call.attn_bias.dtype}"
    if 0 in call.q.shape or 0 in call.v.shape:
        return "an axis is empty, and torch's fused kernels need one entry at least"
    if torch.compiler.is_compiling() and forward_ad._current_level < 0:
        return "torch's CPU kernel has no dropout" if call.dropout and call.q.device.type == "cpu" else ""
    if torch.compiler.is_compiling():
        return "torch's fused kernels have no rule for forward-mode derivatives"
    if transformed(call):
        return "torch's fused kernels have no rule for torch.func transforms and forward-mode derivatives"
    if _asked_of_torch(call) == SDPBackend.MATH.value:
        return "torch would leave its fused kernel for the dense path" + (" (dropout)" if call.dropout else "")
    return ""


def reads_bias_wrong(call: Call) -> bool:
    """Whether torch's GPU kernels would take attn_bias for numbers of q's dtype, which it is not.

    torch 2.11 hands such a call to cuDNN, which gives NaN and numbers of other memory. Measured on an H200.
    """
    return call.attn_bias is not None and is_on_device(call.q) and _bias_dtype(call) is not call.q.dtype


def run(call: Call, made: Tensor | None = None) -> Tensor:
    """One call of torch's kernel; zero rows where a query may attend to nothing.

    made: what the kernel has given for the same arguments, None: nothing yet. It must not run again: checkpoints count
    what it saves for backward.
    """
    at = arguments(call)
    raw = out = _attend(at, call) if made is None else made
    is_asked = at.attn_mask is not None and _is_eager_on_cpu(call.q)
    is_clean = is_asked and is_unharmed(out, at.k)
    if is_asked and not is_clean and call.mask is not None:
        # what is masked for every query may hold NaN or inf, which the kernel multiplies by 0
        at = _without_hidden_keys(at, call)
        raw = out = _attend(at, call)
    if out.shape[-1] != call.v.shape[-1]:
        out = out[..., : call.v.shape[-1]]
    out = _with_nan_shown(out, call, at)
    if not is_clean:
        out = _with_empty_rows_zero(out, call, at)
    if torch.compiler.is_compiling() or not torch.is_grad_enabled() or not out.requires_grad:
        return out
    # the node may have saved wider tensors, so that their width no longer tells the scale
    rules = {"mask": call.mask, "attn_bias": call.attn_bias, "scale": call.multiplier, "dropout": call.dropout}
    return twice_differentiable(out, raw, (call.q, call.k, call.v), rules)


def twice_differentiable(out: Tensor, raw: Tensor, tensors: tuple[Tensor, ...], rules: dict[str, Any]) -> Tensor:
    """Outputs whose gradients can be differentiated again.

    raw: those of torch's kernel, of which `out` was made by plain operations. tensors: q, k and v. rules: the others of
    the call, as of `SecondDerivative`.
    """
    if SecondDerivative(rules).attach(raw):
        return out
    again: Tensor = TwiceDifferentiable.apply(out, *tensors, rules)  # type: ignore[no-untyped-call]
    return again


def _attend(at: Kernel, call: Call) -> Tensor:
    if grouped_queries.are_joined(call):
        scores = grouped_queries.joined_scores(at.attn_mask, call.groups)
        return grouped_queries.attend(at.q, at.k, at.v, scores, call.groups, call.multiplier)
    # an open number of heads compares to a symbol, which is no bool
    is_grouped = True if call.groups > 1 else False  # noqa: SIM210
    return F.scaled_dot_product_attention(
        at.q, at.k, at.v, attn_mask=at.attn_mask, dropout_p=call.dropout, is_causal=at.is_causal,
        scale=call.multiplier, enable_gqa=is_grouped,
    )  # fmt: skip


def is_unharmed(out: Tensor, k: Tensor, numbers: int = 0) -> bool:
    """Whether no NaN or inf of masked keys, or of queries without a key, has reached the outputs or a gradient.

    A value or a key of NaN shows in the outputs, since the kernel adds -inf to scores and multiplies by weights of 0; a
    key of inf shows in the gradient of q only. Sums overflow seldom: False is then one computation too many. numbers:
    how many both hold, where these lie in memory without gaps, 0: elsewhere.
    """
    if not out.requires_grad:
        return math.isfinite(_sum(out))
    # a sum with a graph costs half as much again, and a context manager as much as a sum
    was_enabled = torch.is_grad_enabled()
    torch._C._set_grad_enabled(False)
    try:
        if numbers:
            # one operation in place of two: NaN or inf where either has such, whichever numbers meet
            return math.isfinite(torch.dot(out.as_strided((numbers,), (1,)), k.as_strided((numbers,), (1,))).item())
        return math.isfinite(_sum(out)) and math.isfinite(_sum(k))
    finally:
        torch._C._set_grad_enabled(was_enabled)


def _sum(x: Tensor) -> float:
    if GRAIN <= x.numel() < 2 * GRAIN:
        # of so many torch adds up the last ones in one thread, which would wait for what the others have written
        return x.sum((2, 3), dtype=torch.float32 if x.dtype is torch.float16 else None).sum().item()
    return (x.sum(dtype=torch.float32) if x.dtype is torch.float16 else x.sum()).item()


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
        if not _is_eager_on_cpu(q):
            k, v = call.without_hidden_keys()
    if call.attn_bias is not None:
        dtype = _bias_dtype(call)
    width = max(q.shape[-1], v.shape[-1])
    # features of zeros change no score, and give outputs that are cut off: both widths equal is what torch fuses
    q, k, v = (t if t.shape[-1] == width else F.pad(t, (0, width - t.shape[-1])) for t in (q, k, v))
    q, k, v = (t if t.stride(-1) == 1 else t.contiguous() for t in (q, k, v))
    unread = None if dtype is None else q.new_empty((), dtype=dtype).expand(1, 1, q.shape[2], k.shape[2])
    return Kernel(q, k, v, unread, is_causal)


def _bias_dtype(call: Call) -> torch.dtype | None:
    """The dtype in which attn_bias loses nothing, beside q; None: there is no bias.

    On the CPU torch takes a bias in the dtype of q or in float32.
    """
    if call.attn_bias is None:
        return None
    return torch.promote_types(call.q.dtype, call.attn_bias.dtype if is_on_device(call.q) else torch.float32)


def _without_hidden_keys(at: Kernel, call: Call) -> Kernel:
    """The same call with zeros at keys that are masked for every query of their batch element."""
    hidden = call.hidden
    if hidden is None:
        return at
    return at._replace(k=at.k.masked_fill(hidden, 0.0), v=at.v.masked_fill(hidden, 0.0))


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
    at = _asked(call)
    if at.attn_mask is None:
        return at
    if torch.compiler.is_compiling():
        return _with_mask(at, call, at.attn_mask.dtype)
    if "sdpa" not in call.prepared:
        call.prepared["sdpa"] = _with_mask(at, call, at.attn_mask.dtype)
    kernel: Kernel = call.prepared["sdpa"]
    return kernel


def _with_mask(at: Kernel, call: Call, dtype: torch.dtype) -> Kernel:
    """The arguments with the numbers of the mask."""
    scores, rows = _scores_to_add(call, dtype), None
    if scores is not None and is_on_device(call.q):
        if scores.dtype is not torch.bool:
            _, rows = with_open_rows(~scores.isneginf())
            scores = torch.where(rows, scores, 0.0)
        elif call.may_have_empty_rows:
            scores, rows = with_open_rows(scores)
        scores = with_whole_rows(scores, call.sizes.Lk)
    return at._replace(attn_mask=scores, rows=rows)


def _asked(call: Call) -> Kernel:
    """The arguments without the numbers of the mask: one preparation for asking and running."""
    if torch.compiler.is_compiling():
        return _kernel(call)
    if "asked" not in call.prepared:
        call.prepared["asked"] = _kernel(call)
    kernel: Kernel = call.prepared["asked"]
    return kernel


def _asked_of_torch(call: Call) -> int:
    # on the CPU nothing of a mask is read but its dtype and axes, and a call that goes to strips needs no dense one
    at = arguments(call) if is_on_device(call.q) else _asked(call)
    return torch._fused_sdp_choice(
        at.q, at.k, at.v, at.attn_mask, call.dropout, at.is_causal, scale=call.multiplier, enable_gqa=call.groups > 1
    )


def _with_empty_rows_zero(out: Tensor, call: Call, at: Kernel) -> Tensor:
    """Zeros where a query may attend to nothing, whatever the kernel makes of such a row."""
    if at.rows is not None:
        return torch.where(at.rows, out, 0.0)
    if at.attn_mask is None or is_on_device(out) or (call.attn_bias is None and not call.may_have_empty_rows):
        return out
    # torch's CPU kernel gives zeros itself, but to a query of NaN or inf; an exported program will meet other kernels
    if _is_eager_on_cpu(out) and call.q.isfinite().all():
        return out
    allowed = at.attn_mask if at.attn_mask.dtype is torch.bool else ~at.attn_mask.isneginf()
    return torch.where(allowed.any(dim=-1, keepdim=True), out, 0.0)


def _with_nan_shown(out: Tensor, call: Call, at: Kernel) -> Tensor:
    """NaN where a query sees a score of NaN, on the CPU.

    torch's CPU kernel takes a row for empty, and gives zeros, if all scores that it sees are NaN and are not read by
    vectors: those of the last Lk % 16 keys. Measured on torch 2.13.
    """
    tail = call.k.shape[2] % VECTOR
    if is_on_device(out) or torch.compiler.is_exporting() or tail == 0:
        return out
    q, k = call.q.detach(), at.k.detach()[:, :, -tail:, : call.q.shape[3]]
    if _is_eager_on_cpu(out) and (has_no_zero(out) or _is_finite_product(q, k)):
        return out
    wide = torch.promote_types(q.dtype, torch.float32)
    is_nan = (q.to(wide) @ reference.shared(k, call.groups).to(wide).mT).isnan()
    if at.is_causal:
        i = torch.arange(call.q.shape[2], device=out.device)[:, None]
        is_nan = is_nan & (i[-tail:].T <= i)
    elif at.attn_mask is not None:
        allowed = at.attn_mask if at.attn_mask.dtype is torch.bool else ~at.attn_mask.isneginf()
        is_nan = is_nan & (allowed if allowed.shape[-1] == 1 else allowed[..., -tail:])
    return out.masked_fill(is_nan.any(dim=-1, keepdim=True), float("nan"))


def is_on_device(t: Tensor) -> bool:
    """Whether the kernels are not those of the CPU, and nobody may wait for a number."""
    return t.device.type != "cpu"


def _is_eager_on_cpu(out: Tensor) -> bool:
    # here a value may be looked at without waiting for a device or breaking a graph
    return not is_on_device(out) and not torch.compiler.is_compiling()


def has_no_zero(out: Tensor) -> bool:
    """Whether no output is exactly 0, so that no row can have been taken for one that may attend to nothing."""
    return out.count_nonzero().item() == out.numel()


def _is_finite_product(q: Tensor, k: Tensor) -> bool:
    """Whether no product of a query and a key can be inf or NaN, by their largest entries."""
    wide = torch.promote_types(q.dtype, torch.float32)
    largest = [float(torch.linalg.vector_norm(t, math.inf, dtype=wide)) for t in (q, k)]
    return largest[0] * largest[1] * q.shape[-1] < torch.finfo(wide).max


def _learned(bias: Tensor | None) -> bool:
    return bias is not None and bias.requires_grad and torch.is_grad_enabled()
