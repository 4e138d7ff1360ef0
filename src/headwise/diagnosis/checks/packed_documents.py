"""Packed documents: whether documents that follow one another in one row of tokens stay apart."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from headwise.calls import call_role
from headwise.dataflow import MarkedOp, Run, place_of
from headwise.diagnosis.checks.batch_leak import SHARED
from headwise.diagnosis.checks.weight_sums import TOLERANCE
from headwise.diagnosis.suspects import Suspect

__all__ = ["packed_documents"]

# how a call says that all tokens are one document: where each begins, and where the last ends
ONE_DOCUMENT = {"_expr": "torch.tensor([0, L])"}


def packed_documents(run: Run, rerun: Callable[..., Run]) -> list[Suspect]:
    """A document that changes the result of the next one, or of the one before it, in one row."""
    names = [name for name, value in run.plan.call.items() if value == ONE_DOCUMENT]
    length = run.sizes.get("L", 0)
    # tables of places are every document's
    inputs = {name: _axes(value) for name, value in run.plan.call.items() if call_role(name) not in SHARED}
    rows = {name: axes.index("L") for name, axes in inputs.items() if "L" in axes}
    begin = length // 2
    if not names or not rows or begin < 2 or run.output is None or run.output.shape[:1] != (length,):
        return []

    def packed(changed: slice | None = None) -> Run:
        def change(_: Any, options: dict[str, Any]) -> None:
            options |= dict.fromkeys(names, torch.tensor([0, begin, length]))
            if changed is not None:
                options |= {name: _reversed(options[name], axis, changed) for name, axis in rows.items()}

        return rerun(more_change=change)

    both = packed()
    if both.output is None:
        return []
    for changed, kept in ((slice(0, begin), slice(begin, length)), (slice(begin, length), slice(0, begin))):
        disturbed = packed(changed)
        if disturbed.output is None or disturbed.output.shape != both.output.shape:
            return []
        if _differs(disturbed.output[kept], both.output[kept]):
            entry = _miscounted(both, run, begin) or _first_changed(both, disturbed, kept)
            return [Suspect("sample-leak", entry.span, proved=True)] if entry is not None else []
    return []


def _axes(value: Any) -> list[Any]:
    axes = value.get("_ids") if isinstance(value, Mapping) else value
    return axes if isinstance(axes, list) else []


def _reversed(value: Any, axis: int, where: slice) -> Any:
    """A tensor with other numbers in some of its rows: those of its other tokens, in the opposite order."""
    if not isinstance(value, Tensor):
        return value
    index = (slice(None),) * axis + (where,)
    changed = value.clone()
    changed[index] = value.flip(axis)[index] * 2 if value.is_floating_point() else value.flip(axis)[index]
    return changed


def _differs(a: Tensor, b: Tensor) -> bool:
    if not a.is_floating_point() or not a.numel():
        return not torch.equal(a, b)
    return bool(((a - b).abs().nan_to_num() > TOLERANCE * max(1.0, float(b.abs().nan_to_num().max()))).any())


def _miscounted(packed: Run, whole: Run, begin: int) -> MarkedOp | None:
    """The first operation on whole numbers that counts the tokens of the second document otherwise than those of one
    that stands alone: up to a number that is added to all.
    """
    length = whole.sizes["L"]
    for entry, alone in zip(packed.seen, whole.seen, strict=False):
        a, b = entry.value, alone.value
        # what is made of the tokens themselves differs between documents
        if entry.is_marked or a is None or b is None or a.shape != b.shape or a.shape != (length,):
            continue
        if a.is_floating_point():
            continue
        counted, expected = a[begin:].long(), b[: length - begin].long()
        if not torch.equal(counted - counted[0], expected - expected[0]):
            return entry
    return None


def _first_changed(run: Run, disturbed: Run, kept: slice) -> MarkedOp | None:
    """The first operation in which numbers of tokens of one document change with another."""
    for entry, changed in zip(run.seen, disturbed.seen, strict=False):
        for a, b, marks in zip(entry.outputs, changed.outputs, entry.output_marks, strict=False):
            if marks is None or marks.kind != "token" or a.value is None or b.value is None:
                continue
            places = place_of(marks.arrays["t"]).expand(a.shape)
            is_kept = (places >= kept.start) & (places < kept.stop) & (marks.arrays["t"] >= 0)
            if a.shape == b.shape and _differs(a.value[is_kept], b.value[is_kept]):
                return entry
    return None
