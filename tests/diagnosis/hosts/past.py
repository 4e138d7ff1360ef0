"""A decoder block's attention that takes what it returned before."""
import math

import torch
from torch import nn


class PastAttention(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads, self.d_head = n_heads, d_model // n_heads
        self.qkv = nn.Linear(d_model, 3 * d_model)
        self.proj = nn.Linear(d_model, d_model)

    def split(self, x):
        b, t, _ = x.shape
        return x.view(b, t, self.n_heads, self.d_head).transpose(1, 2)

    def forward(self, x, past=None):
        q, k, v = (self.split(each) for each in self.qkv(x).chunk(3, dim=-1))
        if past is not None:
            past_k, past_v = past
            k = torch.cat([past_k, k], dim=2)
            v = torch.cat([past_v, v], dim=2)
        present = (k, v)
        t, s = q.size(2), k.size(2)
        att = q @ k.transpose(-2, -1) / math.sqrt(self.d_head)
        keep = torch.ones(t, s, dtype=torch.bool).tril(diagonal=s - t)
        att = att.masked_fill(~keep, float("-inf")).softmax(dim=-1)
        out = (att @ v).transpose(1, 2).reshape(x.shape)
        return self.proj(out), present
