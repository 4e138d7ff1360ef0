"""The two masks of nn.MultiheadAttention as a mask and a bias, and whether they and its inputs fit each other."""

from __future__ import annotations

from typing import Any, NoReturn

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headwise.errors import ShapeError
from headwise.masks import Mask, allowed, causal, from_blocked
from headwise.ops.call import autocasts, cast_by_autocast
from headwise.ops.reference import attention_weights

__all__ = ["fits", "rules_of", "say_what_torch_says", "weights_of", "with_open_keys"]


def fits(
    layer: nn.MultiheadAttention,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    key_padding_mask: Tensor | None,
    attn_mask: Tensor | None,
) -> bool:
    """Whether the tensors of a call fit the layer and each other, and the masks have a dtype that has a meaning."""
    if query.ndim not in (2, 3) or key.ndim != query.ndim or value.shape[:-1] != key.shape[:-1]:
        return False
    if (query.shape[-1], key.shape[-1], value.shape[-1]) != (layer.embed_dim, layer.kdim, layer.vdim):
        return False
    batch_axis = None if query.ndim == 2 else 0 if layer.batch_first else 1
    if batch_axis is not None and query.shape[batch_axis] != key.shape[batch_axis]:
        return False
    length_axis = 1 if batch_axis == 0 else 0
    Lq, Lk = query.shape[length_axis], key.shape[length_axis]
    batch = () if batch_axis is None else (query.shape[batch_axis],)
    if key_padding_mask is not None and not _is_mask(key_padding_mask, (*batch, Lk)):
        return False
    H = layer.num_heads * (batch[0] if batch else 1)
    return attn_mask is None or _is_mask(attn_mask, (Lq, Lk)) or _is_mask(attn_mask, (H, Lq, Lk))


def _is_mask(t: Tensor, shape: tuple[int, ...]) -> bool:
    return t.shape == shape and (t.dtype is torch.bool or t.is_floating_point())


def rules_of(
    attn_mask: Tensor | None, key_padding_mask: Tensor | None, *, is_causal: bool, batch: int, heads: int
) -> tuple[Mask | None, Tensor | None]:
    """What the two masks block, and what they add to the scores, as mask and attn_bias of `hw.attention`.

    attn_mask (Lq, Lk) or (B*H, Lq, Lk), key_padding_mask (B, Lk); each bool, True = blocked, or floating, added, where
    -inf blocks. is_causal: no key after the query's position, beside what the masks say.
    """
    blocks, adds = {}, []
    for name, t in (("attn_mask", attn_mask), ("key_padding_mask", key_padding_mask)):
        if t is None:
            continue
        if t.dtype is torch.bool:
            blocks[name] = t
            continue
        # what blocks is passed as a mask, since a row of nothing but -inf has no gradient
        blocks[name] = t.isneginf()
        added = t.masked_fill(blocks[name], 0.0)
        if name == "key_padding_mask":
            adds.append(added[:, None, None])
        else:
            adds.append(added if added.ndim == 2 else added.reshape(batch, heads, *added.shape[1:]))
    mask = from_blocked(**blocks, num_heads=heads) if blocks else None
    if is_causal:
        mask = causal() if mask is None else causal() & mask
    return mask, None if not adds else adds[0] if len(adds) == 1 else adds[0] + adds[1]


def weights_of(q: Tensor, k: Tensor, mask: Mask | None, bias: Tensor | None) -> Tensor:
    """The weights (B, H, Lq, Lk) of a call of `hw.attention`, by their definition, which compiles and has gradients."""
    if not autocasts(q):
        return attention_weights(q, k, mask=mask, attn_bias=bias)
    q, k, _ = cast_by_autocast(q, k, k)
    with torch.autocast(q.device.type, enabled=False):
        return attention_weights(q, k, mask=mask, attn_bias=bias)


def with_open_keys(
    mask: Mask | None, bias: Tensor | None, q: Tensor, k: Tensor, more: int
) -> tuple[Mask | None, Tensor | None]:
    """The same rules for keys of which the last `more` are added ones, that every query sees."""
    B, H, Lq, _ = q.shape
    if mask is not None:
        dense = mask.allowed(Lq, k.shape[2] - more, batch=B, heads=H, device=q.device)
        mask = allowed(F.pad(dense, (0, more), value=True))
    return mask, None if bias is None else F.pad(bias, (0, more))


def say_what_torch_says(
    layer: nn.MultiheadAttention,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    key_padding_mask: Tensor | None,
    attn_mask: Tensor | None,
) -> NoReturn:
    """Raise what torch raises for tensors that do not fit, in its own words; ShapeError where it would take them."""
    # where it has been replaced it may have neither, and is not reached before the refusal
    out_weight: Any = getattr(layer.out_proj, "weight", None)
    out_bias = getattr(layer.out_proj, "bias", None)
    is_turned = layer.batch_first and query.ndim == 3
    q, k, v = (t.transpose(0, 1) if is_turned and t.ndim > 1 else t for t in (query, key, value))
    F.multi_head_attention_forward(
        q, k, v, layer.embed_dim, layer.num_heads, layer.in_proj_weight, layer.in_proj_bias, layer.bias_k,
        layer.bias_v, layer.add_zero_attn, 0.0, out_weight, out_bias,
        training=False, key_padding_mask=key_padding_mask, attn_mask=attn_mask,
        use_separate_proj_weight=layer.in_proj_weight is None, q_proj_weight=layer.q_proj_weight,
        k_proj_weight=layer.k_proj_weight, v_proj_weight=layer.v_proj_weight,
    )  # fmt: skip
    masks = {"key_padding_mask": key_padding_mask, "attn_mask": attn_mask}
    came = [f"{name} {tuple(t.shape)} {t.dtype}" for name, t in masks.items() if t is not None]
    raise ShapeError(
        f"query, key and value must share B, key and value a length, and be E={layer.embed_dim}, kdim={layer.kdim} and "
        f"vdim={layer.vdim} wide, with masks (B, Lk) and (Lq, Lk) or (B*H, Lq, Lk), but {tuple(query.shape)}, "
        f"{tuple(key.shape)} and {tuple(value.shape)} came{', with ' + ' and '.join(came) if came else ''}: give each "
        "axis its size"
    )
