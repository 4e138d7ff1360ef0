"""Operator: the Attention operator of opsets 23, 24 and 25, by its own names."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from headwise.compat.inputs import check_given, check_tensors
from headwise.compat.onnx.attributes import DOUBLE, check_attributes, check_opset, check_scores
from headwise.errors import ArgumentError, MaskError, ShapeError
from headwise.masks import Mask, allowed, causal, lengths, window
from headwise.ops import attention as headwise_attention
from headwise.ops import reference
from headwise.ops.call import Rules, checked

__all__ = ["Outputs", "attention"]

# the dtypes of the operator
DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


class Outputs(NamedTuple):
    """The four outputs of the operator, in its order and by its names."""

    Y: Tensor
    present_key: Tensor
    present_value: Tensor
    qk_matmul_output: Tensor | None


def attention(
    Q: Tensor, K: Tensor, V: Tensor, attn_mask: Tensor | None = None, past_key: Tensor | None = None,
    past_value: Tensor | None = None, nonpad_kv_seqlen: Tensor | None = None, *, is_causal: int = 0,
    kv_num_heads: int | None = None, left_window_size: int = -1, q_num_heads: int | None = None,
    qk_matmul_output_mode: int | None = None, right_window_size: int = -1, scale: float | None = None,
    softcap: float = 0.0, softmax_precision: int | None = None, opset: int = 25,
) -> Outputs:  # fmt: skip
    """What ONNX's Attention operator gives: (Y, present_key, present_value, qk_matmul_output).

    Q (B, Hq, Lq, D), K (B, Hk, Lk, D), V (B, Hk, Lk, Dv) -> Y (B, Hq, Lq, Dv); or Q (B, Lq, Hq*D), K (B, Lk, Hk*D),
    V (B, Lk, Hk*Dv) -> Y (B, Lq, Hq*Dv), which needs q_num_heads and kv_num_heads. past_key (B, Hk, P, D) and
    past_value (B, Hk, P, Dv) go before K and V; present_key and present_value are both joined, (B, Hk, P + Lk, ..).
    nonpad_kv_seqlen: (B,), how many of the keys are tokens, None: all; not with a past; from opset 24 on.

    attn_mask: bool, True = may attend, or floating, added to the scores; of 1 to 4 axes, broadcast from the right to
    (B, Hq, Lq, P + Lk). From opset 24 on a shorter last axis masks the keys behind it, and one of size 1 is such a
    short one: it is not repeated. Integers are refused: the schema lets them in, but gives them no meaning.
    is_causal: query i sits at position i + P, or at i + nonpad_kv_seqlen - Lq, and sees no key after it. Without
    either, query 0 sits at key 0, also where Lq and Lk differ. left_window_size, right_window_size: how many keys
    before and after that position are seen, -1: all; from opset 25 on. scale: None: 1/sqrt(D). softcap: 0.0: none.
    A query that may attend to nothing gets zeros.

    qk_matmul_output_mode: which (B, Hq, Lq, P + Lk) to give besides: 0 the scores, 1 after softcap, 2 after the mask
    too, 3 after the softmax. None: none, and none are held in memory; in the operator the default is 0, and whether
    the output is connected decides. softmax_precision: 1, 10, 11 or 16, the lowest precision of the softmax, which
    here is never below float32; 11 computes in float64. opset: 23, 24 or 25, whose rules hold.

    Raises ShapeError, MaskError or ArgumentError. Schema, function body and errata of onnx 1.23.

    >>> q, k, v = torch.randn(2, 4, 5, 8), torch.randn(2, 2, 7, 8), torch.randn(2, 2, 7, 6)
    >>> attention(q, k, v, is_causal=1, left_window_size=2).Y.shape
    torch.Size([2, 4, 5, 6])
    """
    check_tensors(Q=Q, K=K, V=V)
    check_given(
        attn_mask=attn_mask, past_key=past_key, past_value=past_value, nonpad_kv_seqlen=nonpad_kv_seqlen
    )  # fmt: skip
    check_opset(opset, nonpad_kv_seqlen, left_window_size, right_window_size)
    check_attributes(is_causal, left_window_size, right_window_size, qk_matmul_output_mode, softmax_precision)
    check_scores(scale, softcap)
    q, k, v = _heads_apart(Q, K, V, q_num_heads, kv_num_heads, opset)
    k, v = _joined(k, v, past_key, past_value)
    offset = _offset(q, past_key, nonpad_kv_seqlen)
    mask = _band(left_window_size, 0 if is_causal else right_window_size, offset, q, k.shape[2])
    if nonpad_kv_seqlen is not None:
        mask = _both(lengths(nonpad_kv_seqlen.clamp(0, k.shape[2])), mask)
    mask, bias = _masked(mask, attn_mask, (*q.shape[:3], k.shape[2]), opset)
    rules: Rules = {"mask": mask, "attn_bias": bias, "scale": scale, "softcap": softcap or None}
    dtype = _precision(q, v, softmax_precision)
    y = headwise_attention(q.to(dtype), k.to(dtype), v.to(dtype), **rules).to(Q.dtype)
    y = y if Q.ndim == 4 else y.transpose(1, 2).flatten(2)
    if qk_matmul_output_mode is None:
        return Outputs(y, k, v, None)
    return Outputs(y, k, v, _scores(q.to(dtype), k.to(dtype), qk_matmul_output_mode, rules).to(Q.dtype))


def _precision(q: Tensor, v: Tensor, softmax_precision: int | None) -> torch.dtype:
    """The dtype to compute in, whose softmax is in float32 at least."""
    if softmax_precision == DOUBLE:
        return torch.float64
    wide = torch.promote_types(q.dtype, v.dtype)
    # torch's float16 on a CPU is slower than float32, and two roundings apart from what onnx's own tests allow
    return torch.float32 if wide is torch.float16 and q.device.type == "cpu" else wide


def _scores(q: Tensor, k: Tensor, mode: int, rules: Rules) -> Tensor:
    """The scores (B, Hq, Lq, Lk) as the operator's mode shows them."""
    if mode == 3:
        return reference.attention_weights(q, k, **rules)
    if mode < 2:
        capped = rules["softcap"] if mode == 1 else None
        return reference.scores(checked(q, k, k, scale=rules["scale"], softcap=capped))
    call = checked(q, k, k, **rules)
    scores = reference.scores(call)
    # a masked key shows -inf, whatever its score was
    return scores if call.allowed is None else scores.masked_fill(~call.allowed, float("-inf"))


