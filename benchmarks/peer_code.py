"""Each peer's self-attention with given weights: libraries as they are, and two textbooks' styles written anew."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.harness import NotMeasuredError, Tensors
from benchmarks.layer import Sizes, Written


class Built(NamedTuple):
    """A peer ready to run: its module, and how to call it on x (B, L, E)."""

    module: nn.Module
    call: Callable[[Tensor], Tensor]


class Textbook(nn.Module):
    """In the style of the Annotated Transformer: heads as an axis, four projections, softmax of the whole matrix."""

    def __init__(self, E: int, H: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.H, self.width = H, E // H
        self.projections = nn.ModuleList(nn.Linear(E, E) for _ in range(3))
        self.out = nn.Linear(E, E)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """x (B, L, E) -> (B, L, E)."""
        B, L, E = x.shape
        q, k, v = (project(x).view(B, L, self.H, self.width).transpose(1, 2) for project in self.projections)
        scores = torch.matmul(q, k.transpose(-2, -1)) / math.sqrt(self.width)
        weights = self.dropout(scores.softmax(dim=-1))
        mixed = torch.matmul(weights, v).transpose(1, 2).contiguous().view(B, L, E)
        out: Tensor = self.out(mixed)
        return out


class FoldedHeads(Textbook):
    """In the style of Dive into Deep Learning: heads folded into the batch, and batched products."""

    def forward(self, x: Tensor) -> Tensor:
        """x (B, L, E) -> (B, L, E)."""
        B, L, E = x.shape
        q, k, v = (self._fold(project(x)) for project in self.projections)
        weights = F.softmax(torch.bmm(q, k.transpose(1, 2)) / math.sqrt(self.width), dim=-1)
        mixed = torch.bmm(self.dropout(weights), v)
        unfolded = mixed.reshape(B, self.H, L, self.width).permute(0, 2, 1, 3).reshape(B, L, E)
        out: Tensor = self.out(unfolded)
        return out

    def _fold(self, x: Tensor) -> Tensor:
        B, L, _ = x.shape
        split = x.reshape(B, L, self.H, self.width).permute(0, 2, 1, 3)
        return split.reshape(B * self.H, L, self.width)


class Flexed(Written):
    """Projections by hand around a compiled FlexAttention."""

    def __init__(self, E: int, H: int) -> None:
        from torch.nn.attention.flex_attention import flex_attention

        super().__init__(E, H, "separate")
        self.attend = torch.compile(flex_attention, dynamic=False)

    def mix(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """(B, H, L, D) each -> (B, H, L, D)."""
        mixed: Tensor = self.attend(q, k, v)
        return mixed


def by_hand(at: Sizes, weights: Tensors, dtype: torch.dtype) -> Built:
    """Three Linears and SDPA."""
    return _ours_to_write(Written(at.E, at.H, "separate"), weights, dtype)


def textbook(at: Sizes, weights: Tensors, dtype: torch.dtype) -> Built:
    """The style of the Annotated Transformer."""
    return _ours_to_write(Textbook(at.E, at.H), weights, dtype)


def folded_heads(at: Sizes, weights: Tensors, dtype: torch.dtype) -> Built:
    """The style of Dive into Deep Learning."""
    return _ours_to_write(FoldedHeads(at.E, at.H), weights, dtype)


def flex(at: Sizes, weights: Tensors, dtype: torch.dtype) -> Built:
    """Three Linears and FlexAttention, which compiles at its first call."""
    return _ours_to_write(Flexed(at.E, at.H), weights, dtype)


def torch_layer(at: Sizes, weights: Tensors, dtype: torch.dtype) -> Built:
    """nn.MultiheadAttention, asked for no weights."""
    layer = nn.MultiheadAttention(at.E, at.H, batch_first=True)
    names = ("in_proj_weight", "in_proj_bias", "out_proj.weight", "out_proj.bias")
    layer.load_state_dict(dict(zip(names, weights, strict=True)))
    layer = layer.to(dtype)
    return Built(layer, lambda x: layer(x, x, x, need_weights=False)[0])


def x_transformers(at: Sizes, weights: Tensors, dtype: torch.dtype) -> Built:
    """x-transformers' Attention with flash=True; it has no biases."""
    from x_transformers.x_transformers import Attention

    layer = Attention(at.E, dim_head=at.E // at.H, heads=at.H, flash=True)
    _load([layer.to_q, layer.to_k, layer.to_v, layer.to_out], weights)
    layer = layer.to(dtype)

    def call(x: Tensor) -> Tensor:
        found = layer(x)
        out: Tensor = found[0] if isinstance(found, tuple) else found
        return out

    return Built(layer, call)


def keras(at: Sizes, weights: Tensors, dtype: torch.dtype) -> Built:
    """Keras' MultiHeadAttention on its torch backend."""
    # read once, when keras is imported
    os.environ.setdefault("KERAS_BACKEND", "torch")
    from keras import backend, layers

    if backend.backend() != "torch":
        raise NotMeasuredError(f"keras runs on {backend.backend()}: set KERAS_BACKEND=torch")
    layer = layers.MultiHeadAttention(at.H, at.E // at.H, dtype=str(dtype).removeprefix("torch."))
    x = torch.zeros(1, 2, at.E, dtype=dtype)
    layer(x, x)
    W, b, W_out, b_out = weights
    heads = (at.H, at.E // at.H)
    into = [t for w, c in zip(W.chunk(3), b.chunk(3), strict=True) for t in (w.T.reshape(at.E, *heads), c.view(heads))]
    layer.set_weights([t.numpy() for t in (*into, W_out.T.reshape(*heads, at.E), b_out)])
    return Built(layer, lambda x: layer(x, x))


def bert(implementation: str) -> Callable[[Sizes, Tensors, torch.dtype], Built]:
    """Hugging Face's BertSelfAttention, and the Linear after it."""

    def build(at: Sizes, weights: Tensors, dtype: torch.dtype) -> Built:
        from transformers import BertConfig
        from transformers.models.bert.modeling_bert import BertSelfAttention, BertSelfOutput

        config = BertConfig(
            hidden_size=at.E, num_attention_heads=at.H, attention_probs_dropout_prob=0.0,
            attn_implementation=implementation,
        )  # fmt: skip
        inner, dense = BertSelfAttention(config), BertSelfOutput(config).dense
        _load([inner.query, inner.key, inner.value, dense], weights)
        both = nn.ModuleList([inner, dense]).to(dtype)
        return Built(both, lambda x: dense(inner(x)[0]))

    return build


def llama(implementation: str) -> Callable[[Sizes, Tensors, torch.dtype], Built]:
    """Hugging Face's LlamaAttention, causal and rotary, its tables ready made; it has no biases."""

    def build(at: Sizes, weights: Tensors, dtype: torch.dtype) -> Built:
        from transformers import LlamaConfig
        from transformers.models.llama.modeling_llama import LlamaAttention, LlamaRotaryEmbedding

        config = LlamaConfig(
            hidden_size=at.E, num_attention_heads=at.H, num_key_value_heads=at.H, attn_implementation=implementation,
            max_position_embeddings=at.L,
        )  # fmt: skip
        layer = LlamaAttention(config, layer_idx=0)
        _load([layer.q_proj, layer.k_proj, layer.v_proj, layer.o_proj], weights)
        layer = layer.to(dtype)
        tables = LlamaRotaryEmbedding(config)(torch.zeros(1, dtype=dtype), torch.arange(at.L)[None])
        hidden = torch.ones(at.L, at.L, dtype=torch.bool).triu(1)
        mask = torch.zeros(1, 1, at.L, at.L, dtype=dtype).masked_fill(hidden, torch.finfo(dtype).min)
        # without a mask its sdpa path is causal by itself, which is what a model does
        given = mask if implementation == "eager" else None
        return Built(layer, lambda x: layer(x, position_embeddings=tables, attention_mask=given)[0])

    return build


def turned(x: Tensor) -> Tensor:
    """Rotary embedding of x (..., L, D), pairs half a head apart, written plainly. Su et al. 2021, arXiv:2104.09864."""
    L, D = x.shape[-2:]
    angles = torch.arange(L, dtype=torch.float64)[:, None] * 10000.0 ** (
        -torch.arange(0, D, 2, dtype=torch.float64) / D
    )
    cos, sin = (t.to(x.dtype) for t in (angles.cos(), angles.sin()))
    a, b = x.chunk(2, dim=-1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)


def _ours_to_write(module: Written | Textbook, weights: Tensors, dtype: torch.dtype) -> Built:
    into = module.into if isinstance(module, Written) else module.projections
    _load([*into, module.out], weights)
    module = module.to(dtype)
    return Built(module, module)


def _load(linears: list[nn.Linear], weights: Tensors) -> None:
    """Give four Linears the packed weights of three projections and those of the output's."""
    W, b, W_out, b_out = weights
    with torch.no_grad():
        for linear, w, c in zip(linears, (*W.chunk(3), W_out), (*b.chunk(3), b_out), strict=True):
            linear.weight.copy_(w)
            if linear.bias is not None:
                linear.bias.copy_(c)
