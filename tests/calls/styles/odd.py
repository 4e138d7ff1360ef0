"""Attention that is written in other ways, or is another attention; and plain functions."""
# ruff: noqa  written as strangers write

import math

import torch
import torch.nn.functional as F
from torch import nn

n_embd = 48
block_size = 32


class GlobalHead(nn.Module):
    """Reads its width from the file."""

    def __init__(self, head_size):
        super().__init__()
        self.key = nn.Linear(n_embd, head_size, bias=False)
        self.query = nn.Linear(n_embd, head_size, bias=False)
        self.value = nn.Linear(n_embd, head_size, bias=False)
        self.register_buffer("tril", torch.tril(torch.ones(block_size, block_size)))

    def forward(self, x):
        B, T, C = x.shape
        wei = self.query(x) @ self.key(x).transpose(-2, -1) * C**-0.5
        wei = wei.masked_fill(self.tril[:T, :T] == 0, float("-inf"))
        return F.softmax(wei, dim=-1) @ self.value(x)


class TalkingHeads(nn.Module):
    def __init__(self, *, dim, num_heads):
        super().__init__()
        self.nh = num_heads
        self.qkv, self.out = nn.Linear(dim, dim * 3), nn.Linear(dim, dim)
        self.proj_l, self.proj_w = nn.Linear(num_heads, num_heads), nn.Linear(num_heads, num_heads)

    def forward(self, *, x, return_attn=False):
        b, n, c = x.shape
        q, k, v = self.qkv(x).reshape(b, n, 3, self.nh, -1).permute(2, 0, 3, 1, 4)
        a = self.proj_l((q @ k.transpose(-2, -1)).permute(0, 2, 3, 1)).permute(0, 3, 1, 2).softmax(-1)
        a = self.proj_w(a.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        y = self.out((a @ v).transpose(1, 2).reshape(b, n, c))
        return (y, a) if return_attn else y


class LinearAttention(nn.Module):
    def __init__(self, d_model, n_heads, eps=1e-6):
        super().__init__()
        self.h, self.eps = n_heads, eps
        self.q, self.k, self.v, self.o = (nn.Linear(d_model, d_model) for _ in range(4))

    def forward(self, queries, keys, values):
        N, L, _ = queries.shape
        _, S, _ = keys.shape
        q = F.elu(self.q(queries).view(N, L, self.h, -1)) + 1
        k = F.elu(self.k(keys).view(N, S, self.h, -1)) + 1
        v = self.v(values).view(N, S, self.h, -1)
        kv = torch.einsum("nshd,nshm->nhmd", k, v)
        z = 1 / (torch.einsum("nlhd,nhd->nlh", q, k.sum(dim=1)) + self.eps)
        return self.o(torch.einsum("nlhd,nhmd,nlh->nlhm", q, kv, z).reshape(N, L, -1))


class Performer(nn.Module):
    def __init__(self, emb, num_heads, nb_features=64):
        super().__init__()
        self.heads = num_heads
        self.qkv = nn.Linear(emb, 3 * emb)
        self.register_buffer("w", torch.randn(nb_features, emb // num_heads))

    def features(self, x):
        return torch.exp(x @ self.w.t() - x.pow(2).sum(-1, keepdim=True) / 2) / math.sqrt(self.w.shape[0])

    def forward(self, x):
        b, t, e = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, e // self.heads).permute(2, 0, 3, 1, 4)
        q, k = self.features(q * 0.1), self.features(k * 0.1)
        d = torch.einsum("bhtm,bhm->bht", q, k.sum(2)).unsqueeze(-1)
        return (
            (torch.einsum("bhtm,bhmd->bhtd", q, torch.einsum("bhtm,bhtd->bhmd", k, v)) / d)
            .transpose(1, 2)
            .reshape(b, t, e)
        )


class Linformer(nn.Module):
    def __init__(self, dim, seq_len, k=256, heads=8):
        super().__init__()
        assert (dim % heads) == 0, "dimension must be divisible by the number of heads"
        self.heads, self.dim_head, self.k = heads, dim // heads, k
        self.to_q, self.to_k, self.to_v = (nn.Linear(dim, dim, bias=False) for _ in range(3))
        self.proj_k, self.proj_v = nn.Parameter(torch.rand(seq_len, k)), nn.Parameter(torch.rand(seq_len, k))
        self.to_out = nn.Linear(dim, dim)

    def forward(self, x):
        b, n, d = x.shape
        q = self.to_q(x).reshape(b, n, self.heads, -1).transpose(1, 2)
        k = torch.einsum("bnd,nk->bkd", self.to_k(x), self.proj_k).reshape(b, self.k, self.heads, -1).transpose(1, 2)
        v = torch.einsum("bnd,nk->bkd", self.to_v(x), self.proj_v).reshape(b, self.k, self.heads, -1).transpose(1, 2)
        a = (q @ k.transpose(2, 3) * self.dim_head**-0.5).softmax(-1)
        return self.to_out((a @ v).transpose(1, 2).reshape(b, n, d))


class Retention(nn.Module):
    def __init__(self, hidden_size, heads, double_v_dim=False):
        super().__init__()
        self.h = heads
        self.gammas = (1 - torch.exp(torch.linspace(math.log(1 / 32), math.log(1 / 512), heads))).tolist()
        self.w_q = nn.Parameter(torch.randn(heads, hidden_size, hidden_size // heads) / hidden_size)
        self.w_k = nn.Parameter(torch.randn(heads, hidden_size, hidden_size // heads) / hidden_size)
        self.w_v = nn.Parameter(torch.randn(heads, hidden_size, hidden_size // heads) / hidden_size)

    def forward(self, X):
        n = torch.arange(X.shape[1])
        out = []
        for i in range(self.h):
            D = torch.where(n[:, None] >= n[None], self.gammas[i] ** (n[:, None] - n[None]).float(), 0.0)
            out.append(((X @ self.w_q[i]) @ (X @ self.w_k[i]).permute(0, 2, 1) * D) @ (X @ self.w_v[i]))
        return torch.cat(out, dim=2)


class EinsumParameters(nn.Module):
    def __init__(self, d_model: int, d_head: int, n_heads: int, init_range: float = 0.02):
        super().__init__()
        self.W_Q, self.W_K, self.W_V = (
            nn.Parameter(init_range * torch.randn(n_heads, d_model, d_head)) for _ in range(3)
        )
        self.W_O = nn.Parameter(init_range * torch.randn(n_heads, d_head, d_model))
        self.d_head = d_head

    def forward(self, normalized_resid_pre):
        q, k, v = (torch.einsum("bpm,nmh->bpnh", normalized_resid_pre, w) for w in (self.W_Q, self.W_K, self.W_V))
        s = torch.einsum("bqnh,bknh->bnqk", q, k) / self.d_head**0.5
        ones = torch.ones(s.shape[-2:], dtype=torch.bool)
        s = s.masked_fill(torch.triu(ones, 1), -1e5)
        return torch.einsum("bnqk,bknh,nhm->bqm", s.softmax(-1), v, self.W_O)


class KerasLike(nn.Module):
    def __init__(self, num_heads, key_dim, value_dim=None, units=None):
        super().__init__()
        self.num_heads, self.key_dim = num_heads, key_dim
        self.value_dim = value_dim or key_dim
        self.q, self.k = nn.LazyLinear(num_heads * key_dim), nn.LazyLinear(num_heads * key_dim)
        self.v, self.out = nn.LazyLinear(num_heads * self.value_dim), None

    def forward(self, query, value, key=None, attention_mask=None, return_attention_scores=False):
        key = value if key is None else key
        q, k, v = (
            t.unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for t in (self.q(query), self.k(key), self.v(value))
        )
        s = q @ k.transpose(-1, -2) / math.sqrt(self.key_dim)
        if attention_mask is not None:
            s = s + (1.0 - attention_mask[:, None].float()) * -1e9
        return (s.softmax(-1) @ v).transpose(1, 2).flatten(2)


class PerHead(nn.Module):
    def __init__(self, dimension: int, nb_heads: int):
        super().__init__()
        assert dimension % nb_heads == 0
        width = dimension // nb_heads
        self.qs, self.ks, self.vs = (
            nn.ModuleList(nn.Linear(dimension, width) for _ in range(nb_heads)) for _ in range(3)
        )

    def forward(self, sequences):
        result = []
        for sequence in sequences:
            heads = []
            for wq, wk, wv in zip(self.qs, self.ks, self.vs):
                q, k, v = wq(sequence), wk(sequence), wv(sequence)
                heads.append(torch.softmax(q @ k.T / q.shape[-1] ** 0.5, dim=-1) @ v)
            result.append(torch.hstack(heads))
        return torch.cat([torch.unsqueeze(r, dim=0) for r in result])


class Kaggle(nn.Module):
    """Pools over time."""

    def __init__(self, feature_dim, step_dim, bias=True, **kwargs):
        super().__init__(**kwargs)
        self.bias, self.feature_dim, self.step_dim = bias, feature_dim, step_dim
        self.weight = nn.Parameter(nn.init.kaiming_uniform_(torch.zeros(feature_dim, 1)))
        if bias:
            self.b = nn.Parameter(torch.zeros(step_dim))

    def forward(self, x, mask=None):
        eij = torch.mm(x.contiguous().view(-1, self.feature_dim), self.weight).view(-1, self.step_dim)
        if self.bias:
            eij = eij + self.b
        a = torch.exp(torch.tanh(eij))
        if mask is not None:
            a = a * mask
        a = a / (torch.sum(a, 1, keepdim=True) + 1e-10)
        return torch.sum(x * torch.unsqueeze(a, -1), 1)


class Compressed(nn.Module):
    def __init__(self, dim, heads, compression_factor=3):
        super().__init__()
        self.heads, self.cf = heads, compression_factor
        self.to_qkv = nn.Linear(dim, dim * 3, bias=False)
        self.compress = nn.Conv1d(dim, dim, compression_factor, stride=compression_factor, groups=heads)

    def forward(self, x, input_mask=None):
        b, t, d = x.shape
        q, k, v = self.to_qkv(x).chunk(3, dim=-1)
        k, v = (F.pad(each, (0, 0, self.cf - t % self.cf, 0)) for each in (k, v))
        k, v = (self.compress(each.transpose(1, 2)).transpose(1, 2) for each in (k, v))
        q, k, v = (each.reshape(b, -1, self.heads, d // self.heads).transpose(1, 2) for each in (q, k, v))
        return F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, t, d)


class Positional(nn.Module):
    """Takes what it is given, in order."""

    def __init__(self, size, h, p):
        super().__init__()
        self.inner = nn.MultiheadAttention(size, h, p, batch_first=True)

    def forward(self, *args):
        q, k, v = args
        return self.inner(q, k, v)[0]


class KvPair(nn.Module):
    def __init__(self, units: int, heads: int, rate: float = 0.1):
        super().__init__()
        self.heads = heads
        self.q, self.kv = nn.Linear(units, units), nn.Linear(units, 2 * units)

    def forward(self, x, memory, memory_mask):
        b, l, u = x.shape
        q = self.q(x).view(b, l, self.heads, u // self.heads).transpose(1, 2)
        k, v = self.kv(memory).view(b, -1, 2, self.heads, u // self.heads).permute(2, 0, 3, 1, 4)
        s = q @ k.transpose(-1, -2)
        s.masked_fill_(memory_mask[:, None, None, :], float("-inf"))
        return (s.softmax(-1) @ v).transpose(1, 2).reshape(b, l, u)


def attention(query, key, value, mask=None, dropout=None):
    d_k = query.size(-1)
    scores = torch.matmul(query, key.transpose(-2, -1)) / math.sqrt(d_k)
    if mask is not None:
        scores = scores.masked_fill(mask == 0, -1e9)
    p_attn = F.softmax(scores, dim=-1)
    return torch.matmul(p_attn, value), p_attn


def scaled_dot_product(q, k, v, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None):
    L, S = q.size(-2), k.size(-2)
    attn_bias = torch.zeros(L, S)
    if is_causal:
        attn_bias.masked_fill_(torch.ones(L, S, dtype=torch.bool).tril().logical_not(), float("-inf"))
    if attn_mask is not None:
        if attn_mask.dtype == torch.bool:
            attn_bias.masked_fill_(attn_mask.logical_not(), float("-inf"))
        else:
            attn_bias = attn_mask + attn_bias
    w = torch.softmax(q @ k.transpose(-2, -1) / math.sqrt(q.size(-1)) + attn_bias, dim=-1)
    return torch.dropout(w, dropout_p, train=True) @ v


def self_attention(x, W_q, W_k, W_v):
    q, k, v = x @ W_q, x @ W_k, x @ W_v
    return torch.softmax(q @ k.transpose(-1, -2) / k.shape[-1] ** 0.5, -1) @ v


def multi_head(x, wq, wk, wv, wo, n_heads):
    b, t, e = x.shape
    q, k, v = ((x @ w).view(b, t, n_heads, e // n_heads).transpose(1, 2) for w in (wq, wk, wv))
    return F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, t, e) @ wo


def unbatched(Q, K, V):
    return torch.softmax(Q @ K.T / math.sqrt(K.shape[1]), dim=1) @ V


def merged(q, k, v):
    return torch.bmm(torch.softmax(torch.bmm(q, k.transpose(1, 2)), -1), v)


def heads_last(q, k, v, causal=False):
    s = torch.einsum("bthd,bshd->bhts", q, k) / q.shape[-1] ** 0.5
    return torch.einsum("bhts,bshd->bthd", s.softmax(-1), v)


def split_heads(x, num_heads):
    return x.reshape(x.shape[0], x.shape[1], num_heads, x.shape[2] // num_heads).transpose(1, 2)
