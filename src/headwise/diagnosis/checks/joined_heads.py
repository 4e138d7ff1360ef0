"""Joined heads: a softmax that shares one sum among the keys of all heads, where no values are summed by it."""

from __future__ import annotations

import torch

from headwise.dataflow import MarkedOp, Run, attentions, is_constant
from headwise.diagnosis.faults import WARNING
from headwise.diagnosis.suspects import Suspect

__all__ = ["joined_heads"]

NEAR = 1e-6


def joined_heads(run: Run) -> list[Suspect]:
    """The first softmax of scores along an axis of keys and heads at once, of a map that is handed out as it is."""
    attended = {attention.softmax.at for attention in attentions(run) if attention.softmax is not None}
    for entry in run.seen:
        if "softmax" in entry.last and entry.at not in attended and _joins_heads(entry):
            return [Suspect("softmax-axis-merged", entry.span, severity=WARNING)]
    return []


def _joins_heads(entry: MarkedOp) -> bool:
    """Whether keys and heads both change along the axis whose weights sum to 1."""
    marks, value = next(iter(entry.given), None), entry.value
    if marks is None or marks.kind != "pair" or value is None or value.shape != tuple(marks.shape):
        return False
    ones = torch.ones((), dtype=value.dtype)
    axes = [axis for axis in range(value.ndim) if bool(((value.sum(axis) - ones).abs() < NEAR).all())]
    return len(axes) == 1 and not any(is_constant(marks.arrays[name], axes[0]) for name in ("y", "h"))
