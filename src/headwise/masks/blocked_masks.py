"""Blocked masks: masks to and from the two of nn.MultiheadAttention, where True means blocked."""

from __future__ import annotations

import torch
from torch import Tensor

from headwise.errors import MaskError
from headwise.masks.algebra import And
from headwise.masks.coordinates import Grid, Sizes
from headwise.masks.mask import Mask
from headwise.masks.patterns import allowed, keys


def from_blocked(
    attn_mask: Tensor | None = None, key_padding_mask: Tensor | None = None, *, num_heads: int | None = None
) -> Mask:
    """The two masks of nn.MultiheadAttention, True = blocked, as one mask.

    attn_mask: bool (Lq, Lk), or (B*H, Lq, Lk) with the heads of a sample side by side, which needs num_heads.
    key_padding_mask: bool (B, Lk), or (Lk,) for one sample. None: blocks nothing, and not both may be None.

    >>> from_blocked(key_padding_mask=torch.tensor([[False, False, True]]))
    keys(keep=torch.tensor([[True, True, False]]))
    """
    parts = []
    if attn_mask is not None:
        _check_blocked("attn_mask", attn_mask)
        parts.append(_from_attn_mask(attn_mask, num_heads))
    if key_padding_mask is not None:
        _check_blocked("key_padding_mask", key_padding_mask)
        parts.append(keys(~(key_padding_mask[None] if key_padding_mask.ndim == 1 else key_padding_mask)))
    if not parts:
        raise MaskError(
            "from_blocked needs attn_mask, key_padding_mask or both, but None and None came: pass mask=None"
        )
    return parts[0] if len(parts) == 1 else And(*parts)


def _from_attn_mask(attn_mask: Tensor, num_heads: int | None) -> Mask:
    """What attn_mask lets through."""
    if attn_mask.ndim == 2:
        return allowed(~attn_mask)
    if attn_mask.ndim != 3 or num_heads is None:
        raise MaskError(
            f"attn_mask must be (Lq, Lk), or (B*H, Lq, Lk) with num_heads=H, but came as {tuple(attn_mask.shape)} with "
            f"num_heads={num_heads}: say how many heads it has"
        )
    if num_heads < 1 or attn_mask.shape[0] % num_heads:
        raise MaskError(
            f"num_heads={num_heads} must divide the first axis of attn_mask, B*H={attn_mask.shape[0]}: give the heads "
            "of one sample"
        )
    samples = attn_mask.shape[0] // num_heads
    return allowed(~attn_mask.reshape(samples, num_heads, *attn_mask.shape[1:]))


def to_blocked(mask: Mask, Lq: int, Lk: int, *, num_heads: int, batch: int | None = None) -> dict[str, Tensor | None]:
    """A mask as the two of nn.MultiheadAttention, True = blocked: attention(q, k, v, **to_blocked(mask, ...)).

    {"attn_mask": (Lq, Lk), (B*H, Lq, Lk) or None, "key_padding_mask": (B, Lk) or None}: what all queries and heads
    share goes into the second, the rest into the first. batch: None: as many samples as the mask's tensors speak of.
    A query that may attend to nothing gets zeros here, and NaN in most modes of nn.MultiheadAttention.

    >>> from headwise import causal, keys
    >>> both = to_blocked(causal() & keys(torch.tensor([[True, False]])), 2, 2, num_heads=4)
    >>> both["attn_mask"], both["key_padding_mask"]
    (tensor([[False,  True],
            [False, False]]), tensor([[False,  True]]))
    """
    sizes = Sizes(mask.batch if batch is None else batch, num_heads, Lq, Lk)
    mask.check(sizes)
    grid = Grid.whole(sizes, mask.device)
    attend, keep = None, None
    for factor in _factors(mask):
        free = factor.allows(grid)
        if free.shape[1] == free.shape[2] == 1:
            keep = free if keep is None else keep & free
        else:
            attend = free if attend is None else attend & free
    if attend is not None and attend.shape[:2] == (1, 1):
        attend = attend[0, 0].expand(Lq, Lk)
    elif attend is not None:
        attend = attend.expand(sizes).flatten(0, 1)
    return {
        "attn_mask": None if attend is None else ~attend,
        "key_padding_mask": None if keep is None else ~keep[:, 0, 0].expand(sizes.B, Lk),
    }


def _factors(mask: Mask) -> list[Mask]:
    """The masks that `&` joins."""
    return [*_factors(mask.left), *_factors(mask.right)] if isinstance(mask, And) else [mask]


def _check_blocked(name: str, t: Tensor) -> None:
    """Refuse a mask that is not bool, since a floating one adds."""
    if t.dtype is not torch.bool:
        raise MaskError(
            f"{name} must be bool, True = blocked, but {t.dtype} came: scores to add go through from_additive()"
        )
