"""Distance: how far two outputs are apart."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["distance"]


def distance(a: Tensor | None, b: Tensor | None) -> float:
    """The largest difference of two outputs; NaN in one alone, another shape, or no output is infinitely far."""
    if a is None or b is None or a.shape != b.shape:
        return float("inf")
    a, b = a.detach().to(torch.float64), b.detach().to(torch.float64)
    is_equal = (a.isnan() & b.isnan()) | (a == b)
    difference = (a - b).abs().masked_fill(is_equal, 0.0).nan_to_num(nan=float("inf"), posinf=float("inf"))
    return float(difference.max()) if difference.numel() else 0.0
