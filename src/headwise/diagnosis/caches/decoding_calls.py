"""Decoding calls: the operations and the attention of one call of a sequence in parts, and which tokens they are of."""

from __future__ import annotations

import torch
from torch import Tensor

from headwise.dataflow import JOINS, AttentionOps, Decoded, MarkedOp, Marks, attentions, place_of
from headwise.diagnosis.checks.head_layout import sides

__all__ = ["WRITES", "attention_of", "drops", "in_call", "is_left_behind", "joins", "places_of"]

WRITES = ("__setitem__", "copy_", "index_copy_", "index_put_", "scatter_")


def in_call(done: Decoded, at: int) -> list[MarkedOp]:
    """The operations of one call of a sequence."""
    stop = done.bounds[at + 1] if at + 1 < len(done.bounds) else None
    return [] if done.run is None else list(done.run.seen[done.bounds[at] : stop])


def joins(entry: MarkedOp) -> bool:
    """Whether an operation puts tokens to others, or where none were; to put parts of one token together is no such."""
    if entry.last not in JOINS and entry.last not in WRITES:
        return False
    held = [None if marks is None or marks.kind != "token" else _all_places(marks) for marks in entry.given]
    known = [each for each in held if each is not None]
    return bool(known) and (None in held or any(each != known[0] for each in known) or -1 in known[0])


def _all_places(marks: Marks) -> frozenset[int]:
    return frozenset(torch.unique(place_of(marks.arrays["t"])).tolist())


def attention_of(done: Decoded, at: int) -> AttentionOps | None:
    """The last attention of one call."""
    run = done.run
    if run is None:
        return None
    stop = done.bounds[at + 1] if at + 1 < len(done.bounds) else len(run.record.operations)
    found = [each for each in attentions(run) if done.bounds[at] <= each.context.at < stop]
    return found[-1] if found else None


def is_left_behind(done: Decoded, at: int, attention: AttentionOps) -> bool:
    """Whether a call puts its tokens to all that came before, and looks at its own alone."""
    first, end = sum(done.cuts[:at]), sum(done.cuts[: at + 1])
    joined = [each for each in in_call(done, at) if joins(each)]
    put = [[_places_in(marks) for marks in each.given if marks is not None] for each in joined]
    kept = [each for each in put if set[int]().union(*each) >= set(range(end))]
    met = [places_of(each.t) for each in sides(attention) if each.name != "q"]
    return bool(kept) and bool(met) and all(each == set(range(first, end)) for each in met)


def drops(entry: MarkedOp, end: int) -> bool:
    """Whether an operation takes all tokens and gives some."""
    taken = [_places_in(each) for each in entry.given if each is not None]
    made = [_places_in(each) for each in entry.made if each is not None]
    every = set(range(end))
    return any(each >= every for each in taken) and bool(made) and not any(each >= every for each in made)


def places_of(t: Tensor) -> set[int]:
    """The places of the tokens that marks tell of."""
    return set(torch.unique(place_of(t[t >= 0])).tolist())


def _places_in(marks: Marks) -> set[int]:
    """The places of the tokens in what holds tokens; none in anything else."""
    return places_of(marks.arrays["t"]) if marks.kind == "token" else set()
