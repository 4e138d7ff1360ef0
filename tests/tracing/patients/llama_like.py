import torch
from torch import nn


class Rope(nn.Module):
    def __init__(self, dim, base=10000.0):
        super().__init__()
        inv_freq = base ** -(torch.arange(0, dim, 2).float() / dim)
        self.register_buffer("inv_freq", inv_freq, persistent=False)

    def forward(self, first, count):
        pos = torch.arange(first, first + count).float()
        angles = torch.outer(pos, self.inv_freq)
        both = torch.cat((angles, angles), dim=-1)
        return both.cos(), both.sin()


def turn_half(x):
    half = x.shape[-1] // 2
    a, b = x[..., :half], x[..., half:]
    return torch.cat((-b, a), dim=-1)


def spread(kv, n_rep):
    bsz, n_kv, slen, hd = kv.shape
    kv = kv[:, :, None].expand(bsz, n_kv, n_rep, slen, hd)
    return kv.reshape(bsz, n_kv * n_rep, slen, hd)


class GroupedQueryAttention(nn.Module):
    def __init__(self, hidden_size, num_heads, num_kv_heads, head_dim):
        super().__init__()
        self.num_heads, self.num_kv_heads, self.head_dim = num_heads, num_kv_heads, head_dim
        self.q_proj = nn.Linear(hidden_size, num_heads * head_dim, bias=False)
        self.k_proj = nn.Linear(hidden_size, num_kv_heads * head_dim, bias=False)
        self.v_proj = nn.Linear(hidden_size, num_kv_heads * head_dim, bias=False)
        self.o_proj = nn.Linear(num_heads * head_dim, hidden_size, bias=False)
        self.rope = Rope(head_dim)

    def forward(self, x, past=None):
        bsz, qlen, _ = x.shape
        q = self.q_proj(x).view(bsz, qlen, self.num_heads, self.head_dim).transpose(1, 2)
        k = self.k_proj(x).view(bsz, qlen, self.num_kv_heads, self.head_dim).transpose(1, 2)
        v = self.v_proj(x).view(bsz, qlen, self.num_kv_heads, self.head_dim).transpose(1, 2)
        cos, sin = self.rope(0 if past is None else past[0].shape[-2], qlen)
        q = q * cos + turn_half(q) * sin
        k = k * cos + turn_half(k) * sin
        if past is not None:
            k, v = torch.cat([past[0], k], dim=2), torch.cat([past[1], v], dim=2)
        klen = k.shape[2]
        n_rep = self.num_heads // self.num_kv_heads
        scores = q @ spread(k, n_rep).transpose(2, 3) * self.head_dim**-0.5
        seen = torch.ones(qlen, klen, dtype=torch.bool).tril(klen - qlen)
        probs = scores.masked_fill(~seen, float("-inf")).softmax(-1)
        out = (probs @ spread(v, n_rep)).transpose(1, 2).reshape(bsz, qlen, -1)
        return self.o_proj(out), (k, v)
