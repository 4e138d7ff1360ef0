"""Late mask: a mask that comes after the softmax and is turned round, both at once."""

from __future__ import annotations

from torch import Tensor

from headwise.dataflow import AttentionPattern
from headwise.diagnosis.checks.weight_sums import TOLERANCE

__all__ = ["CLEAR", "also_wrong", "is_shared_out"]

CLEAR = 1e-4


def also_wrong(kind: str, masked: AttentionPattern, free: AttentionPattern, wanted: Tensor) -> str:
    """What is wrong besides with a mask that comes too late, or is turned round: the other of the two; "": no."""
    before, weights = free.weights.nan_to_num() > CLEAR, masked.weights.nan_to_num()
    if kind == "mask-inverted":
        is_lost = (weights.sum(dim=-1) - free.weights.nan_to_num().sum(dim=-1)).abs() > TOLERANCE
        return "mask-after-softmax" if bool(is_lost.any()) else ""
    mixed = (before & wanted).any(dim=-1, keepdim=True) & (before & ~wanted).any(dim=-1, keepdim=True)
    hidden = before & (weights <= TOLERANCE)
    is_turned = bool(((hidden == (before & wanted)) | ~mixed).all()) and bool(mixed.any())
    return "mask-inverted" if kind == "mask-after-softmax" and is_turned else ""


def is_shared_out(free: AttentionPattern) -> bool:
    """Whether each query shares itself out among its keys, whatever did it: the weights sum to 1."""
    return bool(((free.weights.nan_to_num().sum(dim=-1) - 1).abs() <= TOLERANCE).all())
