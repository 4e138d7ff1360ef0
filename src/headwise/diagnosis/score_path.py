"""Score path: the way of q · k to its softmax, where other scores are added to it, or heads are mixed by weights."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from headwise.dataflow import AttentionOps, MarkedOp, Run, chain_of, is_scores, source_of
from headwise.diagnosis.checks.head_layout import sides
from headwise.recording import TensorSeen

__all__ = ["ScorePath", "plain_scores", "terms_of", "way_of"]

# masks that are added hide with at most this
HIDDEN = -1e4
SUMS = frozenset({"+", "+=", "add", "add_", "-", "-=", "sub", "sub_"})


def plain_scores(attention: AttentionOps) -> AttentionOps:
    """An attention whose scores are those of the keys that have values, where there are others, as of distances."""
    others = [entry for entry in attention.path if is_scores(entry)]
    for scores in others if len(others) > 1 else ():
        named = replace(attention, scores=scores)
        by_name = {side.name: _sources(side.t) for side in sides(named)}
        if set(by_name) == set("qkv") and by_name["k"] == by_name["v"]:
            return named
    return attention


@dataclass(frozen=True)
class ScorePath:
    """The operations that q · k goes through, in order: way: those of its own; sums: those that add other terms made of
    the inputs; mixtures: those that mix heads by weights.
    """

    way: tuple[MarkedOp, ...]
    sums: tuple[MarkedOp, ...]
    mixtures: tuple[MarkedOp, ...]


def way_of(attention: AttentionOps) -> ScorePath | None:
    """The path of q · k to its softmax; None: nothing is added or mixed on it, or something else is done with other
    scores.
    """
    scores, softmax = attention.scores, attention.softmax
    if scores is None or softmax is None or not is_scores(scores):
        return None
    way, sums, mixtures = [scores], list[MarkedOp](), list[MarkedOp]()
    numbers = scores.results
    for entry in attention.path:
        marked = [
            (operand, marks.kind == "pair")
            for operand, marks in zip(entry.inputs, entry.given, strict=True)
            if marks is not None
        ]
        pairs = {each.number for each, is_pair in marked if is_pair}
        if entry.at <= scores.at or not numbers & pairs:
            continue
        if entry is softmax:
            return ScorePath(tuple(way), tuple(sums), tuple(mixtures)) if sums or mixtures else None
        is_sum = entry.name in SUMS
        if pairs - numbers and not is_sum:
            return None
        if entry.joint is not None and len(pairs) > 1:
            return None
        if entry.joint is not None:
            mixtures.append(entry)
        elif is_sum and any(each.number not in numbers and (is_pair or _is_term(each)) for each, is_pair in marked):
            sums.append(entry)
        else:
            way.append(entry)
        numbers |= entry.results | set(entry.operation.writes)
    return None


def _is_term(operand: TensorSeen) -> bool:
    """Whether what is added to scores is a term of them, and no mask made of the tokens."""
    value = operand.value
    return value is not None and bool((value != 0).any()) and bool((value > HIDDEN).all())


def terms_of(run: Run, attention: AttentionOps) -> set[int]:
    """How many terms may be added to make one score, as of content and of places: none, or so many products; or two, or
    as many as sums of the shape of scores have (He et al. 2021, arXiv:2006.03654, equation 4).
    """
    sums = [entry for entry in attention.path if entry.name in SUMS and len(entry.inputs) > 1]
    nested = {
        op.at
        for total in sums
        for tensor in total.inputs
        for op in chain_of(run, total.at, tensor.number)
        if op.name in SUMS and op.outputs and op.outputs[0].shape == total.outputs[0].shape
        if not any(_is_zero(operand) for operand in op.inputs)
    }
    every = {sum(map(is_scores, attention.path)), 2, 1 + len(nested | {entry.at for entry in sums})}
    return every - {0, 1} if sums else set()


def _is_zero(operand: TensorSeen) -> bool:
    """Whether nothing is in what terms are added to, as at the start of a loop."""
    return operand.value is not None and not bool(operand.value.any())


def _sources(t: Tensor) -> tuple[int, ...]:
    return tuple(int(each) for each in torch.unique(source_of(t)))
