"""Drop-ins for Dive into Deep Learning: its attention by valid_lens, in the English and in the Chinese signature.

After d2l/torch.py of d2l-en 23d7a5ae and d2l-zh e6b18cce (d2l.ai, chapter on attention). A query of length 0 gets the
mean of all values, those of the padding too, as it does there; elsewhere headwise gives it zeros. There a row becomes
even by scores of -1e6, here by equal scores: the same numbers, in half precision as well, and no score is overwritten.
"""

from __future__ import annotations

from typing import Any, overload

import torch
from torch import Tensor, nn

from headwise.compat.inputs import chance, check_sequence, check_tensors, count, width_of
from headwise.compat.last_map import LastMap
from headwise.compat.signatures import taken
from headwise.compat.valid_lens import counts, rows
from headwise.errors import ArgumentError, ShapeError
from headwise.maps import attention_map
from headwise.maps.constructors import additive_map
from headwise.ops import additive_attention, attention

__all__ = [
    "AdditiveAttention",
    "DotProductAttention",
    "MultiHeadAttention",
    "masked_softmax",
    "transpose_output",
    "transpose_qkv",
]

SIZES = ("key_size", "query_size", "value_size")


class DotProductAttention(nn.Module):
    """d2l's scaled dot-product attention: queries (B, Lq, D), keys (B, Lk, D), values (B, Lk, Dv) -> (B, Lq, Dv).

    dropout: of the weights, in training; which ones are dropped is drawn otherwise than nn.Dropout draws.
    valid_lens: (B,) or (B, Lq), how many of the first keys count, None: all.

    >>> attention = DotProductAttention(dropout=0.5).eval()
    >>> attention(torch.randn(2, 1, 4), torch.randn(2, 10, 4), torch.randn(2, 10, 6), torch.tensor([2, 6])).shape
    torch.Size([2, 1, 6])
    >>> attention.attention_weights[0, 0].count_nonzero()
    tensor(2)
    """

    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.dropout = nn.Dropout(chance(dropout))
        self._last = LastMap()

    @property
    def attention_weights(self) -> Tensor | None:
        """The weights of the last call, (B, Lq, Lk), before dropout, computed when read; None before a call."""
        weights = self._last.read()
        return None if weights is None else weights[:, 0]

    def forward(self, queries: Tensor, keys: Tensor, values: Tensor, valid_lens: Tensor | None = None) -> Tensor:
        """Each query's mixture of the values."""
        _check_inputs(queries, keys, values)
        q, k, mask = rows(queries[:, None], keys[:, None], valid_lens)
        self._last.keep(lambda: attention_map(q, k, mask=mask), queries.dtype)
        dropout = self.dropout.p if self.dropout.training else 0.0
        return attention(q, k, values[:, None], mask=mask, dropout=dropout)[:, 0]


class AdditiveAttention(nn.Module):
    """d2l's additive (Bahdanau) attention: w_vᵀ tanh(W_q q + W_k k), without its tensor of (B, Lq, Lk, num_hiddens).

    AdditiveAttention(num_hiddens, dropout), whose input widths show at the first call, or
    AdditiveAttention(key_size, query_size, num_hiddens, dropout). No biases. Of w_v only the weight is read.

    >>> attention = AdditiveAttention(key_size=2, query_size=20, num_hiddens=8, dropout=0.1).eval()
    >>> attention(torch.randn(2, 1, 20), torch.randn(2, 10, 2), torch.randn(2, 10, 4), torch.tensor([2, 6])).shape
    torch.Size([2, 1, 4])
    """

    @overload
    def __init__(self, num_hiddens: int, dropout: float) -> None: ...

    @overload
    def __init__(self, key_size: int, query_size: int, num_hiddens: int, dropout: float) -> None: ...

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__()
        sizes = ("num_hiddens", "dropout")
        arguments = taken("AdditiveAttention", args, named, (sizes, ("key_size", "query_size", *sizes)))
        hidden = arguments["num_hiddens"]
        self.W_k = _linear(arguments.get("key_size"), hidden)
        self.W_q = _linear(arguments.get("query_size"), hidden)
        self.w_v = _linear(hidden if "key_size" in arguments else None, 1)
        self.dropout = nn.Dropout(chance(arguments["dropout"]))
        self._last = LastMap()

    @property
    def attention_weights(self) -> Tensor | None:
        """The weights of the last call, (B, Lq, Lk), before dropout, computed when read; None before a call."""
        weights = self._last.read()
        return None if weights is None else weights[:, 0]

    def forward(self, queries: Tensor, keys: Tensor, values: Tensor, valid_lens: Tensor | None) -> Tensor:
        """Each query's mixture of the values: (B, Lq, Dv)."""
        _check_inputs(queries, keys, values, width_of(self.W_q), width_of(self.W_k))
        features = self.W_q(queries)
        q, k, mask = rows(features[:, None], self.W_k(keys)[:, None], valid_lens, is_additive=True)
        if isinstance(self.w_v, nn.LazyLinear):
            # a call, even of nothing, is what gives a lazy layer its width
            self.w_v(features[:, :0])
        weight = self.w_v.weight[0]
        self._last.keep(lambda: additive_map(q, k, weight, mask=mask), features.dtype)
        dropout = self.dropout.p if self.dropout.training else 0.0
        return additive_attention(q, k, values[:, None], weight, mask=mask, dropout=dropout)[:, 0]


