"""Position terms: what is added to scores by distance: whether it tells distances apart, and favours the near ones.

Tables of distances: Raffel et al. 2020, arXiv:1910.10683, sec. 2.1; slopes: Press et al. 2022, arXiv:2108.12409, eq. 1.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from headwise.dataflow import AttentionOps, MarkedOp, Run, attentions, made_from, makers
from headwise.diagnosis.suspects import Suspect
from headwise.source import Span

__all__ = ["position_suspects"]

SUMS = frozenset({"+", "+=", "add", "add_", "-", "-="})
# scores below this are hidden; two numbers within the other are one
HIDDEN, NEAR = -1e3, 1e-9
# a weight above this is one
VISIBLE = 1e-7
# a line has three points
POINTS = 3


def position_suspects(run: Run) -> list[Suspect]:
    """A table of distances of which one row is read for all pairs, and a term that grows along a line with distance."""
    if not isinstance(run.target, nn.Module):
        return []
    for attention in attentions(run):
        for entry in [each for each in attention.path if each.name in SUMS]:
            if (lookup := _constant_lookup(run, attention, entry)) is not None:
                name = _name_of(run.target, lookup)
                return [Suspect("position-bias-constant", _index_span(run, lookup), said={"name": name}, proved=True)]
            if _favours_distance(run, attention, entry):
                return [Suspect("distance-bias-sign", entry.span, proved=True)]
    return []


def _constant_lookup(run: Run, attention: AttentionOps, entry: MarkedOp) -> MarkedOp | None:
    """The lookup in a table that makes what is added to scores, where all visible pairs read one row; None: none."""
    visible = None if attention.weights is None else attention.weights.gt(VISIBLE).any(dim=0)
    for maker in made_from(run, [entry]):
        index = next((each.value for each in maker.inputs if each.value is not None and _is_index(each.value)), None)
        is_lookup = maker.last == "embedding" and any(isinstance(each, nn.Parameter) for each in maker.tensors)
        if not is_lookup or index is None or visible is None or index.shape[-2:] != visible.shape:
            continue
        rows = index[..., visible]
        if min(visible.shape) > 1 and rows.shape[-1] > max(visible.shape) and bool((rows == rows.flatten()[0]).all()):
            return maker
    return None


def _is_index(t: Tensor) -> bool:
    return t.ndim > 1 and not t.is_floating_point() and t.dtype is not torch.bool


def _name_of(target: nn.Module, lookup: MarkedOp) -> str:
    names = {each.data_ptr(): name for name, each in target.named_parameters()}
    return next((names[each.data_ptr()] for each in lookup.tensors if each.data_ptr() in names), "")


def _index_span(run: Run, lookup: MarkedOp) -> Span:
    """Where the function that looks up gets the rows' numbers, else the lookup itself."""
    for tensor in lookup.inputs:
        if tensor.value is None or not _is_index(tensor.value):
            continue
        for maker in makers(run, lookup.at, tensor.number)[:1]:
            for span in (maker.span, *maker.operation.chain):
                if span.function == lookup.span.function:
                    return span
    return lookup.span


def _favours_distance(run: Run, attention: AttentionOps, entry: MarkedOp) -> bool:
    """Whether what is added to the scores of each visible key grows along a line with its distance to the query."""
    scores = attention.scores
    if scores is None or not scores.outputs or any(_is_learned(maker) for maker in made_from(run, [entry])):
        return False
    is_taken = entry.name.startswith("-")
    for tensor in entry.unmarked_inputs:
        if tensor.value is None or not tensor.value.is_floating_point() or isinstance(tensor.value, nn.Parameter):
            continue
        value = tensor.value.double()
        if value.ndim >= 2 and value.shape[-1] == value.shape[-2] >= POINTS:
            rows = list(_rows(-value if is_taken else value))
            if rows and all(_rises(row) for row in rows):
                return True
    return False


def _is_learned(maker: MarkedOp) -> bool:
    return any(isinstance(each, nn.Parameter) and each.requires_grad for each in maker.tensors)


def _rows(value: Tensor) -> Iterator[Tensor]:
    """What each query adds to the keys from its own place back, as far as they are visible; rows of POINTS or more."""
    for square in value.reshape(-1, *value.shape[-2:]):
        for place in range(POINTS - 1, square.shape[-1]):
            row = square[place, : place + 1].flip(0)
            seen = int((row > HIDDEN).long().cumprod(0).sum())
            if seen >= POINTS:
                yield row[:seen]


def _rises(row: Tensor) -> bool:
    """Whether numbers grow by the same step, which is no rounding."""
    steps = row.diff()
    return bool(steps[0] > NEAR) and bool(((steps - steps[0]).abs() <= NEAR + 1e-6 * steps[0].abs()).all())
