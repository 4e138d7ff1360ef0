"""Score layout: the scores of an attention laid out as its weights are: each query, key and head at one place."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from headwise.dataflow import AttentionOps, MarkedOp, Marks, operand_marks

__all__ = ["beside", "laid"]


def beside(attention: AttentionOps, entry: MarkedOp) -> tuple[Tensor, Tensor] | None:
    """The scores laid out as the weights are, and the head of each row; None: they cannot be."""
    return None if entry.pair is None or entry.value is None else laid(attention, entry.value, entry.pair)


def laid(attention: AttentionOps, value: Tensor, pair: Marks) -> tuple[Tensor, Tensor] | None:
    """Numbers of queries and keys laid out as the weights are, and the head of each row; None: they cannot be."""
    joint, left = attention.context.joint, attention.has_weights_left
    marks = operand_marks(attention.context)[0 if left else 1]
    if joint is None or marks is None or marks.kind != "pair" or pair.kind != "pair":
        return None
    wanted = _numbers(marks)
    there = _placed(value.detach().double(), pair, wanted)
    if there is None:
        return None
    return joint.flat(there, left=left), joint.flat(marks.arrays["h"], left=left)[..., :1]


def _numbers(marks: Marks) -> Tensor:
    return torch.stack([marks.arrays[each] for each in "xyh"], dim=-1)


def _placed(value: Tensor, marks: Marks, wanted: Tensor) -> Tensor | None:
    """Each score at the entry of the weights that is of the same query, key and head."""
    have = _numbers(marks)
    if have.shape == wanted.shape and torch.equal(have, wanted):
        return value
    keys, ranks = torch.unique(torch.cat([have.flatten(0, -2), wanted.flatten(0, -2)]), dim=0, return_inverse=True)
    if bool((keys[ranks] < 0).any()):
        # of what is of no one query and key only the place says which it is
        return _in_place(value, wanted.shape[:-1])
    mine, wanted_ranks = ranks[: value.numel()], ranks[value.numel() :]
    values = torch.full((len(keys),), float("nan"), dtype=value.dtype)
    values[mine] = value.flatten()
    if not torch.equal(values[mine], value.flatten()) or bool(values[wanted_ranks].isnan().any()):
        return _in_place(value, wanted.shape[:-1])
    return values[wanted_ranks].reshape(wanted.shape[:-1])


def _in_place(value: Tensor, shape: Sequence[int]) -> Tensor | None:
    """Numbers in a shape that has the same axes but for those of one; None: it has others."""
    is_same = [size for size in value.shape if size > 1] == [size for size in shape if size > 1]
    return value.reshape(*shape) if is_same else None
