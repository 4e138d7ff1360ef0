"""Kernels: what torch's scaled_dot_product_attention was given, and the lse that a fused kernel leaves."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend
from torch.utils._python_dispatch import TorchDispatchMode

from headwise.errors import ShapeError
from headwise.masks import Mask, allowed, causal
from headwise.ops.call import autocasts, cast_by_autocast
from headwise.shapes import broadcast_shape
from headwise.watching.record import CallRecord

__all__ = ["FUSED", "Kernels", "of_fused", "of_sdpa", "sdpa_is_fused", "top_left", "with_lse"]

aten = torch.ops.aten

FUSED_ON_CPU = aten._scaled_dot_product_flash_attention_for_cpu.default
# torch's fused kernels; each gives (out, lse, ...)
FUSED = frozenset(
    {
        FUSED_ON_CPU,
        aten._scaled_dot_product_flash_attention.default,
        aten._scaled_dot_product_efficient_attention.default,
        aten._scaled_dot_product_cudnn_attention.default,
    }
)


SDPA_ARGUMENTS = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal", "scale", "enable_gqa")


class Kernels(TorchDispatchMode):
    """A block that intercepts the fused kernels, below autograd: graph and numbers stay as they are.

    It is on for one call of a fused kernel at a time: torch.compile skips what runs while such a mode is on, and
    F.linear of a transposed input gives other last bits in inference mode. Measured on torch 2.13.
    """

    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        # as each fused kernel gave it; None: cuDNN's where no gradient is wanted
        self.lse: list[Tensor | None] = []

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        options = dict(kwargs or {})
        # in inference mode the call comes whole, and its kernel shows only when it is taken apart
        if func is aten.scaled_dot_product_attention.default:
            with self:
                return func.decompose(*args, **options)
        result = func(*args, **options)
        if func in FUSED:
            self.lse.append(result[1])
        return result


def of_cpu(args: Sequence[Any], options: Mapping[str, Any]) -> tuple[Tensor, Tensor] | None:
    """What scaled_dot_product_attention gives, and the lse: by torch's CPU kernel itself, which it would call.

    Bit-equal, and faster than to intercept it. None where it would call another kernel, or this one with other
    arguments, where its own arguments are wrong, and where a mode, a subclass of Tensor or torch.jit.trace is to see
    the function.
    """
    if torch._C._len_torch_function_stack() or torch._C._len_torch_dispatch_stack():
        return None
    if torch._C._get_tracing_state() is not None:
        return None
    try:
        q, k, v, mask, dropout, is_causal, scale, _ = _bound(*args, **options)
    except TypeError:
        # the function itself says what is wrong
        return None
    if not (type(q) is type(k) is type(v) is Tensor and q.is_cpu and q.ndim == k.ndim == v.ndim == 4):
        return None
    if autocasts(q) or (mask is not None and type(mask) is not Tensor):
        return None
    is_plain = q.shape[:2] == k.shape[:2] == v.shape[:2] and q.shape[3] == k.shape[3] == v.shape[3]
    if not is_plain or (mask is not None and (is_causal or mask.dtype is not torch.bool)):
        return None
    if torch._fused_sdp_choice(q, k, v, mask, dropout, is_causal, scale=scale) != SDPBackend.FLASH_ATTENTION.value:
        return None
    if mask is not None:
        mask = torch.zeros_like(mask, dtype=q.dtype).masked_fill_(~mask, float("-inf"))
    out, lse = FUSED_ON_CPU(q, k, v, dropout, is_causal, attn_mask=mask, scale=scale)
    return out, lse


def _bound(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> tuple[Any, Any, Any, Any, float, bool, float | None, bool]:
    """The arguments of scaled_dot_product_attention in the order of SDPA_ARGUMENTS."""
    return query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa


def of_fused(func: Any, args: Sequence[Any], options: Mapping[str, Any], *, lse: Tensor | None) -> CallRecord:
    """What a fused kernel was given, by the names of its schema, as each has its own order; lse: as it gave it."""
    names = [argument.name for argument in func._schema.arguments]
    arguments = dict(zip(names, args, strict=False)) | dict(options)
    mask = arguments.get("attn_mask", arguments.get("attn_bias"))
    causal, scale = arguments.get("is_causal", False), arguments.get("scale")
    q, k, v = (arguments[name] for name in SDPA_ARGUMENTS[:3])
    record = of_sdpa(q, k, v, mask, arguments.get("dropout_p", 0.0), is_causal=causal, scale=scale)
    return with_lse(record, [lse])


def of_sdpa(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> CallRecord:
    """What scaled_dot_product_attention computes by, as a record; takes what it takes.

    Leading axes become samples; without an axis of heads, (N, L, E), there is one head, but with enable_gqa three axes
    are (H, L, E).
    """
    if autocasts(query):
        if attn_mask is not None and attn_mask.is_floating_point():
            attn_mask = attn_mask.to(torch.get_autocast_dtype(query.device.type))
        query, key, value = cast_by_autocast(query, key, value)
    if enable_gqa and query.ndim == key.ndim == 3:
        query, key, value = query[None], key[None], value[None]
    rank = max(query.ndim, key.ndim)
    # after the samples come heads, rows and columns; in (N, L, E) no heads
    inner = 3 if rank > 3 else 2
    batch, q, k = tuple(query.shape[:-inner]), query, key
    v: Tensor | None = value
    # four axes that need no change are the usual case, and this runs beside every call
    if rank != 4 or query.ndim != key.ndim or batch != key.shape[:-inner]:
        whole = broadcast_shape(batch, key.shape[:-inner])
        if whole is None:
            came = f"query {tuple(query.shape)} and key {tuple(key.shape)}"
            raise ShapeError(f"query and key must have samples that broadcast, but {came} came: give both the same")
        batch = whole
        q, k = (_four(t, rank, batch) for t in (query, key))
        # values of more samples than queries and keys leave the map as it is, and the outputs unknown
        fits = broadcast_shape(batch, value.shape[:-inner]) == batch
        v = _four(value, rank, batch) if fits else None
    elif value.shape[:-inner] != batch:
        v = None
    if q.shape[1] == 1 < k.shape[1]:
        # one head of queries that meets several of keys, without grouping
        q = q.expand(-1, k.shape[1], -1, -1)
    mask, bias = None, None
    if attn_mask is not None:
        is_shared = math.prod(attn_mask.shape[:-inner]) == 1
        four = attn_mask if attn_mask.ndim == rank == 4 else _four(attn_mask, rank, None if is_shared else batch)
        mask, bias = (allowed(four), None) if four.dtype is torch.bool else (None, four)
    if is_causal:
        aligned = top_left(q.shape[2], k.shape[2], q.device)
        mask = aligned if mask is None else mask & aligned
    return CallRecord(q, k, mask, bias, scale, v=v, dropout=dropout_p)


def top_left(Lq: int, Lk: int, device: torch.device) -> Mask:
    """The causal mask of torch's is_causal: the first query sits at the first key, whatever Lq and Lk are."""
    if Lq == Lk:
        return causal()
    return causal().at(torch.arange(Lq, device=device), torch.arange(Lk, device=device))


