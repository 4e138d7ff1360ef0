"""Diagonal: tokens that see themselves, whatever their mask says."""

from __future__ import annotations

from torch import Tensor

from headwise.dataflow import AttentionPattern

__all__ = ["adds_itself"]


def adds_itself(masked: AttentionPattern, seen: Tensor, right: Tensor) -> bool:
    """Whether each token sees what the mask lets it see, and itself besides: so that no row is empty."""
    own = (masked.row == masked.column).expand(seen.shape)
    return bool((seen == (right | (own & seen))).all()) and bool(seen[masked.seeing.expand(seen.shape) & own].all())
