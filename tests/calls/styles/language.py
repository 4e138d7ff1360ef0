"""How language models are written: configs, packed projections, rotary positions, grouped heads, caches."""
# ruff: noqa  written as strangers write

import math
from dataclasses import dataclass
from typing import Optional

import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class GPTConfig:
    block_size: int = 1024
    vocab_size: int = 50304
    n_layer: int = 12
    n_head: int = 12
    n_embd: int = 768
    dropout: float = 0.0
    bias: bool = True


class CausalSelfAttention(nn.Module):
    def __init__(self, config):
        super().__init__()
        assert config.n_embd % config.n_head == 0
        self.c_attn = nn.Linear(config.n_embd, 3 * config.n_embd, bias=config.bias)
        self.c_proj = nn.Linear(config.n_embd, config.n_embd, bias=config.bias)
        self.attn_dropout = nn.Dropout(config.dropout)
        self.n_head, self.n_embd = config.n_head, config.n_embd
        mask = torch.tril(torch.ones(config.block_size, config.block_size))
        self.register_buffer("bias", mask.view(1, 1, config.block_size, config.block_size))

    def forward(self, x):
        B, T, C = x.size()
        q, k, v = self.c_attn(x).split(self.n_embd, dim=2)
        k = k.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        q = q.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        v = v.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
        att = att.masked_fill(self.bias[:, :, :T, :T] == 0, float("-inf"))
        y = self.attn_dropout(F.softmax(att, dim=-1)) @ v
        return self.c_proj(y.transpose(1, 2).contiguous().view(B, T, C))


