"""Edited parts: which heads and rows of a call get other weights, and the calls that have these."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from headwise.intervening.call_sequence import SequenceStep
from headwise.intervening.edit_types import AttentionEdit, PartLocation, PatternEdit
from headwise.intervening.part_of_call import part_of, runs
from headwise.watching import CallRecord

__all__ = ["EditedPart", "edited_parts"]


class EditedPart(NamedTuple):
    """The heads [first, past) and rows of a call whose weights change, and the call that has the changed ones."""

    first: int
    past: int
    rows: Tensor | slice
    call: CallRecord


def edited_parts(
    record: CallRecord, step: SequenceStep, changes: list[PatternEdit], met: set[AttentionEdit] | None = None
) -> list[EditedPart]:
    """The heads and rows of a call whose weights change. met: takes in the changes that are of some."""
    Hq, Lq = record.q.shape[1:3]
    of_head = [
        tuple(change for change in changes if change.heads is None or head in change.heads.of(Hq)) for head in range(Hq)
    ]
    parts: list[EditedPart] = []
    for edits in filter(None, dict.fromkeys(of_head)):
        heads = [head for head in range(Hq) if of_head[head] == edits]
        for rows, applied in rows_alike(edits, step.start, Lq, record.q.device):
            if met is not None:
                met.update(applied)
            for first, past in runs(heads):
                part = part_of(record, first, past, rows)
                for change in applied:
                    part = change.of(part, PartLocation(first, rows, Lq, step.key))
                parts.append(EditedPart(first, past, slice(None) if rows is None else rows, part))
    return parts


def rows_alike(
    changes: tuple[PatternEdit, ...], start: int, Lq: int, device: torch.device
) -> Iterator[tuple[Tensor | None, tuple[PatternEdit, ...]]]:
    """The rows of a call that have the same changes, None: all, and these changes; rows without any are left out."""
    if Lq == 0:
        return
    some = torch.ones(len(changes), Lq, dtype=torch.bool, device=device)
    for n, change in enumerate(changes):
        if change.queries is not None:
            some[n] = False
            some[n, change.queries.within(start, Lq, device)] = True
    kinds, kind_of = some.unique(dim=1, return_inverse=True)
    for number, kind in enumerate(kinds.mT.tolist()):
        applied = tuple(change for change, is_there in zip(changes, kind, strict=True) if is_there)
        if applied:
            yield None if kinds.shape[1] == 1 else (kind_of == number).nonzero().flatten(), applied
