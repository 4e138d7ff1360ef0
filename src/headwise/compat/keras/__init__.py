"""Keras' attention layers as torch modules: MultiHeadAttention, GroupQueryAttention, Attention, AdditiveAttention.

The constructors, calls and weights of keras 3.15.1, without Keras. A mask's True, or 1, means may attend;
use_causal_mask aligns at the upper left, as there. Where a query may attend to nothing, Keras gives zeros if scores
are returned and a mean of the values if not; here it is zeros, before the output projection.

Dtypes. Keras casts inputs to the dtype of the layer's policy, float32 unless told otherwise. Here nothing is cast:
inputs must be in the dtype of the weights, which is `dtype=`, or that of `.half()` and its like, or else that of the
first query; a layer without weights computes in the dtype that comes. In a half Keras rounds its scores before the
softmax, headwise does not; in float64 Keras on torch goes down to float32 unless it returns scores, headwise does not.
Scores come in the dtype of the output. A bfloat16 layer's `keras_weights` are float32 arrays.
"""

from headwise.compat.keras.multi_head import GroupQueryAttention, MultiHeadAttention, from_keras
from headwise.compat.keras.single_head import AdditiveAttention, Attention

__all__ = ["AdditiveAttention", "Attention", "GroupQueryAttention", "MultiHeadAttention", "from_keras"]
