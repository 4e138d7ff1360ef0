"""Torch multi-head: queries and keys of torch's own multi-head attention, computed anew from its inputs as torch does.

Its fast path computes them inside one kernel, and hooks or function modes would switch that path off.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headwise.masks import Mask, allowed, keys, lengths
from headwise.watching.kernels import top_left
from headwise.watching.record import CallRecord, Projected
from headwise.watching.session import Session

__all__ = ["of_encoder_layer", "of_function", "of_module", "result_of"]


def of_module(module: nn.MultiheadAttention, arguments: dict[str, Any]) -> CallRecord:
    """What nn.MultiheadAttention computes by on its fast path; arguments: the arguments of its forward by name."""
    return _of_fast(module, arguments["query"], arguments["attn_mask"], arguments["key_padding_mask"])


def of_function(arguments: dict[str, Any]) -> CallRecord:
    """What F.multi_head_attention_forward computes by; arguments: its arguments by name.

    query (Lq, B, E) or (Lq, E). A learned key and a key of zeros, where the module has them, come last.
    """
    query, key, heads = arguments["query"], arguments["key"], arguments["num_heads"]
    padding = arguments.get("key_padding_mask")
    if query.ndim == 2:
        query, key = query[:, None], key[:, None]
        padding = None if padding is None else padding[None]
    q, k = _projected(query, key, arguments)
    (Lq, B, _), is_causal, attn_mask = query.shape, arguments.get("is_causal", False), arguments.get("attn_mask")
    more = 0
    if arguments.get("bias_k") is not None:
        k, more = torch.cat([k, arguments["bias_k"].expand(1, B, -1).to(k.dtype)]), 1
    q = q.reshape(Lq, B, heads, -1).permute(1, 2, 0, 3)
    if arguments.get("static_k") is not None:
        k = arguments["static_k"].unflatten(0, (B, heads))
    else:
        k = k.reshape(k.shape[0], B, heads, -1).permute(1, 2, 0, 3)
    if arguments.get("add_zero_attn", False):
        k, more = torch.cat([k, k.new_zeros(B, heads, 1, k.shape[-1])], dim=2), more + 1
    dropout = float(arguments.get("dropout_p") or 0.0) if arguments.get("training", True) else 0.0
    rest: dict[str, Any] = {"v": _values(arguments, B, heads), "dropout": dropout}
    if is_causal and padding is None and not arguments.get("need_weights", True):
        # the hint takes the place of the mask that it describes
        return CallRecord(q, k, top_left(Lq, k.shape[2], q.device), **rest)
    return replace(_with_masks(q, k, attn_mask, padding, more), **rest)


def result_of(session: Session, name: str, arguments: dict[str, Any]) -> tuple[Tensor, Tensor | None]:
    """What F.multi_head_attention_forward gives where a session changes the call: its output, and its weights."""
    record = of_function(arguments)
    if record.dropout:
        # computed again, its weights would lose their dropout
        session.collector.miss(name, "drops some of its weights at random: call model.eval() first")
    context = session.add(name, record, record.context())
    B, H, Lq, Dv = context.shape
    merged = context.permute(2, 0, 1, 3).reshape(Lq, B, H * Dv)
    out = F.linear(merged, arguments["out_proj_weight"], arguments["out_proj_bias"])
    weights = None
    if arguments.get("need_weights", True):
        dense = record.map().dense().to(out.dtype)
        weights = session.add_weights(name, record, dense)
        weights = weights.mean(dim=1) if arguments.get("average_attn_weights", True) else weights
    if arguments["query"].ndim == 2:
        return out[:, 0], None if weights is None else weights[0]
    return out, weights


def of_encoder_layer(layer: nn.TransformerEncoderLayer, arguments: dict[str, Any], *, length: int | None) -> CallRecord:
    """What nn.TransformerEncoderLayer computes by on its fast path, where its attention module is never called.

    length: of the padded sequences, where the layer is handed them without their padding, as a nested tensor.
    """
    src: Tensor = arguments["src"]
    if not src.is_nested:
        x = layer.norm1(src) if layer.norm_first else src
        return _of_fast(layer.self_attn, x, arguments["src_mask"], arguments["src_key_padding_mask"])
    rows = src.unbind()
    real = torch.tensor([row.shape[0] for row in rows], device=src.device)
    size = max(length or 0, *(row.shape[0] for row in rows))
    x = src.to_padded_tensor(0.0, (len(rows), size, rows[0].shape[-1]))
    x = layer.norm1(x) if layer.norm_first else x
    record = _of_fast(layer.self_attn, x, None, None)
    # a row of padding does not exist there, so that it attends to nothing
    counts = torch.where(torch.arange(size, device=src.device) < real[:, None], real[:, None], 0)
    return CallRecord(record.q, record.k, lengths(counts), v=record.v)


def _of_fast(module: nn.MultiheadAttention, x: Tensor, attn_mask: Tensor | None, padding: Tensor | None) -> CallRecord:
    """The fast path reads every mask as bool, True = blocked; of a float mask all but its zeros are blocked."""
    E, heads = module.embed_dim, module.num_heads
    weight, bias = module.in_proj_weight, module.in_proj_bias
    both = F.linear(x, weight[: 2 * E], None if bias is None else bias[: 2 * E])
    q, k = (t.unflatten(-1, (heads, -1)).transpose(1, 2) for t in both.split(E, dim=-1))
    attn_mask, padding = (None if mask is None else mask.to(torch.bool) for mask in (attn_mask, padding))
    v = Projected(x, weight[2 * E :], None if bias is None else bias[2 * E :], heads)
    return replace(_with_masks(q, k, attn_mask, padding, 0), v=v)


def _values(arguments: dict[str, Any], B: int, heads: int) -> Tensor | Projected | None:
    """The values of F.multi_head_attention_forward; None: they did not come."""
    value, has_zero = arguments.get("value"), bool(arguments.get("add_zero_attn", False))
    if (static := arguments.get("static_v")) is not None:
        v = static.unflatten(0, (B, heads))
        return F.pad(v, (0, 0, 0, 1)) if has_zero else v
    if value is None:
        return None
    bias = arguments.get("in_proj_bias")
    is_apart = arguments.get("use_separate_proj_weight", False)
    weight = arguments["v_proj_weight"] if is_apart else arguments["in_proj_weight"].chunk(3)[2]
    x = (value[:, None] if value.ndim == 2 else value).transpose(0, 1)
    learned = arguments.get("bias_v")
    learned = None if learned is None else learned.reshape(-1)
    return Projected(x, weight, None if bias is None else bias.chunk(3)[2], heads, learned, has_zero)


def _projected(query: Tensor, key: Tensor, arguments: dict[str, Any]) -> tuple[Tensor, Tensor]:
    bias = arguments.get("in_proj_bias")
    b_q, b_k = (None, None) if bias is None else bias.chunk(3)[:2]
    if arguments.get("use_separate_proj_weight", False):
        w_q, w_k = arguments["q_proj_weight"], arguments["k_proj_weight"]
    else:
        w_q, w_k = arguments["in_proj_weight"].chunk(3)[:2]
    return F.linear(query, w_q, b_q), F.linear(key, w_k, b_k)


def _with_masks(q: Tensor, k: Tensor, attn_mask: Tensor | None, padding: Tensor | None, more: int) -> CallRecord:
    """The record of q and k under the two masks, bool with True = blocked, or float; `more` last keys are open."""
    B, heads = q.shape[:2]
    mask: Mask | None = None
    bias: Tensor | None = None
    if attn_mask is not None:
        four = attn_mask[None, None] if attn_mask.ndim == 2 else attn_mask.reshape(B, heads, *attn_mask.shape[1:])
        four = F.pad(four, (0, more))
        mask, bias = (allowed(~four), None) if four.dtype is torch.bool else (None, four)
    if padding is None:
        return CallRecord(q, k, mask, bias)
    padding = F.pad(padding, (0, more))
    if padding.dtype is not torch.bool:
        row = padding[:, None, None]
        return CallRecord(q, k, mask, row if bias is None else bias + row)
    keep = keys(~padding)
    return CallRecord(q, k, keep if mask is None else mask & keep, bias)
