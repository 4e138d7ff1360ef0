"""The class of the first note: q_proj, k_proj, v_proj and o_proj, for self- and cross-attention."""

from __future__ import annotations

from torch import Tensor, nn

from headwise.compat.inputs import chance
from headwise.compat.mask_flags import with_four_axes
from headwise.compat.notes.four_linears import FourLinears
from headwise.compat.notes.table import NOTES
from headwise.masks import Mask

__all__ = ["MultiHeadAttention"]


class MultiHeadAttention(FourLinears):
    """Note 000: model_dim divided among num_heads, dropout of the weights in training.

    >>> mha = MultiHeadAttention(model_dim=12, num_heads=3, dropout=0.1)
    >>> q, k = torch.randn(2, 5, 12), torch.randn(2, 7, 12)
    >>> mha(q, k, k).shape
    torch.Size([2, 5, 12])
    """

    def __init__(self, model_dim: int, num_heads: int, dropout: float = 0.1) -> None:
        super().__init__(NOTES[0], model_dim, num_heads)
        self.model_dim = model_dim
        self.num_heads = num_heads
        self.head_dim = model_dim // num_heads
        self.dropout = nn.Dropout(chance(dropout))

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | Mask | None = None) -> Tensor:
        """q (B, L, model_dim), k and v (B, S, model_dim) -> (B, L, model_dim).

        mask: 0 = blocked, (L, S) or broadcastable to (B, H, L, S), None: all pairs; a Mask too, as `hw.causal()`. A
        query that may attend to nothing gets zeros before o_proj; the note's -1e9 made it the mean of all values.
        """
        if isinstance(mask, Tensor):
            mask = with_four_axes("mask", mask, 4)
        return self.attend(q, k, v, mask=mask, dropout=self.dropout.p if self.dropout.training else 0.0)
