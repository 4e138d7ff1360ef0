"""Softmax: a softmax that is applied twice, as its logarithm, or without its sum, or that another replaced."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from headwise.dataflow import AttentionOps, MarkedOp, Run, attentions
from headwise.diagnosis.checks.mask_path import uses
from headwise.diagnosis.checks.weight_sums import DIVISIONS, OTHERS, TOLERANCE, are_shares
from headwise.diagnosis.repair import Repair
from headwise.diagnosis.suspects import Suspect

__all__ = ["normalisation_suspects", "other_normalisation"]

SOFTMAXES = frozenset({"softmax", "_softmax"})
EXPONENTIALS = frozenset({"exp", "exp_", "exp2", "expm1"})


def normalisation_suspects(run: Run) -> list[Suspect]:
    """What keeps the weights of the first attention that has it from being one softmax over the keys."""
    for attention in attentions(run):
        if not attention.fused and (suspects := _twice(attention) or _log(attention) or _unnormalised(run, attention)):
            return suspects
    return []


def other_normalisation(attention: AttentionOps, reached: set[int]) -> Suspect | None:
    """That weights are normalised by what makes NaN, or numbers below 0, of masked scores, where a softmax would make
    0; None: they are not.

    reached: the numbers of the tensors that the mask led to.
    """
    if attention.softmax is not None or attention.fused:
        return None
    masked = max((entry.at for entry in attention.path if uses(entry, reached)), default=attention.context.at)
    later = [entry for entry in attention.path if entry.at > masked and entry.last in OTHERS | DIVISIONS]
    maker = next((entry for entry in attention.path if _makes_nan(entry)), None) or next(reversed(later), None)
    if maker is None or uses(maker, reached) or maker.last not in OTHERS | DIVISIONS:
        return None
    axis = attention.key_axis(maker)
    if axis is None:
        return None
    place = axis - len(maker.outputs[0].shape)

    def right(*args: Any, **options: Any) -> Any:
        return torch.softmax(args[0] if args else options["input"], dim=place)

    values = {"axis": place, "name": maker.last.rstrip("_")}
    return Suspect("softmax-replaced", maker.span, Repair({maker.site: right}), values=values)


def _makes_nan(entry: MarkedOp) -> bool:
    """Whether an operation is the first that leaves NaN."""
    before, after = ([each.value for each in some if each.value is not None]
                     for some in (entry.inputs, entry.outputs))  # fmt: skip
    return any(bool(tensor.isnan().any()) for tensor in after) and not any(
        bool(tensor.isnan().any()) for tensor in before
    )


def _twice(attention: AttentionOps) -> list[Suspect]:
    """A softmax of what already sums to 1 over the keys, and nothing of which is hidden."""
    softmaxes = [op for op in attention.path if op.last in SOFTMAXES]
    last = softmaxes[-1] if softmaxes else None
    before = [entry for entry in attention.path if last is not None and entry.at < last.at
              and entry.last in SOFTMAXES | EXPONENTIALS]  # fmt: skip
    axis = None if last is None else attention.key_axis(last)
    inputs = None if last is None else last.inputs[0].value
    if last is None or not before or axis is None or inputs is None or not are_shares(inputs, axis):
        return []
    # a mask between the two must still hide: so it is the first that is left out, where it is a softmax
    entry = softmaxes[0] if len(softmaxes) > 1 else last
    stand_in: Callable[..., Any] = _first
    return [Suspect("softmax-twice", last.span, Repair({entry.site: stand_in}))]


def _log(attention: AttentionOps) -> list[Suspect]:
    weights, softmax = attention.weights, attention.softmax
    if weights is None or softmax is None or softmax.last != "log_softmax":
        return []
    axis = attention.key_axis(softmax)
    if axis is None or bool((weights > TOLERANCE).any()) or not are_shares(weights.exp(), -1):
        return []

    def right(*args: Any, **options: Any) -> Any:
        kept = {name: each for name, each in options.items() if name == "dtype"}
        return torch.softmax(args[0] if args else options["input"], dim=axis, **kept)

    return [Suspect("softmax-log", softmax.span, Repair({softmax.site: right}))]


def _unnormalised(run: Run, attention: AttentionOps) -> list[Suspect]:
    """Exponentials of scores that are divided by no sum of theirs, neither before nor after they meet the values."""
    weights, scores = attention.weights, attention.scores
    names = [entry.last for entry in attention.path]
    if weights is None or scores is None or not EXPONENTIALS & set(names) or attention.softmax is not None:
        return []
    if bool((weights < 0).any()) or not bool(weights.isfinite().all()) or _is_divided_later(run, attention):
        return []
    # exp, and at most a number that is the same for all keys of a row, as their mean: what else is done is a design
    exponential = [entry for entry in attention.path if entry.last in EXPONENTIALS][-1]
    value = exponential.outputs[0].value
    axis = attention.key_axis(exponential)
    later = [entry for entry in attention.path if entry.at > exponential.at and not _is_kept(entry)]
    if value is None or axis is None or len(later) > 1 or (later and later[0].name not in DIVISIONS):
        return []
    last = later[0] if later else exponential
    inputs = last.outputs[0].value
    sums = None if inputs is None else inputs.sum(dim=axis)
    if sums is None or bool((sums < 1 + TOLERANCE).any()):
        # what sums to less than 1 leaves the rest to a sink
        return []
    function, place = last.function, axis - value.ndim

    def right(*args: Any, **options: Any) -> Any:
        out = function(*args, **options)
        return out / out.sum(dim=place, keepdim=True)

    return [Suspect("softmax-unnormalised", last.span, Repair({last.site: right}), values={"axis": place})]  # fmt: skip


def _is_kept(entry: MarkedOp) -> bool:
    return "dropout" in entry.last or entry.is_movement


def _is_divided_later(run: Run, attention: AttentionOps) -> bool:
    """Whether anything is divided after the weighted sum, as by the sums of the weights."""
    later = [entry for entry in run.seen if entry.at > attention.context.at]
    return any(each.name in DIVISIONS for each in later)


def _first(*args: Any, **options: Any) -> Any:
    return args[0] if args else options["input"]
