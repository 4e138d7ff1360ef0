"""Rotary attention with buffers of a fixed length, told where the new tokens start."""
import torch
import torch.nn.functional as F
from torch import nn


def turned(x, cos, sin):
    a, b = x[..., ::2], x[..., 1::2]
    return torch.stack((a * cos - b * sin, a * sin + b * cos), dim=-1).flatten(-2)


class StartedAttention(nn.Module):
    def __init__(self, dim, n_heads, n_kv_heads, max_batch_size=8, max_seq_len=64):
        super().__init__()
        self.n_heads, self.n_kv_heads, self.head_dim = n_heads, n_kv_heads, dim // n_heads
        self.wq = nn.Linear(dim, n_heads * self.head_dim, bias=False)
        self.wk = nn.Linear(dim, n_kv_heads * self.head_dim, bias=False)
        self.wv = nn.Linear(dim, n_kv_heads * self.head_dim, bias=False)
        self.wo = nn.Linear(n_heads * self.head_dim, dim, bias=False)
        self.cache_k = torch.zeros(max_batch_size, max_seq_len, n_kv_heads, self.head_dim)
        self.cache_v = torch.zeros(max_batch_size, max_seq_len, n_kv_heads, self.head_dim)
        freqs = 10000.0 ** (-torch.arange(0, self.head_dim, 2).float() / self.head_dim)
        angles = torch.outer(torch.arange(max_seq_len).float(), freqs)
        self.register_buffer("cos", angles.cos()[:, None, :], persistent=False)
        self.register_buffer("sin", angles.sin()[:, None, :], persistent=False)

    def forward(self, x, start_pos=0):
        bsz, seqlen, _ = x.shape
        end = start_pos + seqlen
        q = self.wq(x).view(bsz, seqlen, self.n_heads, self.head_dim)
        k = self.wk(x).view(bsz, seqlen, self.n_kv_heads, self.head_dim)
        v = self.wv(x).view(bsz, seqlen, self.n_kv_heads, self.head_dim)
        cos, sin = self.cos[start_pos:end], self.sin[start_pos:end]
        q = turned(q, cos, sin)
        k = turned(k, cos, sin)
        self.cache_k[:bsz, start_pos:end] = k
        self.cache_v[:bsz, start_pos:end] = v
        keys, values = self.cache_k[:bsz, :end], self.cache_v[:bsz, :end]
        keys = keys.repeat_interleave(self.n_heads // self.n_kv_heads, dim=2).transpose(1, 2)
        values = values.repeat_interleave(self.n_heads // self.n_kv_heads, dim=2).transpose(1, 2)
        mask = torch.full((seqlen, end), float("-inf")).triu(diagonal=start_pos + 1)
        out = F.scaled_dot_product_attention(q.transpose(1, 2), keys, values, attn_mask=mask)
        return self.wo(out.transpose(1, 2).reshape(bsz, seqlen, -1))
