"""Attention as people write it, and as libraries do that are not installed here: sources to convert."""

import math

import torch
from torch import Tensor, nn


def _split(x: Tensor, heads: int) -> Tensor:
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def _attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
    scores = q @ k.mT / math.sqrt(q.shape[-1])
    scores = scores if mask is None else scores.masked_fill(mask == 0, -1e9)
    return (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)


class FirstNote(nn.Module):
    """q_proj, k_proj, v_proj, o_proj, and a mask of 1 and 0; floors: with the // of the note's text."""

    def __init__(self, model_dim: int, num_heads: int, *, floors: bool = False) -> None:
        super().__init__()
        self.num_heads, self.floors = num_heads, floors
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (nn.Linear(model_dim, model_dim) for _ in range(4))

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
        q, k, v = (_split(p(t), self.num_heads) for p, t in ((self.q_proj, q), (self.k_proj, k), (self.v_proj, v)))
        if self.floors:
            return self.o_proj((((q @ k.mT) // math.sqrt(q.shape[-1])).softmax(-1) @ v).transpose(1, 2).flatten(2))
        return self.o_proj(_attend(q, k, v, mask))


class SecondNote(nn.Module):
    """W_q, W_k, W_v, W_o with biases, self-attention without a mask."""

    def __init__(self, hidden_dim: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.W_q, self.W_k, self.W_v, self.W_o = (nn.Linear(hidden_dim, hidden_dim) for _ in range(4))

    def forward(self, X: Tensor) -> Tensor:
        return self.W_o(_attend(*(_split(p(X), self.num_heads) for p in (self.W_q, self.W_k, self.W_v)), None))


class BookMultiHeadAttention(nn.Module):
    """d2l's: other widths of queries, keys and values, and lengths of (B,) or (B, Lq)."""

    def __init__(self, key_size: int, query_size: int, value_size: int, num_hiddens: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        sizes = (query_size, key_size, value_size, num_hiddens)
        self.W_q, self.W_k, self.W_v, self.W_o = (nn.Linear(size, num_hiddens, bias=False) for size in sizes)

    def forward(self, queries: Tensor, keys: Tensor, values: Tensor, valid_lens: Tensor | None) -> Tensor:
        q, k, v = (_split(p(t), self.num_heads) for p, t in ((self.W_q, queries), (self.W_k, keys), (self.W_v, values)))
        mask = None
        if valid_lens is not None:
            lens = valid_lens[:, None] if valid_lens.ndim == 1 else valid_lens
            mask = (torch.arange(k.shape[2]) < lens[..., None])[:, None]
        return self.W_o(_attend(q, k, v, mask))


class MultiHeadedAttention(nn.Module):
    """The Annotated Transformer's: linears 0 to 3, and a mask without the axis of heads."""

    def __init__(self, h: int, d_model: int) -> None:
        super().__init__()
        self.h = h
        self.linears = nn.ModuleList([nn.Linear(d_model, d_model) for _ in range(4)])

    def forward(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None) -> Tensor:
        mask = None if mask is None else mask.unsqueeze(1)
        parts = (_split(p(t), self.h) for p, t in zip(self.linears, (query, key, value), strict=False))
        return self.linears[-1](_attend(*parts, mask))


class TimmAttention(nn.Module):
    """timm's: one packed qkv, and norms of queries and keys where asked for."""

    def __init__(self, dim: int, num_heads: int, *, qkv_bias: bool = False, norm: type | None = None) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.qkv, self.proj = nn.Linear(dim, 3 * dim, bias=qkv_bias), nn.Linear(dim, dim)
        made = (nn.Identity(), nn.Identity()) if norm is None else (norm(dim // num_heads, eps=1e-3) for _ in range(2))
        self.q_norm, self.k_norm = made

    def forward(self, x: Tensor, attn_mask: Tensor | None = None) -> Tensor:
        q, k, v = self.qkv(x).unflatten(-1, (3, self.num_heads, -1)).permute(2, 0, 3, 1, 4)
        return self.proj(_attend(self.q_norm(q), self.k_norm(k), v, attn_mask))


class InterleavedRotation(nn.Module):
    """torchtune's: pairs (2i, 2i + 1) of x (B, L, H, D) turn together."""

    def __init__(self, base: int = 10_000) -> None:
        super().__init__()
        self.base = base

    def forward(self, x: Tensor) -> Tensor:
        D, steps = x.shape[-1], torch.arange(x.shape[1], dtype=x.dtype)
        angles = steps[:, None] * self.base ** (-torch.arange(0, D, 2, dtype=x.dtype) / D)
        even, odd, cos, sin = x[..., 0::2], x[..., 1::2], angles.cos()[:, None], angles.sin()[:, None]
        return torch.stack((even * cos - odd * sin, even * sin + odd * cos), -1).flatten(-2)


class TuneMultiHeadAttention(nn.Module):
    """torchtune's: grouped heads, output_proj, a rotation handed in, causal unless a mask is given."""

    def __init__(self, embed_dim: int, num_heads: int, num_kv_heads: int, rotation: nn.Module | None) -> None:
        super().__init__()
        self.num_heads, self.num_kv_heads, self.pos_embeddings = num_heads, num_kv_heads, rotation
        width = embed_dim // num_heads
        self.q_proj = nn.Linear(embed_dim, embed_dim, bias=False)
        self.k_proj, self.v_proj = (nn.Linear(embed_dim, num_kv_heads * width, bias=False) for _ in range(2))
        self.output_proj = nn.Linear(embed_dim, embed_dim, bias=False)

    def forward(self, x: Tensor, y: Tensor, *, mask: Tensor | None = None) -> Tensor:
        q, k = self.q_proj(x).unflatten(-1, (self.num_heads, -1)), self.k_proj(y).unflatten(-1, (self.num_kv_heads, -1))
        if self.pos_embeddings is not None:
            q, k = self.pos_embeddings(q), self.pos_embeddings(k)
        q, k, v = q.transpose(1, 2), k.transpose(1, 2), _split(self.v_proj(y), self.num_kv_heads)
        if mask is None:
            mask = torch.ones(x.shape[1], y.shape[1]).tril()[None]
        group = self.num_heads // self.num_kv_heads
        return self.output_proj(_attend(q, k.repeat_interleave(group, 1), v.repeat_interleave(group, 1), mask[:, None]))
