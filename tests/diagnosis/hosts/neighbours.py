import math

import torch
from torch import nn


class NeighbourAttention(nn.Module):
    """Groups of neighbouring query heads share a key head; attn_mask is added to the scores."""

    def __init__(self, hidden_size, num_heads, num_kv_heads):
        super().__init__()
        if hidden_size % num_heads or num_heads % num_kv_heads:
            raise ValueError("heads must divide the width, and key heads the heads")
        self.num_heads, self.num_kv_heads = num_heads, num_kv_heads
        self.head_dim = hidden_size // num_heads
        self.groups = num_heads // num_kv_heads
        self.q = nn.Linear(hidden_size, num_heads * self.head_dim)
        self.k = nn.Linear(hidden_size, num_kv_heads * self.head_dim)
        self.v = nn.Linear(hidden_size, num_kv_heads * self.head_dim)
        self.o = nn.Linear(num_heads * self.head_dim, hidden_size)

    def forward(self, hidden, attn_mask=None):
        batch, length, _ = hidden.shape
        q = self.q(hidden).reshape(batch, length, self.num_heads, self.head_dim).permute(0, 2, 1, 3)
        k = self.k(hidden).reshape(batch, length, self.num_kv_heads, self.head_dim).permute(0, 2, 1, 3)
        v = self.v(hidden).reshape(batch, length, self.num_kv_heads, self.head_dim).permute(0, 2, 1, 3)
        k = k.repeat_interleave(self.groups, dim=1)
        v = v.repeat_interleave(self.groups, dim=1)
        logits = q @ k.mT / math.sqrt(self.head_dim)
        if attn_mask is not None:
            logits = logits + attn_mask
        probs = torch.softmax(logits, dim=-1)
        mixed = (probs @ v).permute(0, 2, 1, 3).reshape(batch, length, -1)
        return self.o(mixed)
