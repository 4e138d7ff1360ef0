"""Hugging Face: the arguments of an attention function of transformers, and a proof that they were understood."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from headwise.errors import AttentionError
from headwise.masks import Mask, allowed
from headwise.ops import reference
from headwise.ops.call import cast_by_autocast, checked
from headwise.watching.record import CallRecord

__all__ = ["arguments_of", "deviation", "interface", "of_eager", "unpacked"]

# a bias that half precision holds without losing much of what is added to it
LEAST = -64.0

# its first arguments are these in every family, but not by these names
FIRST = ("module", "query", "key", "value", "attention_mask")


def arguments_of(function: Callable[..., Any], args: tuple[Any, ...], options: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of an attention function by name."""
    named = dict(zip(FIRST, args, strict=False))
    if len(args) > len(FIRST):
        names = list(inspect.signature(function).parameters)
        named |= dict(zip(names[len(FIRST) :], args[len(FIRST) :], strict=False))
    return named | dict(options)


def of_eager(arguments: Mapping[str, Any]) -> CallRecord:
    """What an eager attention function computes by, if it computes as the families do; `deviation` proves it."""
    module, scale = arguments["module"], arguments.get("scaling")
    q, k, v = cast_by_autocast(arguments["query"], arguments["key"], arguments["value"])
    hiding = arguments.get("attention_mask")
    mask: Mask | None = None
    bias = arguments.get("position_bias")
    if hiding is not None:
        hiding = hiding[..., : k.shape[-2]]
        if hiding.dtype is torch.bool:
            mask = allowed(hiding)
        else:
            bias = hiding if bias is None else bias + hiding
    if bias is not None and bias.dtype is torch.float16:
        bias = _swallowing(bias)
    sinks = arguments.get("s_aux", arguments.get("sinks", getattr(module, "sinks", None)))
    sink = sinks.reshape(-1) if isinstance(sinks, Tensor) and sinks.numel() == q.shape[1] else None
    dropout = float(arguments.get("dropout") or 0.0) if module.training else 0.0
    return CallRecord(
        q, k, mask, bias, None if scale is None else float(scale), arguments.get("softcap"), sink, v=v, dropout=dropout
    )


def unpacked(record: CallRecord, query: Tensor) -> CallRecord:
    """The record of one query a head, where the query heads of a group were passed to the kernel as rows.

    query: (B, Hq, 1, D), as it was before. Does nothing where the kernel got that shape.
    """
    B, Hq, Lq, D = query.shape
    if Lq != 1 or record.q.shape == query.shape or record.q.shape[1] * record.q.shape[2] != Hq:
        return record
    shape = (B, Hq, 1, -1)
    mask, bias, lse = record.mask, record.attn_bias, record.lse
    if mask is not None:
        dense = mask.allowed(record.q.shape[2], record.k.shape[2], batch=B, heads=record.q.shape[1])
        dense = dense[None, None] if dense.ndim == 2 else dense
        mask = allowed(_rows_as_heads(dense, record))
    if bias is not None:
        bias = _rows_as_heads(bias, record)
    return CallRecord(
        record.q.reshape(B, Hq, 1, D), record.k, mask, bias, record.scale, record.softcap, record.sink,
        None if lse is None else lse.reshape(shape[:3]), v=record.v, dropout=record.dropout,
    )  # fmt: skip


def _rows_as_heads(values: Tensor, record: CallRecord) -> Tensor:
    """Values broadcastable to (B, Hk, G, Lk) as (B, Hk·G, 1, Lk), or (B, 1, 1, Lk) where all heads share them."""
    if values.shape[1] == values.shape[2] == 1:
        return values
    heads, rows = record.q.shape[1:3]
    whole = values.expand(-1, heads, rows, -1)
    return whole.flatten(1, 2)[:, :, None]


def _swallowing(bias: Tensor) -> Tensor:
    """A float16 bias as one that gives a masked row the weights that float16 gives it.

    There, a number added to the least one is lost up to 16, so that a row masked by it has uniform weights.
    """
    largest = bias.amax(dim=-1, keepdim=True)
    is_closed = largest.isfinite() & (largest <= torch.finfo(bias.dtype).min / 2)
    if not bool(is_closed.any()):
        return bias
    even = torch.where(bias == largest, torch.finfo(torch.float32).min, float("-inf"))
    return torch.where(is_closed, even, bias.float())


def deviation(record: CallRecord, weights: object, *, dropout: float) -> str:
    """Why the weights that a function gave are not those of its record; "" where sampled rows agree.

    Of every sample and head the first, the last and the middle row are compared, and those that a bias closes by a
    number that half precision may round; by total variation, against what rounding can do. dropout: what the weights
    have been through; those it zeroed are left out.
    """
    if not isinstance(weights, Tensor) or weights.ndim != 4:
        return "its attention function gave no weights to prove the map by"
    try:
        call = checked(record.q, record.k, record.k, mask=record.mask, attn_bias=record.attn_bias,
                       scale=record.scale, softcap=record.softcap, sink=record.sink)  # fmt: skip
    except AttentionError as error:
        return f"its attention function takes another form of arguments: {str(error).splitlines()[0]}"
    if weights.shape != tuple(call.sizes):
        return f"its attention function gave weights {tuple(weights.shape)}, not {tuple(call.sizes)}"
    if weights.numel() == 0:
        return ""
    for rows in (slice(0, None, max(1, (call.sizes.Lq - 1) // 2)), _closed(record)):
        part = call.part(rows)
        expected = reference.weights(part, reference.scores(part))
        if expected.numel() == 0:
            continue
        came = weights[:, :, rows].to(expected.dtype)
        difference = (came * (1.0 - dropout) - expected).abs()
        if dropout:
            difference = difference.masked_fill(came == 0, 0.0)
        distance, limit = difference.sum(-1).amax(dim=(1, 2)) / 2, _limit(record, part)
        # also where it is NaN
        if not bool((distance <= limit).all()):
            sample = int(distance.nan_to_num(float("inf")).argmax())
            return (
                f"its own weights are {float(distance[sample]):.2g} away from softmax(q kᵀ) in sample {sample}, where "
                f"rounding explains {limit:.2g}"
            )
    return ""


def _closed(record: CallRecord) -> slice:
    """The rows, and those between them, that no key has but by a large negative bias, where it may be rounded."""
    bias = record.attn_bias
    if bias is None or record.q.dtype not in (torch.bfloat16, torch.float16):
        return slice(0, 0)
    largest = (
        bias.expand(*bias.shape[:-2], record.q.shape[2], -1).amax(dim=-1).reshape(-1, record.q.shape[2]).amin(dim=0)
    )
    closed = (largest < LEAST).nonzero().flatten().tolist()
    return slice(closed[0], closed[-1] + 1) if closed else slice(0, 0)


def _limit(record: CallRecord, part: Any) -> float:
    """How far rounding in the dtype of the model can move a row of weights."""
    q, k = part.q.float(), part.k.float()
    product = float(q.norm(dim=-1).max() * k.norm(dim=-1).max()) * abs(part.multiplier)
    limit = 8 * torch.finfo(torch.promote_types(q.dtype, record.q.dtype)).eps * (1.0 + product)
    if record.q.dtype in (torch.bfloat16, torch.float16):
        scores = (q @ reference.shared(k, part.groups).mT).abs().max() * abs(part.multiplier)
        limit += torch.finfo(record.q.dtype).eps * (1.0 + float(scores))
    return float(limit)


def interface() -> Any:
    """The class by which models of transformers find their attention function; None where none is loaded."""
    module = sys.modules.get("transformers.modeling_utils")
    return getattr(module, "AttentionInterface", None)
