"""Score path: the way of q · k to its softmax, where other scores are added to it, or heads are mixed by weights."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from headwise.dataflow import AttentionOps, MarkedOp, is_scores, source_of
from headwise.diagnosis.checks.head_layout import sides

__all__ = ["plain_scores", "terms_of", "way_of"]

SUMS = frozenset({"+", "+=", "add", "add_", "-", "-=", "sub", "sub_"})


def plain_scores(attention: AttentionOps) -> AttentionOps:
    """An attention whose scores are those of the keys that have values, where there are others, as of distances."""
    others = [each for each in attention.path if is_scores(each)]
    for scores in others if len(others) > 1 else ():
        named = replace(attention, scores=scores)
        by_name = {each.name: _sources(each.t) for each in sides(named)}
        if set(by_name) == set("qkv") and by_name["k"] == by_name["v"]:
            return named
    return attention


def way_of(attention: AttentionOps) -> list[MarkedOp] | None:
    """The operations, in order, that q · k goes through, without those that add other scores or mix heads by weights;
    None: there are no such, or something else is done with other scores.
    """
    scores, softmax = attention.scores, attention.softmax
    if scores is None or softmax is None or not is_scores(scores):
        return None
    way, is_related = [scores], False
    numbers = scores.results
    for entry in attention.path:
        pairs = [
            tensor.number for tensor, marks in zip(entry.inputs, entry.given, strict=True)
            if marks is not None and marks.kind == "pair"
        ]  # fmt: skip
        if entry.at <= scores.at or not numbers & set(pairs):
            continue
        if entry is softmax:
            return way if is_related else None
        if set(pairs) - numbers and entry.name not in SUMS:
            return None
        if entry.joint is not None and len(pairs) > 1:
            return None
        if entry.joint is not None or set(pairs) - numbers:
            is_related = True
        else:
            way.append(entry)
        numbers |= entry.results | set(entry.operation.writes)
    return None


def terms_of(attention: AttentionOps) -> set[int]:
    """How many terms may be added to make one score, as of content and of places: none, or so many products; or two."""
    is_added = any(each.name in SUMS and len(each.inputs) > 1 for each in attention.path)
    return {sum(map(is_scores, attention.path)), 2} - {0, 1} if is_added else set()


def _sources(t: Tensor) -> tuple[int, ...]:
    return tuple(int(each) for each in torch.unique(source_of(t)))
