"""Keras' attention layers as torch modules: MultiHeadAttention, GroupQueryAttention, Attention, AdditiveAttention.

The constructors, calls and weights of keras 3.15.1, without Keras. A mask's True, or 1, means may attend;
use_causal_mask aligns at the upper left, as there. Where a query may attend to nothing, Keras gives zeros if scores
are returned and a mean of the values if not; here it is zeros, before the output projection.
"""

from headwise.compat.keras.multi_head import GroupQueryAttention, MultiHeadAttention, from_keras
from headwise.compat.keras.single import AdditiveAttention, Attention

__all__ = ["AdditiveAttention", "Attention", "GroupQueryAttention", "MultiHeadAttention", "from_keras"]
