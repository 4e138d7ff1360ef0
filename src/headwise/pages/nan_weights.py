"""NaN weights: reported to the user, and written where only numbers can stand."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from headwise.wording import say

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["numbers_or_none", "said_of_nan"]


def said_of_nan(weights: Mapping[int, Tensor], *, lang: str) -> tuple[str, ...]:
    """A sentence on the rows of layer -> (H, L, L) that hold NaN, and where the first is; none if no row does."""
    rows = {layer: heads.isnan().any(-1) for layer, heads in weights.items()}
    holding = {layer: each for layer, each in rows.items() if bool(each.any())}
    if not holding:
        return ()
    layer, first = next(iter(holding.items()))
    count, of = (sum(number) for number in zip(*((int(e.sum()), e.numel()) for e in rows.values()), strict=True))
    return (say("look.nan", lang=lang, count=count, rows=of, layer=layer, head=int(first.nonzero()[0, 0])),)


def numbers_or_none(weights: Tensor) -> list[list[float | None]]:
    """Weights (L, L) as JSON can hold them: None in the place of NaN.

    >>> import torch
    >>> numbers_or_none(torch.tensor([[0.5, math.nan]]))
    [[0.5, None]]
    """
    return [[None if math.isnan(weight) else weight for weight in row] for row in weights.tolist()]