class Block(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(config.n_embd), nn.LayerNorm(config.n_embd)
        self.attn = CausalSelfAttention(config)
        self.mlp = nn.Sequential(
            nn.Linear(config.n_embd, 4 * config.n_embd), nn.GELU(), nn.Linear(4 * config.n_embd, config.n_embd)
        )

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.wte = nn.Embedding(config.vocab_size, config.n_embd)
        self.wpe = nn.Embedding(config.block_size, config.n_embd)
        self.h = nn.ModuleList([Block(config) for _ in range(config.n_layer)])
        self.lm_head = nn.Linear(config.n_embd, config.vocab_size, bias=False)

    def forward(self, idx, targets=None):
        b, t = idx.size()
        assert t <= self.config.block_size
        x = self.wte(idx) + self.wpe(torch.arange(0, t))
        for block in self.h:
            x = block(x)
        return self.lm_head(x), None


class UntypedConfig(nn.Module):
    """The class of the config is nowhere to be seen."""

    def __init__(self, cfg):
        super().__init__()
        self.cfg = cfg
        self.qkv = nn.Linear(cfg.hidden_size, 3 * cfg.hidden_size)
        self.drop = nn.Dropout(cfg.attn_pdrop)

    def forward(self, x):
        b, t, e = x.shape
        h = self.cfg.num_attention_heads
        q, k, v = (each.view(b, t, h, e // h).transpose(1, 2) for each in self.qkv(x).chunk(3, -1))
        return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, e)


class DictConfig(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.att = nn.MultiheadAttention(cfg["emb_dim"], cfg["n_heads"], cfg["drop_rate"], batch_first=True)
        self.norm = nn.LayerNorm(cfg["emb_dim"])

    def forward(self, x):
        y = self.norm(x)
        return x + self.att(y, y, y, need_weights=False)[0]


@dataclass
class ModelArgs:
    dim: int = 4096
    n_layers: int = 32
    n_heads: int = 32
    n_kv_heads: Optional[int] = None
    max_batch_size: int = 32
    max_seq_len: int = 2048


def apply_rotary_emb(xq, xk, freqs_cis):
    xq_ = torch.view_as_complex(xq.float().reshape(*xq.shape[:-1], -1, 2))
    xk_ = torch.view_as_complex(xk.float().reshape(*xk.shape[:-1], -1, 2))
    freqs_cis = freqs_cis.view(1, xq_.shape[1], 1, xq_.shape[-1])
    return torch.view_as_real(xq_ * freqs_cis).flatten(3).type_as(xq), torch.view_as_real(xk_ * freqs_cis).flatten(
        3
    ).type_as(xk)


def repeat_kv(x, n_rep):
    bs, slen, n_kv_heads, head_dim = x.shape
    return (
        x[:, :, :, None, :]
        .expand(bs, slen, n_kv_heads, n_rep, head_dim)
        .reshape(bs, slen, n_kv_heads * n_rep, head_dim)
    )


class LlamaLike(nn.Module):
    def __init__(self, args: ModelArgs):
        super().__init__()
        self.n_heads = args.n_heads
        self.n_kv_heads = args.n_heads if args.n_kv_heads is None else args.n_kv_heads
        self.n_rep = self.n_heads // self.n_kv_heads
        self.head_dim = args.dim // args.n_heads
        self.wq = nn.Linear(args.dim, args.n_heads * self.head_dim, bias=False)
        self.wk = nn.Linear(args.dim, self.n_kv_heads * self.head_dim, bias=False)
        self.wv = nn.Linear(args.dim, self.n_kv_heads * self.head_dim, bias=False)
        self.wo = nn.Linear(args.n_heads * self.head_dim, args.dim, bias=False)

    def forward(self, x: torch.Tensor, start_pos: int, freqs_cis: torch.Tensor, mask: Optional[torch.Tensor]):
        bsz, seqlen, _ = x.shape
        xq = self.wq(x).view(bsz, seqlen, self.n_heads, self.head_dim)
        xk = self.wk(x).view(bsz, seqlen, self.n_kv_heads, self.head_dim)
        xv = self.wv(x).view(bsz, seqlen, self.n_kv_heads, self.head_dim)
        xq, xk = apply_rotary_emb(xq, xk, freqs_cis=freqs_cis)
        keys, values = repeat_kv(xk, self.n_rep).transpose(1, 2), repeat_kv(xv, self.n_rep).transpose(1, 2)
        scores = torch.matmul(xq.transpose(1, 2), keys.transpose(2, 3)) / math.sqrt(self.head_dim)
        if mask is not None:
            scores = scores + mask
        output = torch.matmul(F.softmax(scores.float(), dim=-1), values)
        return self.wo(output.transpose(1, 2).contiguous().view(bsz, seqlen, -1))


def rotate_half(x):
    x1, x2 = x.chunk(2, dim=-1)
    return torch.cat((-x2, x1), dim=-1)


class GroupedRotary(nn.Module):
    def __init__(self, hidden_size, num_heads, num_kv_heads):
        super().__init__()
        assert hidden_size % num_heads == 0 and num_heads % num_kv_heads == 0
        self.num_heads, self.num_kv_heads, self.head_dim = num_heads, num_kv_heads, hidden_size // num_heads
        self.q_proj = nn.Linear(hidden_size, num_heads * self.head_dim, bias=False)
        self.k_proj = nn.Linear(hidden_size, num_kv_heads * self.head_dim, bias=False)
        self.v_proj = nn.Linear(hidden_size, num_kv_heads * self.head_dim, bias=False)
        self.o_proj = nn.Linear(hidden_size, hidden_size, bias=False)

    def forward(self, hidden_states, cos, sin, attention_mask=None, past_key_value=None, use_cache=False):
        b, t, _ = hidden_states.shape
        q = self.q_proj(hidden_states).view(b, t, self.num_heads, self.head_dim).transpose(1, 2)
        k = self.k_proj(hidden_states).view(b, t, self.num_kv_heads, self.head_dim).transpose(1, 2)
        v = self.v_proj(hidden_states).view(b, t, self.num_kv_heads, self.head_dim).transpose(1, 2)
        q, k = q * cos + rotate_half(q) * sin, k * cos + rotate_half(k) * sin
        if past_key_value is not None:
            k, v = torch.cat([past_key_value[0], k], dim=2), torch.cat([past_key_value[1], v], dim=2)
        k = k.repeat_interleave(self.num_heads // self.num_kv_heads, dim=1)
        v = v.repeat_interleave(self.num_heads // self.num_kv_heads, dim=1)
        w = q @ k.transpose(2, 3) / math.sqrt(self.head_dim)
        if attention_mask is not None:
            w = w + attention_mask
        o = (w.softmax(-1) @ v).transpose(1, 2).reshape(b, t, -1)
        return self.o_proj(o), (k, v) if use_cache else None


class OwnRotary(nn.Module):
    """Makes its own angles, and keeps a cache inside."""

    def __init__(self, dim, n_head, max_seq_len=2048, base=10000):
        super().__init__()
        self.n_head, self.dh = n_head, dim // n_head
        inv = 1.0 / base ** (torch.arange(0, self.dh, 2).float() / self.dh)
        t = torch.outer(torch.arange(max_seq_len).float(), inv)
        self.register_buffer("cos", t.cos())
        self.register_buffer("sin", t.sin())
        self.wqkv = nn.Linear(dim, 3 * dim, bias=False)
        self.wo = nn.Linear(dim, dim, bias=False)

    def rope(self, x):
        x1, x2 = x[..., 0::2], x[..., 1::2]
        c, s = self.cos[: x.shape[-2]], self.sin[: x.shape[-2]]
        return torch.stack((x1 * c - x2 * s, x1 * s + x2 * c), -1).flatten(-2)

    def forward(self, x, kv_cache=None):
        B, T, _ = x.shape
        q, k, v = self.wqkv(x).view(B, T, 3, self.n_head, self.dh).permute(2, 0, 3, 1, 4).unbind(0)
        q, k = self.rope(q), self.rope(k)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.wo(y.transpose(1, 2).reshape(B, T, -1))


class LatentAttention(nn.Module):
    """DeepSeek's, without the cache."""

    def __init__(self, d_model, n_heads, kv_lora_rank, q_lora_rank, qk_nope_head_dim, qk_rope_head_dim, v_head_dim):
        super().__init__()
        self.n_heads, self.nope, self.rope, self.v_head_dim = n_heads, qk_nope_head_dim, qk_rope_head_dim, v_head_dim
        self.q_down = nn.Linear(d_model, q_lora_rank, bias=False)
        self.q_up = nn.Linear(q_lora_rank, n_heads * (qk_nope_head_dim + qk_rope_head_dim), bias=False)
        self.kv_down = nn.Linear(d_model, kv_lora_rank + qk_rope_head_dim, bias=False)
        self.kv_up = nn.Linear(kv_lora_rank, n_heads * (qk_nope_head_dim + v_head_dim), bias=False)
        self.out = nn.Linear(n_heads * v_head_dim, d_model, bias=False)
        self.rank = kv_lora_rank

    def forward(self, x):
        b, t, _ = x.shape
        q = self.q_up(self.q_down(x)).view(b, t, self.n_heads, -1).transpose(1, 2)
        c, k_rope = self.kv_down(x).split([self.rank, self.rope], dim=-1)
        kv = self.kv_up(c).view(b, t, self.n_heads, self.nope + self.v_head_dim).transpose(1, 2)
        k, v = kv.split([self.nope, self.v_head_dim], dim=-1)
        k = torch.cat([k, k_rope[:, None].expand(-1, self.n_heads, -1, -1)], -1)
        return self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, t, -1))


class AlibiAttention(nn.Module):
    def __init__(self, d_model, n_heads, causal=True):
        super().__init__()
        self.h, self.causal = n_heads, causal
        self.proj = nn.ModuleDict({n: nn.Linear(d_model, d_model) for n in "qkvo"})
        self.register_buffer("slopes", 2.0 ** (-8.0 * torch.arange(1, n_heads + 1) / n_heads))

    def forward(self, x):
        b, l, d = x.shape
        q, k, v = (self.proj[n](x).unflatten(-1, (self.h, d // self.h)).transpose(1, 2) for n in "qkv")
        s = q @ k.mT / (d // self.h) ** 0.5
        i = torch.arange(l)
        s = s + self.slopes[:, None, None] * (i[None, :] - i[:, None]).clamp(max=0)
        if self.causal:
            s = s.masked_fill(i[None, :] > i[:, None], torch.finfo(s.dtype).min)
        return self.proj["o"]((s.softmax(-1) @ v).transpose(1, 2).flatten(2))


class T5Attention(nn.Module):
    def __init__(self, d_model, d_kv, num_heads, relative_attention_num_buckets=32, has_relative_attention_bias=True):
        super().__init__()
        self.n_heads, self.d_kv, self.nb = num_heads, d_kv, relative_attention_num_buckets
        inner = num_heads * d_kv
        self.q, self.k, self.v = (nn.Linear(d_model, inner, bias=False) for _ in range(3))
        self.o = nn.Linear(inner, d_model, bias=False)
        self.bias = nn.Embedding(relative_attention_num_buckets, num_heads)

    def forward(self, hidden_states, mask=None, key_value_states=None, position_bias=None):
        kv = hidden_states if key_value_states is None else key_value_states
        b = hidden_states.shape[0]
        shape = lambda t: t.view(b, -1, self.n_heads, self.d_kv).transpose(1, 2)  # noqa: E731
        q, k, v = shape(self.q(hidden_states)), shape(self.k(kv)), shape(self.v(kv))
        scores = torch.matmul(q, k.transpose(3, 2))
        if position_bias is None:
            rel = torch.arange(k.shape[2])[None] - torch.arange(q.shape[2])[:, None]
            position_bias = self.bias(rel.clamp(-self.nb // 2, self.nb // 2 - 1) + self.nb // 2).permute(2, 0, 1)[None]
        scores = scores + position_bias
        if mask is not None:
            scores += mask
        w = F.softmax(scores.float(), dim=-1)
        return self.o(torch.matmul(w, v).transpose(1, 2).contiguous().view(b, -1, self.n_heads * self.d_kv))


class SinkAttention(nn.Module):
    def __init__(self, hidden, n_q_heads, n_kv_heads, head_dim, window):
        super().__init__()
        self.nq, self.nkv, self.hd, self.window = n_q_heads, n_kv_heads, head_dim, window
        self.qkv = nn.Linear(hidden, (n_q_heads + 2 * n_kv_heads) * head_dim)
        self.sinks = nn.Parameter(torch.zeros(n_q_heads))
        self.out = nn.Linear(n_q_heads * head_dim, hidden)

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = self.qkv(x).split([self.nq * self.hd, self.nkv * self.hd, self.nkv * self.hd], -1)
        q = q.view(b, t, self.nkv, self.nq // self.nkv, self.hd)
        k, v = k.view(b, t, self.nkv, self.hd), v.view(b, t, self.nkv, self.hd)
        s = torch.einsum("bqhgd,bkhd->bhgqk", q, k) / self.hd**0.5
        i = torch.arange(t)
        far = (i[:, None] - i[None] >= self.window) | (i[None] > i[:, None])
        s = s.masked_fill(far, float("-inf"))
        s = torch.cat([s, self.sinks.view(1, self.nkv, -1, 1, 1).expand(b, -1, -1, t, 1)], -1)
        w = s.softmax(-1)[..., :-1]
        return self.out(torch.einsum("bhgqk,bkhd->bqhgd", w, v).reshape(b, t, -1))


class QKNorm(nn.Module):
    def __init__(self, n_state: int, n_head: int):
        super().__init__()
        self.n_head = n_head
        self.query, self.key, self.value = (nn.Linear(n_state, n_state) for _ in range(3))
        self.out = nn.Linear(n_state, n_state)
        self.q_norm, self.k_norm = nn.RMSNorm(n_state // n_head), nn.RMSNorm(n_state // n_head)

    def forward(self, x, xa=None, mask=None, kv_cache=None):
        q, k, v = self.query(x), self.key(x if xa is None else xa), self.value(x if xa is None else xa)
        q, k, v = (t.view(*t.shape[:2], self.n_head, -1).permute(0, 2, 1, 3) for t in (q, k, v))
        qk = self.q_norm(q) @ self.k_norm(k).transpose(-1, -2)
        if mask is not None:
            qk = qk + mask[: q.shape[2], : k.shape[2]]
        return self.out((F.softmax(qk, dim=-1) @ v).permute(0, 2, 1, 3).flatten(start_dim=2)), qk.detach()
