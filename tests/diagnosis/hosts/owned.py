"""Attention with a class of its own for what it has seen."""
import torch
from torch import nn


class KVCache:
    def __init__(self):
        self.k = None
        self.v = None

    @property
    def length(self):
        return 0 if self.k is None else self.k.shape[1]

    def update(self, k, v):
        self.k = k if self.k is None else torch.cat((self.k, k), dim=1)
        self.v = v if self.v is None else torch.cat((self.v, v), dim=1)
        return self.k, self.v


def rotate(x, offset):
    d = x.shape[-1]
    pos = torch.arange(x.shape[1], dtype=x.dtype) + offset
    freq = 1.0 / 10000 ** (torch.arange(0, d, 2, dtype=x.dtype) / d)
    angle = torch.einsum("i,j->ij", pos, freq)[None, :, None, :]
    left, right = x.chunk(2, dim=-1)
    return torch.cat((left * angle.cos() - right * angle.sin(), right * angle.cos() + left * angle.sin()), dim=-1)


class OwnedAttention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.to_q, self.to_k, self.to_v = (nn.Linear(dim, dim, bias=False) for _ in range(3))
        self.to_out = nn.Linear(dim, dim)

    def forward(self, x, cache: KVCache | None = None):
        b, n, d = x.shape
        offset = 0 if cache is None else cache.length
        q = self.to_q(x).view(b, n, self.heads, -1)
        k = self.to_k(x).view(b, n, self.heads, -1)
        v = self.to_v(x).view(b, n, self.heads, -1)
        q = rotate(q, offset)
        k = rotate(k, offset)
        if cache is not None:
            k, v = cache.update(k, v)
        sim = torch.einsum("bihd,bjhd->bhij", q, k) * q.shape[-1] ** -0.5
        i = torch.arange(n)[:, None] + offset
        j = torch.arange(k.shape[1])[None, :]
        sim = torch.where(j <= i, sim, torch.finfo(sim.dtype).min)
        out = torch.einsum("bhij,bjhd->bihd", sim.softmax(-1), v)
        return self.to_out(out.reshape(b, n, d))
