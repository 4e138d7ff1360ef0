"""Attention code in several styles, for the tests of tracing: what it does is said in the tests, by hand."""

import math

import torch
import torch.nn.functional as F
from torch import nn


class Plain(nn.Module):
    def __init__(self, d_model, h):
        super().__init__()
        self.h, self.d_k = h, d_model // h
        self.q, self.k, self.v, self.o = (nn.Linear(d_model, d_model) for _ in range(4))

    def split(self, x):
        return x.view(x.size(0), -1, self.h, self.d_k).transpose(1, 2)

    def forward(self, query, key):
        q = self.split(self.q(query))
        k, v = self.split(self.k(key)), self.split(self.v(key))
        w = F.softmax(q @ k.transpose(-2, -1) / math.sqrt(self.d_k), dim=-1)
        return self.o((w @ v).transpose(1, 2).flatten(2))


class QueryLength(Plain):
    def forward(self, query, key):
        B, L, _ = query.shape
        q = self.q(query).view(B, L, self.h, self.d_k).transpose(1, 2)
        k = self.k(key).view(B, L, self.h, self.d_k).transpose(1, 2)
        return (q @ k.mT).softmax(-1)


class MergedWithoutTranspose(Plain):
    def forward(self, query, key):
        B, L, D = query.shape
        q, k, v = (self.split(one(x)) for one, x in ((self.q, query), (self.k, key), (self.v, key)))
        return self.o(F.scaled_dot_product_attention(q, k, v).reshape(B, L, D))


class Packed(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        B, T, C = x.size()
        q, k, v = self.qkv(x).reshape(B, T, 3, self.heads, C // self.heads).permute(2, 0, 3, 1, 4)
        w = torch.einsum("bhid,bhjd->bhij", q, k)
        w = w.masked_fill(torch.ones(T, T).triu(1).bool(), -math.inf).softmax(-1)
        return self.out(torch.einsum("bhij,bhjd->bihd", w, v).reshape(B, T, C))


class PerHead(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.each = nn.ModuleList([nn.Linear(width, width // heads) for _ in range(heads)])

    def forward(self, x):
        return torch.cat([one(x) for one in self.each], dim=-1)


def rotated(x):
    a, b = x.chunk(2, dim=-1)
    return torch.cat((-b, a), dim=-1)


def interleaved(x):
    return torch.stack((-x[..., 1::2], x[..., ::2]), dim=-1).flatten(-2)


def relative(q, table):
    L = q.shape[1]
    at = torch.arange(L)
    return table[at[:, None] - at[None, :] + L - 1]


def windows(x, w):
    B, L, D = x.shape
    parts = x.view(B, L // w, w, D).flatten(0, 1)
    return parts @ parts.mT


def grouped(k, g):
    a = k.repeat_interleave(g, dim=1)
    b = k[:, :, None].expand(-1, -1, g, -1, -1).flatten(1, 2)
    return a + b


def chosen(x):
    return x[x > 0]
