"""Drop-ins for the Annotated Transformer: MultiHeadedAttention, attention, clones and subsequent_mask.

After harvardnlp/annotated-transformer debc9fd7 (nlp.seas.harvard.edu/annotated-transformer). A query whose mask is 0
throughout gets the mean of all values, as it does there; elsewhere headwise gives it zeros. There such a row becomes
even by scores of -1e9, which float16 cannot hold; here by equal scores.
"""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
from torch import Tensor, nn

from headwise.compat.inputs import chance, check_sequence, check_tensors, count
from headwise.compat.last_map import LastMap
from headwise.compat.mask_flags import as_flags, with_four_axes
from headwise.compat.uniform_rows import with_even_rows
from headwise.errors import ArgumentError, MaskError, ShapeError
from headwise.maps import attention_map
from headwise.ops import attention as mixed

__all__ = ["MultiHeadedAttention", "attention", "clones", "subsequent_mask"]


class MultiHeadedAttention(nn.Module):
    """The Annotated Transformer's multi-head attention: `linears` holds the projections of q, k, v and the output.

    h: heads, which divide d_model. dropout: of the weights, in training; which ones are dropped is drawn otherwise
    than nn.Dropout draws. `attn` has the weights of the last call.

    >>> layer = MultiHeadedAttention(h=8, d_model=512).eval()
    >>> x = torch.randn(2, 10, 512)
    >>> layer(x, x, x, mask=subsequent_mask(10)).shape
    torch.Size([2, 10, 512])
    >>> layer.attn.shape
    torch.Size([2, 8, 10, 10])
    """

    def __init__(self, h: int, d_model: int, dropout: float = 0.1) -> None:
        super().__init__()
        if count("d_model", d_model) % count("h", h):
            raise ArgumentError(
                f"h={h} must divide d_model={d_model} so that heads are equally wide: change one of them"
            )
        self.d_k = d_model // h
        self.h = h
        self.linears = clones(nn.Linear(d_model, d_model), 4)
        self.dropout = nn.Dropout(chance(dropout))
        self._last = LastMap()

    @property
    def attn(self) -> Tensor | None:
        """The weights of the last call, (B, h, Lq, Lk), before dropout, computed when read; None before a call.

        The original holds those after dropout: the same where dropout is off.
        """
        return self._last.read()

    def forward(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None) -> Tensor:
        """query (B, Lq, d_model), key and value (B, Lk, d_model) -> (B, Lq, d_model).

        mask: 0 = blocked, (B, 1, Lk) or (B, Lq, Lk), with any size 1 where all agree, None: all pairs. One of two axes
        is refused: the original spreads a (B, Lk) over the heads, and no error says so.
        """
        for name, x in (("query", query), ("key", key), ("value", value)):
            check_sequence(name, x, self.h * self.d_k, called="d_model")
        allowed = None if mask is None else _for_all_heads(mask)
        q, k, v = (
            linear(x).unflatten(-1, (self.h, self.d_k)).transpose(1, 2)
            for linear, x in zip(self.linears, (query, key, value), strict=False)
        )
        q, k, allowed = _opened(q, k, allowed)
        self._last.keep(lambda: attention_map(q, k, mask=allowed), q.dtype)
        dropout = self.dropout.p if self.dropout.training else 0.0
        x = mixed(q, k, v, mask=allowed, dropout=dropout)
        out: Tensor = self.linears[-1](x.transpose(1, 2).flatten(2))
        return out


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None = None,
    dropout: Callable[[Tensor], Tensor] | None = None,
) -> tuple[Tensor, Tensor]:
    """The mixture of the values and the weights: (..., Lq, Dv) and (..., Lq, Lk).

    query (..., Lq, D), key (..., Lk, D), value (..., Lk, Dv), with up to two axes in front, as (B, h). mask: 0 =
    blocked, of as many axes as the query, or shared by the ones in front, None: all pairs. dropout: called with the
    weights; what it gives mixes the values and is returned, as in the original. The weights are made in full: ask
    `headwise.attention` where they are not needed.

    >>> x = torch.randn(2, 8, 10, 64)
    >>> out, p_attn = attention(x, x, x, mask=subsequent_mask(10))
    >>> out.shape, p_attn.shape
    (torch.Size([2, 8, 10, 64]), torch.Size([2, 8, 10, 10]))
    """
    check_tensors(query=query, key=key, value=value)
    if dropout is not None and not callable(dropout):
        raise ArgumentError(f"dropout is called with the weights, but {dropout!r} came: give nn.Dropout(p)")
    front = query.ndim - 2
    if front not in (0, 1, 2):
        raise ShapeError(f"query must be (Lq, D), (B, Lq, D) or (B, h, Lq, D), but came as {tuple(query.shape)}")
    q, k, v = (x[(None,) * (2 - front)] for x in (query, key, value))
    allowed = None if mask is None else with_four_axes("mask", mask, query.ndim)
    q, k, allowed = _opened(q, k, allowed)
    p_attn = attention_map(q, k, mask=allowed).dense().to(query.dtype)
    if dropout is None:
        out = mixed(q, k, v, mask=allowed)
    else:
        p_attn = dropout(p_attn)
        out = p_attn @ v
    return out[(0,) * (2 - front)], p_attn[(0,) * (2 - front)]


def clones(module: nn.Module, N: int) -> nn.ModuleList:
    """N copies of a module that begin with the same weights and share none.

    >>> clones(nn.Linear(3, 3), 2)
    ModuleList(
      (0-1): 2 x Linear(in_features=3, out_features=3, bias=True)
    )
    """
    return nn.ModuleList([copy.deepcopy(module) for _ in range(N)])


def subsequent_mask(size: int) -> Tensor:
    """The mask of later tokens, bool (1, size, size), True = may attend.

    >>> subsequent_mask(2)
    tensor([[[ True, False],
             [ True,  True]]])
    """
    return torch.ones(1, size, size, dtype=torch.bool).tril()


def _for_all_heads(mask: Tensor) -> Tensor:
    allowed = as_flags("mask", mask)
    if allowed.ndim != 3:
        raise MaskError(
            f"mask must be (B, 1, Lk) or (B, Lq, Lk), but came as {tuple(mask.shape)}, which reads as padding (B, Lk), "
            "as (Lq, Lk) for all samples, or by heads: say which with mask[:, None] or mask[None]"
        )
    return allowed[:, None]


def _opened(q: Tensor, k: Tensor, allowed: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
    """q, k and a mask such that a query without a key sees all of them alike."""
    if allowed is None:
        return q, k, None
    empty, unseen = ~allowed.any(-1, keepdim=True), ~allowed.any(-2)[..., None]
    if not all(n in (1, size) for n, size in zip(allowed.shape, (*q.shape[:3], k.shape[2]), strict=True)):
        return q, k, allowed
    q, k = with_even_rows(q, k, empty=empty, unseen=unseen)
    return q, k, allowed | empty
