"""Flex: masks to and from the mask_mod of FlexAttention."""

from __future__ import annotations

from torch import Tensor

from headwise.errors import MaskError
from headwise.masks.coordinates import Point, Sizes
from headwise.masks.leaves import Indexed, Rule
from headwise.masks.mask import Mask


def from_flex(mask_mod: Rule) -> Mask:
    """A mask_mod(b, h, q_idx, kv_idx) of FlexAttention as a mask, asked by row and column as FlexAttention asks it.

    Where Lq and Lk differ, row 0 is q_idx 0, not the position Lk - Lq at which `rule` would ask it.

    >>> print(from_flex(lambda b, h, q_idx, kv_idx: q_idx >= kv_idx).draw(2, 4))
    #...
    ##..
    """
    if not callable(mask_mod):
        raise MaskError(
            f"from_flex takes a function mask_mod(b, h, q_idx, kv_idx), but {type(mask_mod).__name__} came: of a "
            "BlockMask give its mask_mod"
        )
    return Indexed(mask_mod)


def to_flex(mask: Mask, Lq: int, Lk: int, *, batch: int | None = None, heads: int | None = None) -> Rule:
    """A mask as the mask_mod(b, h, q_idx, kv_idx) that FlexAttention's create_block_mask takes.

    It holds for these Lq and Lk only. batch, heads: those of the call, to check that the mask fits; None: as many as
    the mask's own tensors speak of.

    >>> from headwise import causal
    >>> from torch.nn.attention.flex_attention import create_mask
    >>> create_mask(to_flex(causal(), 2, 4), 1, 1, 2, 4, device="cpu")[0, 0]
    tensor([[ True,  True,  True, False],
            [ True,  True,  True,  True]])
    """
    mask.check(Sizes(mask.batch if batch is None else batch, mask.heads if heads is None else heads, Lq, Lk))

    def mask_mod(b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
        return mask.allows(Point(b, h, q_idx, kv_idx, q_idx + (Lk - Lq), kv_idx))

    return mask_mod
