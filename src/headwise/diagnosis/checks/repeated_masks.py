"""Repeated masks: a mask that is made by the code and repeated for the heads in another order than the scores have."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from torch import Tensor

from headwise.dataflow import MarkedOp, Run
from headwise.diagnosis.checks.grouped_heads import COPIES
from headwise.diagnosis.patches.movements import repeated_blockwise
from headwise.diagnosis.repair import Repair
from headwise.diagnosis.suspects import Suspect

__all__ = ["repeated_mask"]


def repeated_mask(run: Run, entry: MarkedOp, is_kept: Callable[..., bool]) -> list[Suspect]:
    """Masks of all samples, once for each head, where an operation wants those of all heads, once for each sample.

    entry: the operation in which one sample changes with another. is_kept: whether samples are kept apart with the
    stand-ins that it takes.
    """
    batch = run.sizes.get("B", 0)
    makers: list[MarkedOp] = []
    numbers = set(entry.taken)
    for op in reversed(run.seen):
        if op.at < entry.at and numbers & op.results and _is_mask(op):
            makers.append(op)
            numbers |= op.taken
    for op in makers:
        rows = op.outputs[0].shape[0] if op.outputs and op.outputs[0].shape else 0
        if not batch or rows <= batch or rows % batch:
            continue
        stand_ins = {op.site: _by_samples(op.function, rows // batch)}
        if is_kept(stand_ins):
            copy = next((each for each in makers if each.last in COPIES and each.at <= op.at), op)
            repair = Repair(stand_ins, rewriting=partial(repeated_blockwise, axis=0))
            return [Suspect("mask-repeat-order", copy.span, repair, proved=True)]
    return []


def _is_mask(entry: MarkedOp) -> bool:
    """Whether an operation gives two numbers at most, where pairs are hidden and where they are not."""
    value = entry.value
    return value is not None and value.ndim > 1 and value.unique().numel() <= 2


def _by_samples(function: Callable[..., Any], heads: int) -> Callable[..., Any]:
    def right(*args: Any, **options: Any) -> Any:
        result = function(*args, **options)
        if not isinstance(result, Tensor) or result.shape[0] % heads:
            return result
        return result.unflatten(0, (heads, -1)).transpose(0, 1).flatten(0, 1)

    return right
