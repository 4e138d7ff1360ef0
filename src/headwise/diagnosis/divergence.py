"""Divergence: the operations by which hidden tokens come into what is computed of the others, in two runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from headwise.dataflow import Run
from headwise.diagnosis.distance import distance
from headwise.recording import Operation, TensorSeen

__all__ = ["Divergence", "Left", "divergences", "of_hidden", "of_shorter"]

NEAR = 1e-9
# what sets hidden entries to a number
FILLS = frozenset({"masked_fill", "masked_fill_", "where", "mul", "__mul__", "__rmul__"})
# the entries of the tokens that are left, of a tensor of each of two runs; None: it is not known which they are
Left = Callable[[Tensor, Tensor], "tuple[Tensor, Tensor] | None"]


@dataclass(frozen=True)
class Divergence:
    """An operation that takes the same of the tokens that are left, and gives something else. filled: the operation
    that set what is hidden in its inputs to a number, None: none did. other: the operation of the second run.
    """

    operation: Operation
    other: Operation
    filled: Operation | None


def divergences(run: Run, again: Run, left: Left) -> Iterator[Divergence]:
    """Such operations of two runs, in which the same lines run in the same order. What comes before one of them agrees
    again there, so that what a later one shows does not come of an earlier one.
    """
    makers: dict[int, Operation] = {}
    for first, second in zip(run.record.operations, again.record.operations, strict=False):
        if first.span != second.span or first.name != second.name:
            return
        inputs = [_agree(a, b, left) for a, b in zip(first.inputs, second.inputs, strict=False)]
        if inputs and all(inputs) and any(each is False for each in _results(first, second, left)):
            fills = [makers[each.number] for each in first.inputs if each.number in makers]
            yield Divergence(first, second, next((each for each in fills if each.last in FILLS), None))
        makers |= {output.number: first for output in first.outputs}


def _results(first: Operation, second: Operation, left: Left) -> Iterator[bool | None]:
    return (_agree(a, b, left) for a, b in zip(first.outputs, second.outputs, strict=False))


def _agree(a: TensorSeen, b: TensorSeen, left: Left) -> bool | None:
    """Whether two tensors hold the same of the tokens that are left; None: it is not known."""
    if a.value is None or b.value is None:
        return None
    pair = left(a.value, b.value)
    if pair is None or pair[0].shape != pair[1].shape:
        return None
    return distance(*pair) <= NEAR


def of_shorter(count: int) -> Left:
    """Of two runs, the second without the last tokens, of which there are so many: the entries that both have."""

    def left(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor] | None:
        if a.ndim != b.ndim or any(x not in (y, y + count) for x, y in zip(a.shape, b.shape, strict=True)):
            return None
        return a[tuple(slice(0, size) for size in b.shape)], b

    return left


def of_hidden(hidden: Tensor) -> Left:
    """Of two runs with other numbers in place of hidden tokens: the entries of samples and tokens that are not hidden.

    hidden: (batch, tokens).
    """
    samples, length = hidden.shape

    def left(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor] | None:
        if a.shape != b.shape:
            return None
        axes = [axis for axis in range(1, a.ndim) if a.shape[axis] == length]
        if not axes:
            return a, b
        if a.shape[0] != samples:
            return None
        keep = torch.ones((), dtype=torch.bool)
        for axis in axes:
            keep = keep & ~hidden.reshape(samples, *[length if at == axis else 1 for at in range(1, a.ndim)])
        return a[keep.expand(a.shape)], b[keep.expand(b.shape)]

    return left
