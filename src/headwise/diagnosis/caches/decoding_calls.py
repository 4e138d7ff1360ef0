"""Decoding calls: the operations and the attention of one call of a sequence in parts, and which tokens they are of."""

from __future__ import annotations

import torch
from torch import Tensor

from headwise.dataflow import JOINS, AttentionOps, Decoded, MarkedOp, Marks, attentions, place_of, sample_of
from headwise.diagnosis.checks.head_layout import sides

__all__ = ["WRITES", "attention_of", "drops", "in_call", "is_falling", "is_left_behind", "joins", "places_of"]

WRITES = ("__setitem__", "copy_", "index_copy_", "index_put_", "scatter_")


def in_call(decoded: Decoded, at: int) -> list[MarkedOp]:
    """The operations of one call of a sequence."""
    stop = decoded.bounds[at + 1] if at + 1 < len(decoded.bounds) else None
    return [] if decoded.run is None else list(decoded.run.seen[decoded.bounds[at] : stop])


def joins(entry: MarkedOp) -> bool:
    """Whether an operation puts tokens to others, or where none were; to put parts of one token together is no such."""
    if entry.last not in JOINS and entry.last not in WRITES:
        return False
    places = [None if marks is None or marks.kind != "token" else _all_places(marks) for marks in entry.given]
    placed = [place for place in places if place is not None]
    return bool(placed) and (None in places or any(each != placed[0] for each in placed) or -1 in placed[0])


def _all_places(marks: Marks) -> frozenset[int]:
    return frozenset(torch.unique(place_of(marks.arrays["t"])).tolist())


def attention_of(decoded: Decoded, at: int) -> AttentionOps | None:
    """The last attention of one call."""
    run = decoded.run
    if run is None:
        return None
    stop = decoded.bounds[at + 1] if at + 1 < len(decoded.bounds) else len(run.record.operations)
    in_range = [attention for attention in attentions(run) if decoded.bounds[at] <= attention.context.at < stop]
    return in_range[-1] if in_range else None


def is_left_behind(decoded: Decoded, at: int, attention: AttentionOps) -> bool:
    """Whether a call puts its tokens to all that came before, and looks at its own alone."""
    first, end = sum(decoded.cuts[:at]), sum(decoded.cuts[: at + 1])
    joined = [entry for entry in in_call(decoded, at) if joins(entry)]
    put = [[_places_in(marks) for marks in each.given if marks is not None] for each in joined]
    kept = [each for each in put if set[int]().union(*each) >= set(range(end))]
    met = [places_of(side.t) for side in sides(attention) if side.name != "q"]
    return bool(kept) and bool(met) and all(each == set(range(first, end)) for each in met)


def drops(entry: MarkedOp, end: int) -> bool:
    """Whether an operation takes all tokens and gives some."""
    taken = [_places_in(marks) for marks in entry.given if marks is not None]
    results = [_places_in(marks) for marks in entry.output_marks if marks is not None]
    every = set(range(end))
    return any(each >= every for each in taken) and bool(results) and not any(result >= every for result in results)


def places_of(t: Tensor) -> set[int]:
    """The places of the tokens that marks tell of."""
    return set(torch.unique(place_of(t[t >= 0])).tolist())


def _places_in(marks: Marks) -> set[int]:
    """The places of the tokens in what holds tokens; none in anything else."""
    return places_of(marks.arrays["t"]) if marks.kind == "token" else set()


def is_falling(marks: Marks | None) -> bool:
    """Whether along some axis tokens stand in another order than they came."""
    if marks is None or marks.kind != "token":
        return False
    t = marks.arrays["t"]
    for axis in range(t.ndim):
        places, samples = place_of(t), sample_of(t)
        steps = places.diff(dim=axis)
        if steps.numel() and bool((steps != 0).any()) and not bool(samples.diff(dim=axis).any()):
            return bool((steps < 0).any()) and bool((t >= 0).all())
    return False
