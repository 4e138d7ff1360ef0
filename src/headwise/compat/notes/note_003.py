"""The class of the third note, which follows the Chinese d2l: sizes of key, query and value, and valid_lens."""

from __future__ import annotations

from torch import Tensor

from headwise.compat import d2l

__all__ = ["MultiHeadAttention"]


class MultiHeadAttention(d2l.MultiHeadAttention):
    """Note 003: `headwise.compat.d2l.MultiHeadAttention` in its Chinese signature, the key's size first.

    >>> attention = MultiHeadAttention(100, 100, 100, 100, 5, 0.5).eval()
    >>> x, y = torch.ones(2, 4, 100), torch.ones(2, 6, 100)
    >>> attention(x, y, y, torch.tensor([3, 2])).shape
    torch.Size([2, 4, 100])
    """

    def __init__(
        self,
        key_size: int,
        query_size: int,
        value_size: int,
        num_hiddens: int,
        num_heads: int,
        dropout: float,
        bias: bool = False,
    ) -> None:
        super().__init__(key_size, query_size, value_size, num_hiddens, num_heads, dropout, bias)

    def transpose_qkv(self, X: Tensor, num_heads: int | None = None) -> Tensor:
        """X (B, L, num_hiddens) as (B·num_heads, L, num_hiddens // num_heads); num_heads: None: the layer's."""
        return d2l.transpose_qkv(X, self.num_heads if num_heads is None else num_heads)

    def transpose_output(self, X: Tensor, num_heads: int | None = None) -> Tensor:
        """The way back from `transpose_qkv`."""
        return d2l.transpose_output(X, self.num_heads if num_heads is None else num_heads)
