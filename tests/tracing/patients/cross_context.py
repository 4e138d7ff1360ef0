import torch
from torch import nn


class CrossAttention(nn.Module):
    def __init__(self, query_dim, context_dim, n_heads, d_head, is_inplace=False):
        super().__init__()
        self.n_heads, self.d_head = n_heads, d_head
        self.scale = d_head**-0.5
        d_attn = d_head * n_heads
        self.to_q = nn.Linear(query_dim, d_attn, bias=False)
        self.to_k = nn.Linear(context_dim, d_attn, bias=False)
        self.to_v = nn.Linear(context_dim, d_attn, bias=False)
        self.to_out = nn.Sequential(nn.Linear(d_attn, query_dim), nn.Dropout(0.0))

    def heads_to_batch(self, tensor):
        b, n, c = tensor.shape
        h = self.n_heads
        tensor = tensor.reshape(b, n, h, c // h)
        tensor = tensor.permute(0, 2, 1, 3).reshape(b * h, n, c // h)
        return tensor

    def batch_to_heads(self, tensor):
        bh, n, d = tensor.shape
        h = self.n_heads
        tensor = tensor.reshape(bh // h, h, n, d)
        return tensor.permute(0, 2, 1, 3).reshape(bh // h, n, d * h)

    def forward(self, x, context):
        q = self.heads_to_batch(self.to_q(x))
        k = self.heads_to_batch(self.to_k(context))
        v = self.heads_to_batch(self.to_v(context))
        scores = torch.baddbmm(
            torch.empty(q.shape[0], q.shape[1], k.shape[1]),
            q,
            k.transpose(-1, -2),
            beta=0,
            alpha=self.scale,
        )
        hidden = torch.bmm(scores.softmax(dim=-1), v)
        return self.to_out(self.batch_to_heads(hidden))
