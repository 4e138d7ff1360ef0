"""Rotary distances: whether scores of like tokens that are rotated by position depend on their distance alone."""

from __future__ import annotations

import torch
from torch import Tensor

from headwise.dataflow import AttentionOps, MarkedOp, operand_marks, place_of, value_of
from headwise.diagnosis.checks.rotary_axis import axis_of

__all__ = ["NEAR", "depends_on_distance", "first_place"]

NEAR = 1e-6
# a distance that none is
NOWHERE = 1 << 40


def first_place(turn: MarkedOp) -> int:
    """The place of the first token that is rotated."""
    places = [place_of(marks.arrays["t"]) for marks in turn.given if marks is not None and marks.kind == "token"]
    return min((int(each[each >= 0].min()) for each in places if bool((each >= 0).any())), default=0)


def depends_on_distance(attention: AttentionOps, first: int) -> bool | None:
    """Whether scores of like tokens depend on their distance alone, from the first token that is turned on; None: that
    cannot be told.
    """
    scores = attention.scores
    if scores is None or scores.joint is None:
        if not attention.fused or len(attention.context.tensors) < 2:
            return None
        q, k = attention.context.tensors[:2]
        a, b = attention.context.given[:2]
        if (
            a is None
            or b is None
            or a.kind != "token"
            or b.kind != "token"
            or q.ndim != k.ndim
            or q.shape[:-2] != k.shape[:-2]
        ):
            return None
        product = q @ k.transpose(-2, -1)
        x = _places(a.arrays["t"][..., :1], -2).expand(product.shape)
        y = _places(b.arrays["t"][..., 0].unsqueeze(-2), -1).expand(product.shape)
    else:
        joint, marks = scores.joint, scores.output_marks[0]
        if marks is None or marks.kind != "pair" or any(each is None for each in operand_marks(scores)):
            return None
        product = torch.einsum(
            f"{joint.left},{joint.right}->{joint.out}", value_of(scores, joint.a), value_of(scores, joint.b)
        )
        x, y = _places(marks.arrays[attention.looks], -2), _places(marks.arrays[attention.keys], -1)
    row, column = axis_of(x), axis_of(y)
    if product.ndim < 3 or row is None or column is None or row == column:
        return None
    product, x, y = (tensor.movedim((row, column), (-2, -1)) for tensor in (product, x, y))
    flat, x, y = (each.reshape(-1, *each.shape[-2:])[:8] for each in (product, x, y))
    x, y = ((each - first).where(each >= first, -1) for each in (x, y))
    count = int(max(x.max(), y.max())) + 1
    return any(_depend(flat, _apart_by(x, y, width)) for width in _widths(count)) if count > 0 else None


def _places(t: Tensor, axis: int) -> Tensor:
    """The places of tokens; of tokens that were made of several, as patches are, in the order in which they lie."""
    if bool((t >= 0).any()):
        return place_of(t)
    counted = torch.arange(t.shape[axis])
    return counted.reshape([-1 if at == axis else 1 for at in range(-t.ndim, 0)]).expand(t.shape)


def _widths(count: int) -> list[int]:
    """How wide the rows may be in which so many places lie: one row, or a grid."""
    return [count, *(each for each in range(2, count) if count % each == 0)]


def _apart_by(x: Tensor, y: Tensor, width: int) -> Tensor:
    """How far places are apart in a grid of that width, along it and across, as one number; NOWHERE: one is none."""
    down, along = x // width - y // width, x % width - y % width
    # what fills up a window is at no place
    return (down * 2 * width + along).where((x >= 0) & (y >= 0), NOWHERE)


def _depend(scores: Tensor, far: Tensor) -> bool:
    """Whether equal distances have equal scores, in each head."""
    for head, span in zip(scores, far, strict=True):
        for distance in span[span != NOWHERE].unique():
            is_own = head[span == distance]
            if float((is_own - is_own[0]).abs().max()) > NEAR * max(1.0, float(head.abs().max())):
                return False
    return True
