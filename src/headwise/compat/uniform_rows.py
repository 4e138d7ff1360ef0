"""Uniform rows: the mean of all values for a query that may attend to nothing, as in d2l."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["with_even_rows"]


def with_even_rows(
    q: Tensor, k: Tensor, *, empty: Tensor, unseen: Tensor, is_additive: bool = False
) -> tuple[Tensor, Tensor]:
    """q and k whose scores are equal over all keys in the rows that may attend to none, and as they were elsewhere.

    q (B, H, Lq, D), k (B, H, Lk, D). empty: bool, broadcastable to (B, H, Lq, 1), queries that may attend to no key;
    their rows of the mask must then be allowed. unseen: bool, broadcastable to (B, H, Lk, 1), the keys that no query
    attends to, which may hold NaN. is_additive: whether scores are wᵀ tanh(q + k) rather than q·k. The books fill such
    a row with one large negative constant; its softmax is uniform, and no gradient reaches q and k, as here.

    >>> q, k, row = torch.ones(1, 1, 2, 4), torch.randn(1, 1, 3, 4), torch.tensor([False, True])
    >>> q, k = with_even_rows(q, k, empty=row[:, None], unseen=torch.zeros(3, 1, dtype=torch.bool))
    >>> (q @ k.mT)[0, 0, 1]
    tensor([0., 0., 0.])
    """
    # tanh(inf + k) is 1 and 0·k is 0, whatever a finite k holds
    even = float("inf") if is_additive else 0.0
    return torch.where(empty, even, q), k.masked_fill(unseen, 0.0)