class MultiHeadAttention(nn.Module):
    """d2l's multi-head attention, with heads folded into the batch and weights W_q, W_k, W_v, W_o.

    MultiHeadAttention(num_hiddens, num_heads, dropout, bias=False), whose input widths show at the first call, or
    MultiHeadAttention(key_size, query_size, value_size, num_hiddens, num_heads, dropout, bias=False), the key first.
    Which of the two is meant is told by the number of arguments and by their names. The weights of the last call are
    at attention.attention_weights, (B·num_heads, Lq, Lk), computed when they are read; `hw.watch` shows them so too.

    >>> attention = MultiHeadAttention(100, 5, 0.5).eval()
    >>> x, y = torch.ones(2, 4, 100), torch.ones(2, 6, 100)
    >>> attention(x, y, y, torch.tensor([3, 2])).shape
    torch.Size([2, 4, 100])
    >>> attention.attention.attention_weights.shape
    torch.Size([10, 4, 6])
    """

    @overload
    def __init__(self, num_hiddens: int, num_heads: int, dropout: float, bias: bool = ...) -> None: ...

    @overload
    def __init__(
        self, key_size: int, query_size: int, value_size: int, num_hiddens: int, num_heads: int, dropout: float,
        bias: bool = ...,
    ) -> None: ...  # fmt: skip

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__()
        sizes = ("num_hiddens", "num_heads", "dropout", "bias")
        arguments = taken("MultiHeadAttention", args, named, (sizes, (*SIZES, *sizes)))
        hidden, bias = arguments["num_hiddens"], arguments.get("bias", False)
        self.num_heads: int = arguments["num_heads"]
        if hidden % self.num_heads:
            raise ArgumentError(
                f"num_heads={self.num_heads} must divide num_hiddens={hidden} so that heads are equally wide: "
                "change one of them"
            )
        self.attention = DotProductAttention(arguments["dropout"])
        self.W_q = _linear(arguments.get("query_size"), hidden, bias)
        self.W_k = _linear(arguments.get("key_size"), hidden, bias)
        self.W_v = _linear(arguments.get("value_size"), hidden, bias)
        self.W_o = _linear(hidden if "key_size" in arguments else None, hidden, bias)

    def forward(self, queries: Tensor, keys: Tensor, values: Tensor, valid_lens: Tensor | None) -> Tensor:
        """queries (B, Lq, query_size), keys (B, Lk, key_size), values (B, Lk, value_size) -> (B, Lq, num_hiddens).

        valid_lens: (B,) or (B, Lq), how many of the first keys count, None: all.
        """
        _check_inputs(queries, keys, values, *(width_of(each) for each in (self.W_q, self.W_k, self.W_v)))
        if valid_lens is not None:
            valid_lens = counts(valid_lens, queries.shape[0], queries.shape[1], keys.shape[1])
            valid_lens = torch.repeat_interleave(valid_lens, self.num_heads, dim=0)
        folded = [transpose_qkv(x, self.num_heads) for x in (self.W_q(queries), self.W_k(keys), self.W_v(values))]
        mixed = self.attention(*folded, valid_lens)
        out: Tensor = self.W_o(transpose_output(mixed, self.num_heads))
        return out

    def transpose_qkv(self, X: Tensor) -> Tensor:
        """X (B, L, num_hiddens) as (B·num_heads, L, num_hiddens // num_heads), a sample's heads side by side."""
        return transpose_qkv(X, self.num_heads)

    def transpose_output(self, X: Tensor) -> Tensor:
        """The way back from `transpose_qkv`."""
        return transpose_output(X, self.num_heads)