def sdpa_is_fused(args: Sequence[Any], options: Mapping[str, Any]) -> bool:
    """Whether scaled_dot_product_attention, given these, runs a fused kernel; not asked in autocast."""
    arguments = dict(zip(SDPA_ARGUMENTS, args, strict=False)) | dict(options)
    q, k, v = (arguments.pop(name) for name in SDPA_ARGUMENTS[:3])
    return not autocasts(q) and bool(torch._fused_sdp_choice(q, k, v, **arguments) != SDPBackend.MATH.value)


def with_lse(record: CallRecord, lse: Sequence[Tensor | None]) -> CallRecord:
    """The record with the lse of the one fused kernel that ran; as it is, where none or several did."""
    if len(lse) != 1 or record.sink is not None or record.softcap is not None:
        return record
    (row_lse,), (B, Hq, Lq, _) = lse, record.q.shape
    if row_lse is None:
        return record
    if row_lse.ndim == 4 and row_lse.shape[-1] == 1:
        # cuDNN's comes as a column
        row_lse = row_lse[..., 0]
    if row_lse.numel() == B * Hq * Lq:
        # queries of heads that share keys come as those of one head
        return replace(record, lse=row_lse.reshape(B, Hq, Lq))
    # kernels pad the queries to whole tiles, and leave the lse out where no gradient is wanted
    if row_lse.ndim != 3 or row_lse.shape[-1] < Lq or row_lse.shape[0] * row_lse.shape[1] != B * Hq:
        return record
    return replace(record, lse=row_lse[..., :Lq].reshape(B, Hq, Lq))


def _four(t: Tensor, rank: int, batch: tuple[int, ...] | None) -> Tensor:
    """A tensor of `rank` axes, or fewer, as (B, H, rows, columns); batch: what its samples expand to, None: leave."""
    t = t.reshape((1,) * (rank - t.ndim) + t.shape)
    if rank < 4:
        t = t[None, None] if rank == 2 else t[:, None]
        return t if batch is None else t.expand(*(batch or (1,)), -1, -1, -1)
    if batch is None:
        return t.flatten(0, rank - 4)
    return t.expand(*batch, *t.shape[-3:]).flatten(0, rank - 4)
