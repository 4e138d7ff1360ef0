"""The class of the second note: W_q, W_k, W_v and W_o, for self-attention without a mask."""

from __future__ import annotations

from torch import Tensor

from headwise.compat.notes.four_linears import FourLinears
from headwise.compat.notes.table import NOTES

__all__ = ["MultiHeadAttention"]


class MultiHeadAttention(FourLinears):
    """Note 002: hidden_dim divided among num_heads; no mask, no dropout.

    >>> MultiHeadAttention(hidden_dim=12, num_heads=3)(torch.randn(2, 5, 12)).shape
    torch.Size([2, 5, 12])
    """

    def __init__(self, hidden_dim: int, num_heads: int) -> None:
        super().__init__(NOTES[1], hidden_dim, num_heads)
        self.hidden_dim = hidden_dim
        self.num_heads = num_heads
        self.d_k = hidden_dim // num_heads

    def forward(self, X: Tensor) -> Tensor:
        """X (B, L, hidden_dim) -> (B, L, hidden_dim): every token attends to every token."""
        return self.attend(X, X, X, mask=None, dropout=0.0)
