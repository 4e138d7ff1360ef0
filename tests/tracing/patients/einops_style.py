import torch
from torch import nn, einsum
from einops import rearrange, repeat


class CrossAttend(nn.Module):
    def __init__(self, dim, *, context_dim = None, heads = 8, dim_head = 64, dropout = 0.):
        super().__init__()
        inner = dim_head * heads
        context_dim = dim if context_dim is None else context_dim
        self.scale, self.heads = dim_head ** -0.5, heads
        self.to_q = nn.Linear(dim, inner, bias = False)
        self.to_kv = nn.Linear(context_dim, inner * 2, bias = False)
        self.drop = nn.Dropout(dropout)
        self.to_out = nn.Linear(inner, dim)

    def forward(self, x, context = None, mask = None):
        h = self.heads
        context = x if context is None else context
        q, k, v = self.to_q(x), *self.to_kv(context).chunk(2, dim = -1)
        q, k, v = map(lambda t: rearrange(t, 'b n (h d) -> (b h) n d', h = h), (q, k, v))
        sim = einsum('b i d, b j d -> b i j', q, k) * self.scale

        if mask is not None:
            keep = repeat(mask, 'b j -> (b h) 1 j', h = h)
            sim.masked_fill_(~keep, -torch.finfo(sim.dtype).max)

        attn = self.drop(sim.softmax(dim = -1))
        out = einsum('b i j, b j d -> b i d', attn, v)
        return self.to_out(rearrange(out, '(b h) n d -> b n (h d)', h = h))
