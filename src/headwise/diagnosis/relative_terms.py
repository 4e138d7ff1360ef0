"""Relative terms: whether what is added to scores, made of queries and a table of distances, is of its own pair."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from headwise.dataflow import AttentionOps, MarkedOp, Run, chain_of, place_of
from headwise.diagnosis.observation import Observation, changed

__all__ = ["is_shifted", "unshifted"]

SUMS = frozenset({"+", "+=", "add", "add_"})
# how many axes the table and its numbers have at least, and a weight below which a pair is hidden
TABLE, NOTHING = 2, 1e-9
# as many queries and keys tell rows apart
LEAST = 3


def is_shifted(observation: Observation) -> bool:
    """Whether a visible pair gets the term of another query, or none although a number of the table is left over.

    Such a term is a product of queries and a table, moved so that each pair has the number of its distance.
    """
    terms = _terms(observation.run, observation.attention)
    return any(_is_misplaced(observation, product, total, place) for product, total, place in terms)


def unshifted(run: Run, attention: AttentionOps, rerun: Callable[..., Run]) -> MarkedOp | None:
    """A product of queries and a table with a row for each distance, of which all queries read the same row for a key;
    None: there is none. rerun: the same run with stand-ins.
    """
    for product, total, place in _terms(run, attention):
        marks, count = total.pair, product.outputs[0].shape[-1]
        if marks is None:
            continue
        query, key = place_of(marks.arrays[attention.looks]), place_of(marks.arrays[attention.keys])
        lengths = int(query.max()) + 1, int(key.max()) + 1
        if count != sum(lengths) - 1 or min(lengths) < LEAST or bool((query < 0).any() | (key < 0).any()):
            continue
        columns = (torch.arange(count).double() + 1).expand(product.outputs[0].shape)
        used = _moved(run, rerun, product, total, place, columns)
        if used is None or used.shape != marks.shape:
            continue
        rows = used.new_full((lengths[0], lengths[1]), -1.0)
        rows[query, key] = used
        if bool((rows == rows[:1]).all()) and int(rows[0].unique().numel()) == lengths[1]:
            return product
    return None


def _terms(run: Run, attention: AttentionOps) -> list[tuple[MarkedOp, MarkedOp, int]]:
    """Products of queries and a table, the sums that add them to scores, and which operand of the sum they are."""
    out = []
    sums = [each for each in attention.path if each.name in SUMS and len(each.inputs) == TABLE]
    for total in sums:
        for place, tensor in enumerate(total.inputs):
            chain = chain_of(run, total.at, tensor.number)
            if any(each is attention.scores for each in chain):
                continue
            out += [(each, total, place) for each in chain if _is_of_table(each)]
    return out


def _is_of_table(entry: MarkedOp) -> bool:
    """Whether queries meet a table that no input is in, whose rows lie along the last axis of the product."""
    joint, product_marks = entry.joint, entry.output_marks[0] if entry.output_marks else None
    if joint is None or product_marks is None or product_marks.kind != "token" or not joint.summed:
        return False
    marks = dict(zip(map(id, entry.tensors), entry.given, strict=True))
    tables = [letters for tensor, letters in ((joint.a, joint.left), (joint.b, joint.right))
              if marks.get(id(tensor)) is None and tensor.ndim >= TABLE]  # fmt: skip
    others = joint.right if tables == [joint.left] else joint.left
    return len(tables) == 1 and joint.out[-1] in tables[0] and joint.out[-1] not in others


def _is_misplaced(observation: Observation, product: MarkedOp, total: MarkedOp, place: int) -> bool:
    product_marks, marks, softmax = product.output_marks[0], total.pair, observation.attention.softmax
    weights = None if softmax is None else softmax.value
    shape = product.outputs[0].shape
    if product_marks is None or marks is None or weights is None or weights.shape != marks.shape:
        return False
    count = shape[-1]
    rows = place_of(product_marks.arrays["t"]).double() + 1
    columns = (torch.arange(count).double() + 1).expand(shape)
    numbers = (torch.ones_like(rows), rows, columns)
    shifts = [_moved(observation.run, observation.rerun, product, total, place, each) for each in numbers]
    if any(each is None or each.shape != marks.shape for each in shifts):
        return False
    ones, row, column = (each for each in shifts if each is not None)
    query, key = place_of(marks.arrays[observation.attention.looks]), place_of(marks.arrays[observation.attention.keys])
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


def _moved(
    run: Run, rerun: Callable[..., Run], product: MarkedOp, total: MarkedOp, place: int, numbers: Tensor
) -> Tensor | None:
    """What a sum takes where a product gives certain numbers, spread over what it gives; None: such a run fails."""

    def instead(output: Tensor) -> Tensor:
        return numbers.to(output.dtype)

    changes: list[tuple[MarkedOp, Callable[[Tensor], Tensor]]] = [(product, instead)]
    changed_run = rerun(changed(run, changes))
    entry = next((each for each in changed_run.seen if each.at == total.at), None)
    if changed_run.failure is not None or entry is None or entry.name != total.name:
        return None
    value = entry.inputs[place].value
    whole = entry.outputs[0].shape
    return None if value is None or value.ndim != len(whole) else value.detach().double().expand(whole)
