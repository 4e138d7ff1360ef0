import torch
from torch import nn


class PaddedAttention(nn.Module):
    """key_padding_mask (batch, keys): True is padding; attn_mask: True hides a key from a query."""

    def __init__(self, embed_dim, num_heads):
        super().__init__()
        if embed_dim % num_heads:
            raise ValueError("num_heads must divide embed_dim")
        self.num_heads, self.head_dim = num_heads, embed_dim // num_heads
        self.in_q = nn.Linear(embed_dim, embed_dim)
        self.in_k = nn.Linear(embed_dim, embed_dim)
        self.in_v = nn.Linear(embed_dim, embed_dim)
        self.output = nn.Linear(embed_dim, embed_dim)

    def heads(self, x):
        return x.unflatten(-1, (self.num_heads, self.head_dim)).movedim(-2, 1)

    def forward(self, query, key, value, key_padding_mask=None, attn_mask=None):
        q, k, v = self.heads(self.in_q(query)), self.heads(self.in_k(key)), self.heads(self.in_v(value))
        energy = torch.einsum("bhqd,bhkd->bhqk", q, k) * self.head_dim**-0.5
        if attn_mask is not None:
            energy = energy.masked_fill(attn_mask, -1e4)
        if key_padding_mask is not None:
            energy = energy.masked_fill(key_padding_mask[:, None, None, :], -1e4)
        share = energy.softmax(dim=-1)
        found = torch.einsum("bhqk,bhkd->bhqd", share, v)
        return self.output(found.movedim(1, -2).flatten(-2))
