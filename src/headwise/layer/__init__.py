"""The layer, with its specs of scoring, its cache for decoding and its memory for cross-attention."""

from headwise.layer.cache import KVCache
from headwise.layer.memory import Memory
from headwise.layer.multi_head import MultiHeadAttention
from headwise.layer.scores import Additive, DotProduct

__all__ = ["Additive", "DotProduct", "KVCache", "Memory", "MultiHeadAttention"]