def _heads_apart(
    Q: Tensor, K: Tensor, V: Tensor, q_num_heads: int | None, kv_num_heads: int | None, opset: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Q, K and V with four axes each."""
    ranks = [t.ndim for t in (Q, K, V)]
    shapes = f"Q {tuple(Q.shape)}, K {tuple(K.shape)}, V {tuple(V.shape)}"
    if ranks not in ([3] * 3, [4] * 3):
        raise ShapeError(f"Q, K and V must all have 3 axes or all have 4, but came as {shapes}")
    if Q.dtype not in DTYPES or K.dtype is not Q.dtype or V.dtype not in DTYPES:
        listed = ", ".join(str(dtype).removeprefix("torch.") for dtype in DTYPES)
        raise ArgumentError(
            f"Q and K must share one dtype, and all be {listed}, but came as {Q.dtype} and {K.dtype}, V {V.dtype}: "
            "cast them first"
        )
    counts = (q_num_heads, kv_num_heads, kv_num_heads)
    if Q.ndim == 4:
        wrong = any(n is not None and n != t.shape[1] for n, t in zip(counts, (Q, K, V), strict=True))
        if wrong or (opset >= 25 and counts != (None, None, None)):
            raise ArgumentError(
                f"heads are the second axis of inputs with 4 axes, {shapes}, but q_num_heads={q_num_heads} and "
                f"kv_num_heads={kv_num_heads} came: leave both out"
            )
        return Q, K, V
    apart = []
    for name, t, n in zip(("Q", "K", "V"), (Q, K, V), counts, strict=True):
        if not isinstance(n, int) or n < 1 or t.shape[2] % n:
            raise ShapeError(
                f"{name} {tuple(t.shape)} must divide into heads, but q_num_heads={q_num_heads} and "
                f"kv_num_heads={kv_num_heads}: inputs of 3 axes need both, and each must divide the last axis"
            )
        apart.append(t.unflatten(2, (n, t.shape[2] // n)).transpose(1, 2))
    return apart[0], apart[1], apart[2]


def _joined(k: Tensor, v: Tensor, past_key: Tensor | None, past_value: Tensor | None) -> tuple[Tensor, Tensor]:
    """Keys and values with their past before them."""
    if (past_key is None) != (past_value is None):
        missing = "past_key" if past_key is None else "past_value"
        raise ArgumentError(f"past_key and past_value are used together, but {missing} is missing: give both or none")
    if past_key is None or past_value is None:
        return k, v
    P = past_key.shape[2] if past_key.ndim == 4 else "P"
    for name, past, new in (("past_key", past_key, k), ("past_value", past_value, v)):
        B, Hk, _, width = new.shape
        if tuple(past.shape) != (B, Hk, P, width) or past.dtype is not new.dtype:
            raise ShapeError(
                f"{name} must be (B={B}, Hk={Hk}, P={P}, {width}) in {new.dtype}, as what it goes before, but came as "
                f"{tuple(past.shape)} in {past.dtype}: past_key and past_value hold the same P keys"
            )
    return torch.cat([past_key, k], dim=2), torch.cat([past_value, v], dim=2)


def _offset(q: Tensor, past_key: Tensor | None, nonpad_kv_seqlen: Tensor | None) -> int | Tensor:
    """The position of query 0: a number, or (B,) one to each sample."""
    if nonpad_kv_seqlen is None:
        return 0 if past_key is None else past_key.shape[2]
    if past_key is not None:
        raise ArgumentError(
            f"nonpad_kv_seqlen counts in a cache kept outside, but past_key {tuple(past_key.shape)} came too: give one"
        )
    if nonpad_kv_seqlen.shape != (q.shape[0],):
        raise ShapeError(
            f"nonpad_kv_seqlen must be (B={q.shape[0]},), one number to each sample, but came as "
            f"{tuple(nonpad_kv_seqlen.shape)}"
        )
    if nonpad_kv_seqlen.dtype not in (torch.int64, torch.int32):
        raise MaskError(
            f"nonpad_kv_seqlen counts tokens, so it must be integers, but {nonpad_kv_seqlen.dtype} came: count flags "
            "with .sum(-1)"
        )
    return nonpad_kv_seqlen - q.shape[2]


def _band(left: int, right: int, offset: int | Tensor, q: Tensor, total: int) -> Mask | None:
    """The keys from `left` before to `right` after each query's position, -1: all of that side; None: all keys."""
    if left < 0 and right < 0:
        return None
    if left >= 0 and right >= 0:
        return _placed(window(before=left, after=right), offset, q, total)
    if left < 0:
        return _placed(causal(), offset + right, q, total)
    # all but the keys at left + 1 before the query, and those before them
    return _placed(causal(), offset - left - 1, q, total).__invert__()


def _placed(mask: Mask, offset: int | Tensor, q: Tensor, total: int) -> Mask:
    """A mask whose query 0 sits at position `offset`, and key 0 at 0."""
    Lq = q.shape[2]
    if isinstance(offset, int) and offset == total - Lq:
        # as headwise places them anyway, and its kernels know that mask by name
        return mask
    rows = offset[:, None] if isinstance(offset, Tensor) else offset
    return mask.at(torch.arange(Lq, device=q.device) + rows, torch.arange(total, device=q.device))


def _both(first: Mask, second: Mask | None) -> Mask:
    return first if second is None else first & second


def _masked(
    mask: Mask | None, attn_mask: Tensor | None, sizes: tuple[int, ...], opset: int
) -> tuple[Mask | None, Tensor | None]:
    """The mask with attn_mask in it, and the bias to add; each None where there is none."""
    if attn_mask is None:
        return mask, None
    four = _four_axes(attn_mask, sizes, opset)
    return (_both(allowed(four), mask), None) if four.dtype is torch.bool else (mask, four)


def _four_axes(attn_mask: Tensor, sizes: tuple[int, ...], opset: int) -> Tensor:
    """attn_mask with four axes and a last one that fits, by the rules of the opset."""
    if attn_mask.dtype is not torch.bool and not attn_mask.is_floating_point():
        raise MaskError(
            f"attn_mask must be bool, True = may attend, or floating, to be added, but {attn_mask.dtype} came: "
            "compare flags (t != 0), or cast scores"
        )
    four = attn_mask[(None,) * (4 - attn_mask.ndim)] if 1 <= attn_mask.ndim <= 4 else attn_mask
    short = sizes[3] - attn_mask.shape[-1] if attn_mask.ndim else 0
    if opset >= 24 and short > 0:
        four = F.pad(four, (0, short), value=0.0 if four.dtype is torch.bool else float("-inf"))
    if four.ndim != 4 or any(n not in (1, size) for n, size in zip(four.shape, sizes, strict=True)):
        shorter = ", its last axis being as long or shorter" if opset >= 24 else ""
        raise MaskError(
            f"attn_mask must have 1 to 4 axes and broadcast to (B, Hq, Lq, P + Lk) = {sizes}{shorter}, but came as "
            f"{tuple(attn_mask.shape)} for opset {opset}"
        )
    return four
