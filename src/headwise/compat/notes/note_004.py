"""The class of the fourth note, which follows the Annotated Transformer: four linears in a list."""

from __future__ import annotations

from headwise.compat import annotated

__all__ = ["MultiHeadedAttention"]


class MultiHeadedAttention(annotated.MultiHeadedAttention):
    """Note 004: `headwise.compat.annotated.MultiHeadedAttention`, whose output goes through linears[-1].

    >>> x = torch.randn(2, 5, 12)
    >>> MultiHeadedAttention(h=3, d_model=12)(x, x, x).shape
    torch.Size([2, 5, 12])
    """
