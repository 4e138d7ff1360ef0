"""torch's own kernels, wherever they are fused and exact: an adaptor to scaled_dot_product_attention."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn.attention import SDPBackend

from headwise.ops import grouped_queries, reference, sdpa_arguments
from headwise.ops.call import Call, transformed
from headwise.ops.dense_mask import may_have_empty_rows
from headwise.ops.second_derivative import SecondDerivative, TwiceDifferentiable

# the CPU kernel reads keys by vectors of at most 16, and the last Lk % 16 one by one
VECTOR = 16
# torch's sums take another thread from so many numbers on
GRAIN = 1 << 15


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
    if sdpa_arguments.is_on_device(call.q) and call.multiplier <= 0:
        return "torch's GPU kernels need a scale greater than 0"
    if call.attn_bias is not None and sdpa_arguments.reads_bias_wrong(call):
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


def run(call: Call, made: Tensor | None = None) -> Tensor:
    """One call of torch's kernel; zero rows where a query may attend to nothing.

    made: what the kernel has given for the same arguments, None: nothing yet. It must not run again: checkpoints count
    what it saves for backward.
    """
    at = sdpa_arguments.arguments(call)
    raw = out = _attend(at, call) if made is None else made
    is_asked = at.attn_mask is not None and sdpa_arguments.is_eager_on_cpu(call.q)
    is_clean = is_asked and is_unharmed(out, at.k)
    if is_asked and not is_clean and call.mask is not None:
        # what is masked for every query may hold NaN or inf, which the kernel multiplies by 0
        at = sdpa_arguments.without_hidden_keys(at, call)
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


def _attend(at: sdpa_arguments.Kernel, call: Call) -> Tensor:
    if grouped_queries.are_joined(call):
        scores = grouped_queries.joined_scores(at.attn_mask, call.groups)
        return grouped_queries.attend(at.q, at.k, at.v, scores, call.groups, call.multiplier)
    return F.scaled_dot_product_attention(
        at.q, at.k, at.v, attn_mask=at.attn_mask, dropout_p=call.dropout, is_causal=at.is_causal,
        scale=call.multiplier, enable_gqa=at.is_grouped,
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


def _asked_of_torch(call: Call) -> int:
    # on the CPU nothing of a mask is read but its dtype and axes, and a call that goes to strips needs no dense one
    at = sdpa_arguments.arguments(call) if sdpa_arguments.is_on_device(call.q) else sdpa_arguments.asked(call)
    return sdpa_arguments.choice(at, call)


def _with_empty_rows_zero(out: Tensor, call: Call, at: sdpa_arguments.Kernel) -> Tensor:
    """Zeros where a query may attend to nothing, whatever the kernel makes of such a row."""
    if at.rows is not None:
        return torch.where(at.rows, out, 0.0)
    if (
        at.attn_mask is None
        or sdpa_arguments.is_on_device(out)
        or (call.attn_bias is None and not may_have_empty_rows(call.mask, call.sizes))
    ):
        return out
    # torch's CPU kernel gives zeros itself, but to a query of NaN or inf; an exported program will meet other kernels
    if sdpa_arguments.is_eager_on_cpu(out) and call.q.isfinite().all():
        return out
    allowed = at.attn_mask if at.attn_mask.dtype is torch.bool else ~at.attn_mask.isneginf()
    return torch.where(allowed.any(dim=-1, keepdim=True), out, 0.0)


def _with_nan_shown(out: Tensor, call: Call, at: sdpa_arguments.Kernel) -> Tensor:
    """NaN where a query sees a score of NaN, on the CPU.

    torch's CPU kernel takes a row for empty, and gives zeros, if all scores that it sees are NaN and are not read by
    vectors: those of the last Lk % 16 keys. Measured on torch 2.13.
    """
    tail = call.k.shape[2] % VECTOR
    if sdpa_arguments.is_on_device(out) or torch.compiler.is_exporting() or tail == 0:
        return out
    q, k = call.q.detach(), at.k.detach()[:, :, -tail:, : call.q.shape[3]]
    if sdpa_arguments.is_eager_on_cpu(out) and (has_no_zero(out) or _is_finite_product(q, k)):
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
