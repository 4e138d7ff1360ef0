"""Output layout: whether each head of each sample comes out at its own place."""

from __future__ import annotations

import torch
from torch import Tensor

from headwise.dataflow import (
    CONVOLUTIONS,
    AttentionOps,
    MarkedOp,
    Marks,
    Run,
    is_constant,
    operand_marks,
    place_of,
    sample_of,
    source_of,
)

__all__ = ["leaving"]

ADDED = frozenset({"add", "add_", "__add__", "__iadd__"})


def leaving(run: Run, attention: AttentionOps) -> str:
    """What is wrong on the way from the weighted sum to the output; "": nothing, or it is not known."""
    after = [op for op in run.seen if op.at > attention.context.at]
    for entry in after:
        if entry.last in CONVOLUTIONS and (problem := _into_places(attention, entry)) is not None:
            if problem:
                return problem
            break
        if entry.joint is None:
            continue
        marks = next((m for m in operand_marks(entry) if m is not None), None)
        a, b = operand_marks(entry)
        if (
            marks is None
            or marks.kind != "token"
            or (a is not None and b is not None)
            or not _comes_from(attention, marks)
        ):
            continue
        letters = entry.joint.left if a is not None else entry.joint.right
        if any(not is_constant(marks.arrays["t"], letters.index(letter)) for letter in entry.joint.summed):
            return "mixed"
        rows = entry.joint.flat(marks.arrays["f"], left=a is not None)
        if not is_constant(rows, 1) and bool((marks.arrays["t"] >= 0).all()) and rows.shape[0] == 1:
            return "features mixed"
        break
    beside = (_beside(attention, op) for op in after if op.last in ADDED)
    return next(filter(None, beside), "") or _against_query(run)


def _beside(attention: AttentionOps, entry: MarkedOp) -> str:
    """What is wrong where a weighted sum of an input's tokens is added to these tokens themselves."""
    marks = [each for each in entry.given if each is not None]
    if len(marks) != 2 or any(each.kind != "token" or len(each.shape) < 3 for each in marks):
        return ""
    a, b = (each.arrays["t"] for each in marks)
    is_known = a.shape == b.shape and bool(((a >= 0) & (b >= 0)).all())
    if not is_known or bool((source_of(a) != source_of(b)).any()) or not _comes_from(attention, marks[0]):
        return ""
    # the same tokens in another order: shifted or halved on purpose, others would be among them or fewer
    is_same = torch.equal(a.flatten().sort().values, b.flatten().sort().values)
    if torch.equal(a, b) or not is_same:
        return ""
    is_apart = bool((sample_of(a) != sample_of(b)).any())
    return "samples mixed" if is_apart and torch.equal(place_of(a), place_of(b)) else "mixed"


def _into_places(attention: AttentionOps, entry: MarkedOp) -> str | None:
    """What is wrong with what a convolution takes, samples first and channels second; None: it is not of attention."""
    marks = entry.given[0] if entry.given else None
    if marks is None or marks.kind != "token" or len(marks.shape) < 3 or not _comes_from(attention, marks):
        return None
    t = marks.arrays["t"]
    if bool((t < 0).any()):
        return ""
    if not is_constant(t, 1):
        return "mixed"
    return "" if is_constant(sample_of(t).flatten(1), 1) else "samples mixed"


def _comes_from(attention: AttentionOps, marks: Marks) -> bool:
    marks_of_sum = attention.context.output_marks[0]
    if marks_of_sum is None or marks_of_sum.kind != "token":
        return True
    return set(torch.unique(source_of(marks.arrays["t"])).tolist()) <= {
        *torch.unique(source_of(marks_of_sum.arrays["t"])).tolist(), -1,
    }  # fmt: skip


def _against_query(run: Run) -> str:
    """Whether the output at a token's place is that of the token."""
    marks = run.output_marks
    if marks is None or marks.kind != "token" or run.output is None:
        return ""
    t = marks.arrays["t"]
    source = int(source_of(t).max())
    name = next((name for name, number in run.sources.items() if number == source), None)
    if name is None or bool((t < 0).all()):
        return ""
    queries = run.marks_of(name)
    wanted = None if queries is None or t.ndim < 2 else _laid_over(queries.arrays["t"], tuple(t.shape))
    if wanted is None:
        return ""
    wrong = (t != wanted) & (t >= 0) & (wanted >= 0)
    if not bool(wrong.any()) or _is_behind_start(t, wanted.expand(t.shape)):
        return ""
    wrong_sample = (sample_of(t) != sample_of(wanted.expand(t.shape))) & (t >= 0)
    if bool(wrong_sample.any()) and not bool((place_of(t) != place_of(wanted.expand(t.shape))).any()):
        return "samples mixed"
    return "mixed"


def _is_behind_start(t: Tensor, wanted: Tensor) -> bool:
    """Whether each token stands so many places behind its own, as behind a start token that is no input's."""
    is_known = t >= 0
    moved = (place_of(wanted) - place_of(t))[is_known]
    is_own = bool((sample_of(wanted) == sample_of(t))[is_known].all())
    return is_own and not bool(is_known.all()) and bool((moved == 1).all())


def _laid_over(tensor: Tensor, shape: tuple[int, ...]) -> Tensor | None:
    """The tokens of an argument, laid over a tensor that may have other features; None: it has another form."""
    if tuple(tensor.shape) == shape:
        return tensor
    if tensor.ndim != len(shape):
        return None
    axes = [axis for axis in range(tensor.ndim) if tensor.shape[axis] != shape[axis]]
    if len(axes) != 1 or not is_constant(tensor, axes[0]):
        return None
    return tensor.narrow(axes[0], 0, 1)
