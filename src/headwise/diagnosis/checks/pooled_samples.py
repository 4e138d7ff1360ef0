"""Pooled samples: whether samples were taken for tokens, by mistake in a softmax over the batch, or on purpose."""

from __future__ import annotations

from math import prod
from typing import Any

import torch
from torch import Tensor

from headwise.dataflow import (
    MarkedOp,
    Marks,
    Run,
    attentions,
    chain_of,
    is_constant,
    operand_marks,
    place_of,
    sample_of,
)
from headwise.diagnosis.checks.softmax import SOFTMAXES
from headwise.diagnosis.repair import Repair
from headwise.diagnosis.suspects import Suspect

__all__ = ["attends_rows", "pooled_over_samples"]

PRODUCTS = frozenset({"mul", "__mul__", "*", "multiply", "mul_"})
# that of samples, and that of places
Axes = tuple[int, int]


def pooled_over_samples(run: Run) -> list[Suspect]:
    """The softmax over the samples of one score for each token and head, whose weights are then summed over the tokens.

    It holds whichever of the two axes is called the batch: nothing is normalised along one axis and summed along the
    other, where each entry is the one score of a token (Bahdanau et al. 2015, arXiv:1409.0473, equations 5 and 6).
    """
    if run.failure is not None or attentions(run):
        return []
    for softmax in (op for op in run.seen if op.last in SOFTMAXES and op.outputs):
        axes = _axes_of(softmax.output_marks[0])
        value = softmax.value
        if axes is None or value is None or _goes_over(softmax, value.ndim) != axes[0]:
            continue
        if not _is_summed_over_tokens(run, softmax):
            continue
        place = axes[1] - value.ndim

        def right(*args: Any, axis: int = place, **options: Any) -> Tensor:
            kept = {name: each for name, each in options.items() if name == "dtype"}
            return torch.softmax(args[0] if args else options["input"], dim=axis, **kept)

        said = {"axis": place, "was": str(axes[0])}
        return [Suspect("softmax-axis", softmax.span, Repair({softmax.site: right}), values=said, proved=True)]
    return []


def _axes_of(marks: Marks | None) -> Axes | None:
    """The axis of samples and that of places, of one number for each token, or one for each of several heads; None: it
    holds something else. A number for a token and the one query of its sample is one for each token.
    """
    if marks is None or marks.kind not in ("token", "pair"):
        return None
    heads = 1
    if marks.kind == "token":
        tokens = [marks.arrays["t"]]
        heads = prod(marks.shape[axis] for axis in _varying(marks.arrays["f"]))
    else:
        # the queries stand at one place
        tokens = [marks.arrays[name] for name in "xy" if len(_varying(place_of(marks.arrays[name])))]
    if len(tokens) != 1 or bool((tokens[0] < 0).any()) or tokens[0].numel() != heads * tokens[0].unique().numel():
        return None
    samples, places = _varying(sample_of(tokens[0])), _varying(place_of(tokens[0]))
    is_one_score = len(samples) == len(places) == 1 and samples != places
    return (samples[0], places[0]) if is_one_score else None


def _varying(numbers: Tensor) -> list[int]:
    """The axes along which numbers are not the same."""
    return [axis for axis in range(numbers.ndim) if not is_constant(numbers, axis)]


def _goes_over(softmax: MarkedOp, rank: int) -> int | None:
    dim = softmax.options.get("dim", next((each for each in softmax.args[1:] if isinstance(each, int)), None))
    return dim % rank if isinstance(dim, int) else None


def _is_summed_over_tokens(run: Run, softmax: MarkedOp) -> bool:
    """Whether all values that the weights, moved at most, are multiplied with are added up over the places alone."""
    weights, sums = set(softmax.results), list[bool]()
    for entry in (op for op in run.seen if op.at > softmax.at and op.taken & weights):
        if entry.is_movement or "dropout" in entry.last:
            weights |= entry.results
        elif entry.joint is not None:
            sums.append(_contracts_tokens(entry, weights))
        elif entry.last in PRODUCTS:
            sums.append(_adds_up_tokens(run, entry, weights))
    return bool(sums) and all(sums)


def _contracts_tokens(entry: MarkedOp, weights: set[int]) -> bool:
    """Whether a product sums over the places of the weights, and keeps their samples."""
    joint = entry.joint
    if joint is None:
        return False
    sides = ((joint.a, joint.left), (joint.b, joint.right))
    for (operand, letters), marks in zip(sides, operand_marks(entry), strict=True):
        at = next((at for at, tensor in enumerate(entry.tensors) if tensor is operand), None)
        axes = _axes_of(marks)
        if at is not None and entry.inputs[at].number in weights and axes is not None:
            sample, place = (letters[axis] for axis in axes)
            return place in joint.summed and sample in joint.out
    return False


def _adds_up_tokens(run: Run, product: MarkedOp, weights: set[int]) -> bool:
    """Whether what weights are multiplied with is added up along their places, and not along their samples."""
    at = next((at for at, tensor in enumerate(product.inputs) if tensor.number in weights), None)
    axes, rank = None if at is None else _axes_of(product.given[at]), len(product.outputs[0].shape)
    if at is None or axes is None or len(product.inputs) != 2:
        return False
    sample, place = (axis + rank - len(product.inputs[at].shape) for axis in axes)
    for total in (op for op in run.seen if op.at > product.at and op.last == "sum" and op.taken & product.results):
        dim = total.options.get("dim", total.options.get("axis", total.args[1] if len(total.args) > 1 else None))
        dims = {axis % rank for axis in ([dim] if isinstance(dim, int) else dim or []) if isinstance(axis, int)}
        return place in dims and sample not in dims
    return False


def attends_rows(run: Run, at: int | None = None) -> bool:
    """Whether samples attend to each other on purpose, each with all its tokens side by side as one token, as rows of a
    table do (arXiv:2106.01342, arXiv:2106.02584). at: of an operation that is no earlier than their scores; None: any.
    """
    for attention in attentions(run):
        scores = attention.scores
        is_of_one = scores is not None and bool(scores.outputs) and scores.outputs[0].shape[0] == 1
        if scores is None or not is_of_one or (at is not None and at < scores.at):
            continue
        chains = [chain_of(run, scores.at, operand.number) for operand in scores.inputs]
        if all(any(map(_are_rows, chain)) for chain in chains):
            return True
    return False


def _are_rows(entry: MarkedOp) -> bool:
    """Whether an operation makes one sample of many, of which each, with all its tokens side by side, is a token."""
    marks = entry.output_marks[0] if entry.is_movement and entry.output_marks else None
    if marks is None or marks.kind != "token":
        return False
    t = marks.arrays["t"]
    if t.ndim != len("1bD") or t.shape[0] != 1:
        return False
    samples, places = sample_of(t[0]), place_of(t[0])
    # what is learned, as a token of the class, is of no sample
    own = samples.amax(dim=-1, keepdim=True)
    is_of_one = bool(((samples == own) | (samples < 0)).all()) and bool((places == places[:1]).all())
    return is_of_one and own.unique().numel() == len(own) > 1 and bool((own >= 0).all()) and places.unique().numel() > 1
