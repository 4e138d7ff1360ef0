"""Templates: correct classes of attention that the examples of several families of faults change."""

from __future__ import annotations

from headwise.diagnosis.faults.fault import Template

__all__ = ["CACHED", "CAUSAL", "CROSS", "IMPORTS", "INIT", "MULTIHEAD", "ROTARY", "SELF"]

IMPORTS = """import math

import torch
from torch import nn


"""
INIT = """class Attention(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        if d_model % n_heads:
            raise ValueError("n_heads must divide d_model")
        self.n_heads, self.head_dim = n_heads, d_model // n_heads
        self.q_proj = nn.Linear(d_model, d_model)
        self.k_proj = nn.Linear(d_model, d_model)
        self.v_proj = nn.Linear(d_model, d_model)
        self.out_proj = nn.Linear(d_model, d_model)
        self.dropout = nn.Dropout(0.1)

    def split(self, x):
        return x.view(x.shape[0], -1, self.n_heads, self.head_dim).transpose(1, 2)

"""
SELF = Template(
    "SELF",
    f"""{IMPORTS}{INIT}    def forward(self, x):
        q = self.split(self.q_proj(x))
        k = self.split(self.k_proj(x))
        v = self.split(self.v_proj(x))
        scores = q @ k.transpose(-2, -1)
        scores = scores / math.sqrt(self.head_dim)
        weights = self.dropout(scores.softmax(dim=-1))
        context = (weights @ v).transpose(1, 2)
        return self.out_proj(context.flatten(2))
""",
)
CROSS = Template(
    "CROSS",
    f"""{IMPORTS}{INIT}    def forward(self, query, key, value, mask=None):
        q = self.split(self.q_proj(query))
        k = self.split(self.k_proj(key))
        v = self.split(self.v_proj(value))
        scores = q @ k.transpose(-2, -1) / math.sqrt(self.head_dim)
        if mask is not None:
            scores = scores.masked_fill(mask == 0, torch.finfo(scores.dtype).min)
        weights = self.dropout(scores.softmax(dim=-1))
        context = (weights @ v).transpose(1, 2)
        return self.out_proj(context.flatten(2))
""",
)
CAUSAL = Template(
    "CAUSAL",
    f"""{IMPORTS}{INIT}    def forward(self, x):
        q = self.split(self.q_proj(x))
        k = self.split(self.k_proj(x))
        v = self.split(self.v_proj(x))
        scores = q @ k.transpose(-2, -1) / math.sqrt(self.head_dim)
        allowed = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool, device=x.device).tril()
        scores = scores.masked_fill(~allowed, float("-inf"))
        weights = self.dropout(scores.softmax(dim=-1))
        context = (weights @ v).transpose(1, 2)
        return self.out_proj(context.flatten(2))
""",
)
CACHED = Template(
    "CACHED",
    f"""{IMPORTS}{INIT}    def forward(self, x, past=None):
        q = self.split(self.q_proj(x))
        k = self.split(self.k_proj(x))
        v = self.split(self.v_proj(x))
        if past is not None:
            k = torch.cat([past[0], k], dim=2)
            v = torch.cat([past[1], v], dim=2)
        n, m = q.shape[2], k.shape[2]
        allowed = torch.ones(n, m, dtype=torch.bool, device=x.device).tril(m - n)
        scores = q @ k.transpose(-2, -1) / math.sqrt(self.head_dim)
        scores = scores.masked_fill(~allowed, float("-inf"))
        context = (scores.softmax(dim=-1) @ v).transpose(1, 2)
        return self.out_proj(context.flatten(2)), (k, v)
""",
)
ROTARY = Template(
    "ROTARY",
    f"""{IMPORTS}class Attention(nn.Module):
    def __init__(self, d_model, n_heads, n_kv_heads):
        super().__init__()
        if d_model % n_heads or n_heads % n_kv_heads:
            raise ValueError("n_heads must divide d_model, and n_kv_heads must divide n_heads")
        self.n_heads, self.n_kv_heads, self.head_dim = n_heads, n_kv_heads, d_model // n_heads
        self.q_proj = nn.Linear(d_model, d_model)
        self.k_proj = nn.Linear(d_model, n_kv_heads * self.head_dim)
        self.v_proj = nn.Linear(d_model, n_kv_heads * self.head_dim)
        self.out_proj = nn.Linear(d_model, d_model)

    def split(self, x, n_heads):
        return x.view(x.shape[0], -1, n_heads, self.head_dim).transpose(1, 2)

    def rotate(self, x, first=0):
        half = self.head_dim // 2
        positions = torch.arange(first, first + x.shape[2], device=x.device)
        angles = positions[:, None] * 10000.0 ** (-torch.arange(half, device=x.device) / half)
        cos, sin = angles.cos(), angles.sin()
        low, high = x.chunk(2, dim=-1)
        return torch.cat([low * cos - high * sin, high * cos + low * sin], dim=-1)

    def forward(self, x, past=None):
        q = self.split(self.q_proj(x), self.n_heads)
        k = self.split(self.k_proj(x), self.n_kv_heads)
        v = self.split(self.v_proj(x), self.n_kv_heads)
        first = 0 if past is None else past[0].shape[2]
        q = self.rotate(q, first)
        k = self.rotate(k, first)
        if past is not None:
            k, v = torch.cat([past[0], k], dim=2), torch.cat([past[1], v], dim=2)
        group = self.n_heads // self.n_kv_heads
        keys = k.repeat_interleave(group, dim=1)
        values = v.repeat_interleave(group, dim=1)
        allowed = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool, device=x.device).tril(first)
        scores = q @ keys.transpose(-2, -1) / math.sqrt(self.head_dim)
        weights = scores.masked_fill(~allowed, float("-inf")).softmax(dim=-1)
        context = (weights @ values).transpose(1, 2)
        return self.out_proj(context.flatten(2)), (k, v)
""",
)
# torch's own layer
MULTIHEAD = Template(
    "MULTIHEAD",
    f"""{IMPORTS}class Attention(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.attention = nn.MultiheadAttention(d_model, n_heads, batch_first=True)

    def forward(self, x):
        # x: (batch, length, d_model)
        return self.attention(x, x, x, need_weights=False)[0]
""",
)
