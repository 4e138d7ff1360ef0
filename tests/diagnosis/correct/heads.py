import math

import torch
import torch.nn as nn
import torch.nn.functional as F


class MultiQuery(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads, self.d = heads, dim // heads
        self.q, self.kv, self.o = nn.Linear(dim, dim), nn.Linear(dim, 2 * self.d), nn.Linear(dim, dim)

    def forward(self, x):
        b, n, _ = x.shape
        q = self.q(x).view(b, n, self.heads, self.d).transpose(1, 2)
        k, v = self.kv(x).split(self.d, dim=-1)
        w = torch.einsum("bhid,bjd->bhij", q, k).mul(self.d**-0.5).softmax(-1)
        return self.o(torch.einsum("bhij,bjd->bihd", w, v).reshape(b, n, -1))


class Grouped(nn.Module):
    def __init__(self, dim, n_heads, n_kv_heads):
        super().__init__()
        self.h, self.g, self.d = n_heads, n_kv_heads, dim // n_heads
        self.q, self.o = nn.Linear(dim, dim), nn.Linear(dim, dim)
        self.k, self.v = nn.Linear(dim, n_kv_heads * self.d), nn.Linear(dim, n_kv_heads * self.d)

    def forward(self, x):
        b, n, _ = x.shape
        q = self.q(x).view(b, n, self.h, self.d).transpose(1, 2)
        k = self.k(x).view(b, n, self.g, self.d).transpose(1, 2).repeat_interleave(self.h // self.g, dim=1)
        v = self.v(x).view(b, n, self.g, self.d).transpose(1, 2).repeat_interleave(self.h // self.g, dim=1)
        return self.o(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, n, -1))


class Latent(nn.Module):
    """MLA: keys and values from one low-rank latent."""

    def __init__(self, dim, heads, rank=8, v_head_dim=13):
        super().__init__()
        self.heads, self.d, self.dv = heads, dim // heads, v_head_dim
        self.q, self.down = nn.Linear(dim, dim), nn.Linear(dim, rank)
        self.up = nn.Linear(rank, heads * (self.d + v_head_dim))
        self.o = nn.Linear(heads * v_head_dim, dim)

    def forward(self, x):
        b, n, _ = x.shape
        q = self.q(x).view(b, n, self.heads, self.d).transpose(1, 2)
        kv = self.up(self.down(x)).view(b, n, self.heads, self.d + self.dv).transpose(1, 2)
        k, v = kv.split([self.d, self.dv], dim=-1)
        w = (q @ k.mT * self.d**-0.5).softmax(-1)
        return self.o((w @ v).transpose(1, 2).reshape(b, n, -1))


class SingleHead(nn.Module):
    """One head, as a part of others: it has no output projection."""

    def __init__(self, embed_dim, head_size):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(embed_dim, head_size, bias=False) for _ in range(3))

    def forward(self, x):
        q, k, v = self.q(x), self.k(x), self.v(x)
        return torch.softmax(q @ k.transpose(1, 2) / math.sqrt(q.shape[-1]), dim=2) @ v


class Additive(nn.Module):
    def __init__(self, query_size, key_size, hidden):
        super().__init__()
        self.q, self.k = nn.Linear(query_size, hidden, bias=False), nn.Linear(key_size, hidden, bias=False)
        self.w = nn.Linear(hidden, 1, bias=False)

    def forward(self, queries, keys, values):
        features = torch.tanh(self.q(queries).unsqueeze(2) + self.k(keys).unsqueeze(1))
        return torch.bmm(self.w(features).squeeze(-1).softmax(-1), values)


class Interleaved(nn.Module):
    """Heads are the fast part of the width."""

    def __init__(self, dim, heads):
        super().__init__()
        self.heads, self.d = heads, dim // heads
        self.q, self.k, self.v, self.o = (nn.Linear(dim, dim) for _ in range(4))

    def forward(self, x):
        b, n, c = x.shape
        q, k, v = (f(x).view(b, n, self.d, self.heads).permute(0, 3, 1, 2) for f in (self.q, self.k, self.v))
        w = (q @ k.transpose(-2, -1) * self.d**-0.5).softmax(-1)
        return self.o((w @ v).permute(0, 2, 3, 1).reshape(b, n, c))


class TorchInside(nn.Module):
    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.norm = nn.LayerNorm(embed_dim)
        self.attn = nn.MultiheadAttention(embed_dim, num_heads, batch_first=True)

    def forward(self, x):
        y = self.norm(x)
        return x + self.attn(y, y, y, need_weights=False)[0]


class SetBlock(nn.Module):
    """Set Transformer's MAB."""

    def __init__(self, dim_Q, dim_K, dim_V, num_heads):
        super().__init__()
        self.dim_V, self.num_heads = dim_V, num_heads
        self.fc_q, self.fc_k, self.fc_v = nn.Linear(dim_Q, dim_V), nn.Linear(dim_K, dim_V), nn.Linear(dim_K, dim_V)
        self.fc_o = nn.Linear(dim_V, dim_V)

    def forward(self, Q, K):
        Q = self.fc_q(Q)
        K, V = self.fc_k(K), self.fc_v(K)
        split = self.dim_V // self.num_heads
        Q_, K_, V_ = (torch.cat(x.split(split, 2), 0) for x in (Q, K, V))
        A = torch.softmax(Q_.bmm(K_.transpose(1, 2)) / math.sqrt(self.dim_V), 2)
        out = torch.cat((Q_ + A.bmm(V_)).split(Q.size(0), 0), 2)
        return out + F.relu(self.fc_o(out))


class Perceiver(nn.Module):
    def __init__(self, dim, num_heads, num_latents=6):
        super().__init__()
        self.heads = num_heads
        self.latents = nn.Parameter(torch.randn(num_latents, dim))
        self.q, self.kv, self.o = nn.Linear(dim, dim), nn.Linear(dim, 2 * dim), nn.Linear(dim, dim)

    def forward(self, x):
        b, n, c = x.shape
        q = self.q(self.latents).expand(b, -1, -1).view(b, -1, self.heads, c // self.heads).transpose(1, 2)
        k, v = self.kv(x).view(b, n, 2, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        w = (q @ k.transpose(-2, -1) / (c // self.heads) ** 0.5).softmax(-1)
        return self.o((w @ v).transpose(1, 2).reshape(b, -1, c))


class ConvKeys(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads, self.d = heads, dim // heads
        self.q, self.v, self.o = nn.Linear(dim, dim), nn.Linear(dim, dim), nn.Linear(dim, dim)
        self.k = nn.Conv1d(dim, dim, 3, padding=1)

    def forward(self, x):
        b, n, _ = x.shape
        q = self.q(x).view(b, n, self.heads, self.d).transpose(1, 2)
        k = self.k(x.transpose(1, 2)).view(b, self.heads, self.d, n)
        v = self.v(x).view(b, n, self.heads, self.d).transpose(1, 2)
        return self.o(((q @ k / math.sqrt(self.d)).softmax(-1) @ v).transpose(1, 2).reshape(b, n, -1))


class MemoryTokens(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads, self.d = heads, dim // heads
        self.q, self.k, self.v, self.o = (nn.Linear(dim, dim) for _ in range(4))
        self.mem_k, self.mem_v = (
            nn.Parameter(torch.randn(heads, 2, self.d)),
            nn.Parameter(torch.randn(heads, 2, self.d)),
        )

    def forward(self, x):
        b, n, _ = x.shape
        q, k, v = (f(x).view(b, n, self.heads, self.d).transpose(1, 2) for f in (self.q, self.k, self.v))
        k = torch.cat([self.mem_k.expand(b, -1, -1, -1), k], dim=2)
        v = torch.cat([self.mem_v.expand(b, -1, -1, -1), v], dim=2)
        return self.o(((q @ k.mT / math.sqrt(self.d)).softmax(-1) @ v).transpose(1, 2).reshape(b, n, -1))


class ZeroStart(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads, self.d = heads, dim // heads
        self.qkv, self.o = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        nn.init.zeros_(self.o.weight)
        nn.init.zeros_(self.o.bias)

    def forward(self, x):
        b, n, c = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, self.heads, self.d).permute(2, 0, 3, 1, 4).unbind(0)
        return x + self.o(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, n, c))


class FrozenQueries(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads, self.d = heads, dim // heads
        self.q, self.k, self.v, self.o = (nn.Linear(dim, dim) for _ in range(4))
        self.q.requires_grad_(False)

    def forward(self, x):
        b, n, c = x.shape
        q, k, v = (f(x).view(b, n, self.heads, self.d).transpose(1, 2) for f in (self.q, self.k, self.v))
        return self.o(((q @ k.mT / math.sqrt(self.d)).softmax(-1) @ v).transpose(1, 2).reshape(b, n, c))


class BertMask(nn.Module):
    def __init__(self, hidden_size, num_heads):
        super().__init__()
        self.heads, self.d = num_heads, hidden_size // num_heads
        self.query, self.key, self.value = (nn.Linear(hidden_size, hidden_size) for _ in range(3))

    def forward(self, hidden_states, attention_mask=None):
        b, n, c = hidden_states.shape
        split = (f(hidden_states).view(b, n, self.heads, self.d) for f in (self.query, self.key, self.value))
        q, k, v = (each.permute(0, 2, 1, 3) for each in split)
        scores = torch.matmul(q, k.transpose(-1, -2)) / math.sqrt(self.d)
        if attention_mask is not None:
            scores = scores + (1.0 - attention_mask[:, None, None, :].to(scores.dtype)) * -10000.0
        return torch.matmul(scores.softmax(dim=-1), v).permute(0, 2, 1, 3).reshape(b, n, c)


class Blocks(nn.Module):
    """Local attention within blocks of four."""

    def __init__(self, dim, heads):
        super().__init__()
        self.heads, self.d = heads, dim // heads
        self.qkv, self.o = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

    def forward(self, x):
        b, n, c = x.shape
        x = F.pad(x, (0, 0, 0, -n % 4)).view(b, -1, 4, c)
        q, k, v = self.qkv(x).view(b, x.shape[1], 4, 3, self.heads, self.d).permute(3, 0, 1, 4, 2, 5)
        w = (q @ k.mT / math.sqrt(self.d)).softmax(-1)
        return self.o((w @ v).transpose(2, 3).reshape(b, -1, c))[:, :n]
