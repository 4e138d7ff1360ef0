"""Partial masks: keys of two kinds under one softmax, of which a mask is for one."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from headwise.dataflow import AttentionOps, AttentionPattern, Run
from headwise.diagnosis.checks.weight_sums import chooses_both_ways, is_mutual

__all__ = ["is_other_half", "of_others"]

Pair = tuple[AttentionOps, AttentionPattern | None, AttentionPattern | None]


def is_other_half(run: Run, at: AttentionOps, pairs: Sequence[Pair]) -> bool:
    """Whether a mask hides none of these keys, but some of those that share a softmax with them and are of others; or
    both sides choose among each other, and as many of both do not tell which of them the mask hides.
    """
    pair = next(each for each in pairs if each[0] is at)
    pattern = pair[1]
    if is_mutual(run, at) or chooses_both_ways(run, at):
        return pattern is None or int(pattern.row.max()) == int(pattern.column.max())
    mine, source = at.softmax, _source(pair)
    others = [each for each in pairs if mine is not None and each[0] is not at and each[0].softmax is mine]
    return not _hides(pair) and any(_hides(each) and _source(each) != source for each in others)


def of_others(masked: AttentionPattern, free: AttentionPattern) -> Tensor:
    """Which keys are of an argument none of whose keys a mask hides, where it hides some of those of another."""
    hidden = free.visible & ~masked.visible
    if not bool(hidden.any()):
        # what hides keys does so without a mask too, as where it stands in for one
        hidden = ~masked.visible & masked.seeing
    touched = torch.unique(masked.source[hidden])
    return ~torch.isin(masked.source, touched) if touched.numel() else torch.zeros_like(hidden)


def _hides(pair: Pair) -> bool:
    _, masked, free = pair
    if masked is None or free is None or masked.weights.shape != free.weights.shape:
        return False
    return bool((free.visible & ~masked.visible).any())


def _source(pair: Pair) -> int:
    return -1 if pair[1] is None else int(pair[1].source.max())
