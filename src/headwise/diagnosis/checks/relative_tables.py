"""Relative tables: whether a table of distances, with distance 0 in its middle, is read around its middle."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from headwise.dataflow import MarkedOp, Run, attentions, axes_of
from headwise.diagnosis.distance import distance
from headwise.diagnosis.repair import Repair
from headwise.diagnosis.suspects import Suspect
from headwise.recording import Site

__all__ = ["tables_from_start"]

SLICES = frozenset({"__getitem__", "narrow"})
NEAR = 1e-9
# by so many tokens a sequence is shorter, in which the scores of the tokens that are left stay as they are
FEWER = 1


def tables_from_start(run: Run, rerun: Callable[..., Run]) -> list[Suspect]:
    """The first table with a row for each distance whose first rows are read, where the scores of the tokens before are
    others without the last token, and with as many rows around the middle they are not (Dai et al. 2019,
    arXiv:1901.02860, appendix B). rerun: the same run with stand-ins, or with other inputs.
    """
    length = run.sizes.get("L", 0)
    if length <= FEWER + 1 or not any(attention.softmax is not None for attention in attentions(run)):
        return []
    for entry in run.seen:
        if (axis := _sliced_axis(entry, 2 * length - 1)) is None:
            continue
        stand_ins = {entry.site: _around_middle(entry.function, axis)}
        if not _keeps_scores(run, rerun, {}) and _keeps_scores(run, rerun, stand_ins):
            rows = [tensor.shape[axis] for tensor in (*entry.outputs[:1], *entry.inputs[:1])]
            said = {"was": str(rows[0]), "near": str(rows[1])}
            return [Suspect("relative-table-start", entry.span, Repair(stand_ins), values=said, proved=True)]
    return []


def _sliced_axis(entry: MarkedOp, rows: int) -> int | None:
    """The axis along which an operation takes so many rows of a table from its start, which has more and a middle."""
    if entry.last not in SLICES or entry.is_marked or len(entry.inputs) != 1 or len(entry.outputs) != 1:
        return None
    table, part = entry.inputs[0].value, entry.outputs[0].value
    if table is None or part is None or table.ndim != part.ndim or not table.is_floating_point():
        return None
    axes = [axis for axis in range(part.ndim) if part.shape[axis] != table.shape[axis]]
    is_of_distances = len(axes) == 1 and part.shape[axes[0]] == rows < table.shape[axes[0]]
    if not is_of_distances or table.shape[axes[0]] % 2 == 0:
        return None
    return axes[0] if torch.equal(part, table.narrow(axes[0], 0, rows)) else None


def _around_middle(function: Callable[..., Any], axis: int) -> Callable[..., Any]:
    def right(table: Tensor, *args: Any, **options: Any) -> Tensor:
        count = function(table, *args, **options).shape[axis]
        return table.narrow(axis, (table.shape[axis] - count) // 2, count)

    return right


def _keeps_scores(run: Run, rerun: Callable[..., Run], stand_ins: dict[Site, Callable[..., Any]]) -> bool:
    """Whether the scores of all tokens but the last are the same where the last is not there."""

    def change(_: Any, options: dict[str, Any]) -> None:
        for name, value in options.items():
            axes = axes_of(run.plan.call.get(name))
            if isinstance(value, Tensor) and "L" in axes:
                axis = axes.index("L")
                options[name] = value.narrow(axis, 0, value.shape[axis] - FEWER).contiguous()

    whole, shorter = rerun(stand_ins), rerun(stand_ins, more_change=change)
    if whole.failure is not None or shorter.failure is not None:
        return False
    distances = []
    for first, second in zip(attentions(whole), attentions(shorter), strict=False):
        entries = [first.softmax, second.softmax]
        scores = [None if entry is None else entry.inputs[0].value for entry in entries]
        if scores[0] is not None and scores[1] is not None:
            rows, columns = scores[1].shape[-2:]
            distances.append(distance(scores[0][..., :rows, :columns], scores[1]))
    return bool(distances) and max(distances) <= NEAR
