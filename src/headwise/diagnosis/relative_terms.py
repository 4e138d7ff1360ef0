"""Relative terms: whether what is added to scores, made of queries and a table of distances, is of its own pair."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from headwise.dataflow import MarkedOp, chain_of, place_of
from headwise.diagnosis.observation import Observation, changed

__all__ = ["is_shifted"]

SUMS = frozenset({"+", "+=", "add", "add_"})
# how many axes the table and its numbers have at least, and a weight below which a pair is hidden
TABLE, NOTHING = 2, 1e-9


def is_shifted(seen: Observation) -> bool:
    """Whether a visible pair gets the term of another query, or none although a number of the table is left over.

    Such a term is a product of queries and a table, moved so that each pair has the number of its distance.
    """
    return any(_is_misplaced(seen, product, total, place) for product, total, place in _terms(seen))


def _terms(seen: Observation) -> list[tuple[MarkedOp, MarkedOp, int]]:
    """Products of queries and a table, the sums that add them to scores, and which operand of the sum they are."""
    attention, out = seen.attention, []
    sums = [each for each in attention.path if each.operation.name in SUMS and len(each.operation.inputs) == TABLE]
    for total in sums:
        for place, tensor in enumerate(total.operation.inputs):
            chain = chain_of(seen.run, total.at, tensor.number)
            if any(each is attention.scores for each in chain):
                continue
            out += [(each, total, place) for each in chain if _is_of_table(each)]
    return out


def _is_of_table(entry: MarkedOp) -> bool:
    """Whether queries meet a table that no input is in, whose rows lie along the last axis of the product."""
    joint, made = entry.joint, entry.made[0] if entry.made else None
    if joint is None or made is None or made.kind != "token" or not joint.summed:
        return False
    marks = dict(zip(map(id, entry.tensors), entry.given, strict=True))
    tables = [letters for tensor, letters in ((joint.a, joint.left), (joint.b, joint.right))
              if marks.get(id(tensor)) is None and tensor.ndim >= TABLE]  # fmt: skip
    others = joint.right if tables == [joint.left] else joint.left
    return len(tables) == 1 and joint.out[-1] in tables[0] and joint.out[-1] not in others


def _is_misplaced(seen: Observation, product: MarkedOp, total: MarkedOp, place: int) -> bool:
    made, marks, softmax = product.made[0], total.made[0], seen.attention.softmax
    weights = None if softmax is None else softmax.operation.outputs[0].value
    shape = product.operation.outputs[0].shape
    if made is None or marks is None or marks.kind != "pair" or weights is None or weights.shape != marks.shape:
        return False
    count = shape[-1]
    rows = place_of(made.arrays["t"]).double() + 1
    columns = (torch.arange(count).double() + 1).expand(shape)
    found = [_moved(seen, product, total, place, each) for each in (torch.ones_like(rows), rows, columns)]
    if any(each is None or each.shape != marks.shape for each in found):
        return False
    ones, row, column = (each for each in found if each is not None)
    query, key = place_of(marks.arrays[seen.attention.looks]), place_of(marks.arrays[seen.attention.keys])
    visible = (weights > NOTHING) & (query >= 0) & (key >= 0)
    taken = visible & (ones != 0)
    unit = ones[taken][:1]
    if not taken.any() or not bool(torch.isclose(ones[taken], unit).all()):
        # more is done with it than to move it
        return False
    is_others = ~torch.isclose(row / unit, query.double() + 1)
    used = torch.unique((column[taken] / unit).round())
    is_lacking = bool((visible & ~taken).any()) and len(used) < count
    return bool(is_others[taken].any()) or is_lacking


def _moved(seen: Observation, product: MarkedOp, total: MarkedOp, place: int, numbers: Tensor) -> Tensor | None:
    """What a sum takes where a product gives certain numbers, spread over what it gives; None: such a run fails."""

    def instead(made: Tensor) -> Tensor:
        return numbers.to(made.dtype)

    changes: list[tuple[MarkedOp, Callable[[Tensor], Tensor]]] = [(product, instead)]
    then = seen.rerun(changed(seen.run, changes))
    entry = next((each for each in then.seen if each.at == total.at), None)
    if then.record.failure is not None or entry is None or entry.operation.name != total.operation.name:
        return None
    value = entry.operation.inputs[place].value
    whole = entry.operation.outputs[0].shape
    return None if value is None or value.ndim != len(whole) else value.detach().double().expand(whole)
