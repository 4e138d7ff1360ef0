import torch
from torch import nn


class CrossAttention(nn.Module):
    def __init__(self, query_dim, context_dim, heads=8, dim_head=64):
        super().__init__()
        inner = heads * dim_head
        self.heads, self.dim_head = heads, dim_head
        self.to_q = nn.Linear(query_dim, inner, bias=False)
        self.to_k = nn.Linear(context_dim, inner, bias=False)
        self.to_v = nn.Linear(context_dim, inner, bias=False)
        self.to_out = nn.Linear(inner, query_dim)

    def heads_first(self, t):
        b, n, _ = t.shape
        t = t.reshape(b, n, self.heads, self.dim_head)
        return t.permute(0, 2, 1, 3).reshape(b * self.heads, n, self.dim_head)

    def heads_last(self, t):
        bh, n, d = t.shape
        t = t.reshape(bh // self.heads, self.heads, n, d)
        return t.permute(0, 2, 1, 3).reshape(bh // self.heads, n, d * self.heads)

    def forward(self, x, context):
        q = self.heads_first(self.to_q(x))
        k = self.heads_first(self.to_k(context))
        v = self.heads_first(self.to_v(context))
        sim = torch.einsum("bid,bjd->bij", q, k) * self.dim_head**-0.5
        attn = sim.softmax(dim=-1)
        out = torch.einsum("bij,bjd->bid", attn, v)
        return self.to_out(self.heads_last(out))