def masked_softmax(X: Tensor, valid_lens: Tensor | None) -> Tensor:
    """softmax of scores X (B, Lq, Lk) over the first keys; X is left as it was.

    valid_lens: (B,) or (B, Lq), None: all keys. A length of 0 gives the even row 1/Lk.

    >>> masked_softmax(torch.zeros(2, 1, 4), torch.tensor([2, 0]))
    tensor([[[0.5000, 0.5000, 0.0000, 0.0000]],
    <BLANKLINE>
            [[0.2500, 0.2500, 0.2500, 0.2500]]])
    """
    check_tensors(X=X)
    if not X.is_floating_point():
        raise ArgumentError(f"scores must be floating, but {X.dtype} came: cast them first")
    if valid_lens is None:
        return torch.softmax(X, dim=-1)
    if X.ndim != 3:
        raise ShapeError(f"scores must be (B, Lq, Lk) where valid_lens is given, but came as {tuple(X.shape)}")
    n = counts(valid_lens, *X.shape)
    n = n[:, None, None] if n.ndim == 1 else n[..., None]
    hidden = torch.arange(X.shape[-1], device=X.device) >= n
    empty = n == 0
    return torch.softmax(X.masked_fill(empty, 0.0).masked_fill(hidden & ~empty, float("-inf")), dim=-1)


def transpose_qkv(X: Tensor, num_heads: int) -> Tensor:
    """X (B, L, num_hiddens) as (B·num_heads, L, num_hiddens // num_heads), a sample's heads side by side.

    >>> transpose_qkv(torch.zeros(2, 3, 10), 5).shape
    torch.Size([10, 3, 2])
    """
    check_sequence("X", X, letters="B, L", called="num_hiddens")
    if X.shape[-1] % count("num_heads", num_heads):
        raise ShapeError(f"num_heads={num_heads} must divide the width of X, but it came as {tuple(X.shape)}")
    folded: Tensor = X.unflatten(-1, (num_heads, -1)).transpose(1, 2).flatten(0, 1)
    return folded


def transpose_output(X: Tensor, num_heads: int) -> Tensor:
    """The way back from `transpose_qkv`: (B·num_heads, L, D) as (B, L, num_heads·D).

    >>> transpose_output(torch.zeros(10, 3, 2), 5).shape
    torch.Size([2, 3, 10])
    """
    check_sequence("X", X, letters="B·num_heads, L", called="D")
    if X.shape[0] % count("num_heads", num_heads):
        raise ShapeError(f"num_heads={num_heads} must divide the first axis of X, but it came as {tuple(X.shape)}")
    joined: Tensor = X.unflatten(0, (-1, num_heads)).transpose(1, 2).flatten(2)
    return joined


def _check_inputs(queries: Tensor, keys: Tensor, values: Tensor, *widths: int | None) -> None:
    inputs = {"queries": queries, "keys": keys, "values": values}
    check_tensors(**inputs)
    batch = f"B={queries.shape[0]}" if queries.ndim else "B"
    for (name, x), width in zip(inputs.items(), (*widths, None, None, None), strict=False):
        check_sequence(name, x, width, letters=f"{batch}, L")
        if x.shape[0] != queries.shape[0]:
            raise ShapeError(f"{name} must be ({batch}, L, width), but came as {tuple(x.shape)}")
    if keys.shape[1] != values.shape[1]:
        raise ShapeError(
            f"each key has a value, so keys and values must be equally many, but Lk={keys.shape[1]} keys and "
            f"{values.shape[1]} values came"
        )


def _linear(in_features: int | None, out_features: int, bias: bool = False) -> nn.Linear:
    if in_features is None:
        return nn.LazyLinear(out_features, bias=bias)
    return nn.Linear(in_features, out_features, bias=bias)
