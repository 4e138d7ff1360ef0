"""Residuals: whether what an attention gives is added to its input, and not to itself."""

from __future__ import annotations

import torch

from headwise.dataflow import MarkedOp, Run, attentions, chain_of
from headwise.diagnosis.suspects import Suspect

__all__ = ["doubled_residuals"]

SUMS = frozenset({"+", "+=", "add", "add_"})


def doubled_residuals(run: Run) -> list[Suspect]:
    """The first sum whose two operands are the same features of tokens, made by the same attention."""
    contexts = {each.context.at for each in attentions(run)}
    for entry in run.seen:
        if entry.name not in SUMS or len(entry.inputs) != 2 or not _are_same(entry):
            continue
        left, right = (each.number for each in entry.inputs)
        chains = [chain_of(run, entry.at, number) for number in (left, right)]
        # two results of one input, as of two dropouts, are added on purpose
        is_itself = (
            left == right
            or any(left in step.taken for step in chains[1])
            or any(right in step.taken for step in chains[0])
        )
        is_of_tokens = all(marks is not None and marks.kind == "token" for marks in entry.given)
        if is_of_tokens and is_itself and any(step.at in contexts for step in chains[0]):
            return [Suspect("residual-doubled", entry.span, proved=True)]
    return []


def _are_same(entry: MarkedOp) -> bool:
    """Whether the two operands of a sum hold the same numbers, which are not all 0."""
    left, right = entry.inputs
    if left.number == right.number:
        return True
    a, b = left.value, right.value
    return a is not None and b is not None and a.shape == b.shape and torch.equal(a, b) and bool(a.any())
