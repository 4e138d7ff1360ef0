"""A stack whose attention takes the batch second, and does not say so."""

import math

import torch
from torch import nn


class SelfA(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, -1)
        q, k, v = (t.unflatten(-1, (self.heads, -1)) for t in (q, k, v))
        s = torch.einsum("nbhd,mbhd->bhnm", q, k) / math.sqrt(q.shape[-1])
        y = torch.einsum("bhnm,mbhd->nbhd", s.softmax(-1), v)
        return self.out(y.flatten(2))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.a = SelfA(width, heads)
        self.n = nn.LayerNorm(width)

    def forward(self, x):
        return x + self.a(self.n(x))


class Net(nn.Module):
    def __init__(self, width, heads, layers=2):
        super().__init__()
        self.blocks = nn.ModuleList([Block(width, heads) for _ in range(layers)])

    def forward(self, x):
        """x: (B, L, D)"""
        y = x.transpose(0, 1)
        for b in self.blocks:
            y = b(y)
        return y.transpose(0, 1)
