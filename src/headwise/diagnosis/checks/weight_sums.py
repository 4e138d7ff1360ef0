"""Weight sums: whether the weights of each query share out 1 over its keys."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from headwise.dataflow import (
    TRIANGLES,
    AttentionOps,
    MarkedOp,
    Marks,
    Run,
    attentions,
    is_constant,
    is_movement,
    operand_marks,
    value_of,
)
from headwise.diagnosis.checks.untaken_branches import is_shared_elsewhere
from headwise.diagnosis.checks.value_axis import is_turned, weighed_otherwise
from headwise.diagnosis.suspects import Suspect
from headwise.recording import site_of
from headwise.source import alias_after, written_in

__all__ = ["TOLERANCE", "chooses_both_ways", "is_mutual", "key_axis", "sharing_suspects", "weights_of"]

# values are float64, but what a person turns into float32 on the way stays that exact
TOLERANCE = 2e-5
DIVISIONS = frozenset({"/", "/=", "div", "div_", "true_divide"})
# what turns scores into weights in another way than a softmax does
OTHERS = frozenset({"sigmoid", "relu", "elu", "exp", "gelu", "silu", "tanh", "square", "pow", "softplus", "entmax",
                    "sparsemax", "sigmoid_", "relu_", "relu6", "abs", "cumsum", "normalize", "topk"})  # fmt: skip


def sharing_suspects(run: Run) -> list[Suspect]:
    """A softmax that is missing or goes over other axes than the keys."""
    out = []
    for attention in attentions(run):
        weights = weights_of(attention)
        if weights is None or _shares(weights):
            continue
        softmax = attention.softmax
        if is_mutual(run, attention):
            continue
        if softmax is not None:
            out += _wrong_axis(run, attention, softmax)
        elif _shared_elsewhere(attention):
            out += _divided(attention)
        elif not any(each.last in OTHERS for each in attention.path) and attention.scores is not None:
            out += [] if is_shared_elsewhere(run) else _missing(attention)
        if out:
            return out
    return []


def weights_of(attention: AttentionOps) -> Tensor | None:
    """The weights that met the values, as (problems, queries, keys); None: torch kept them."""
    joint = attention.context.joint
    if joint is None:
        return None
    left = (first := operand_marks(attention.context)[0]) is not None and first.kind == "pair"
    return joint.flat(value_of(attention.context, joint.a if left else joint.b), left=left)


def _shares(weights: Tensor) -> bool:
    known = weights[~weights.isnan().any(dim=-1)]
    return bool(((known.sum(dim=-1) - 1).abs() < TOLERANCE).all()) and bool((known >= -TOLERANCE).all())


def key_axis(marks: Marks, attention: AttentionOps) -> int | None:
    """The axis along which keys lie; None: they lie along none alone."""
    looks, keys = marks.arrays[attention.looks], marks.arrays[attention.keys]
    found = [
        axis for axis in range(looks.ndim)
        if is_constant(looks, axis) and not is_constant(keys, axis)
    ]  # fmt: skip
    return found[0] if len(found) == 1 else None


def _wrong_axis(run: Run, attention: AttentionOps, softmax: MarkedOp) -> list[Suspect]:
    marks = softmax.made[0]
    if marks is None or marks.kind != "pair":
        return []
    axis = key_axis(marks, attention)
    value = softmax.operation.outputs[0].value
    if axis is None or value is None:
        return [Suspect("softmax-axis-merged", softmax.operation.span)]
    made = value.exp() if softmax.last == "log_softmax" else value
    total = made.sum(dim=axis)
    shares = bool(((total - 1).abs() < TOLERANCE)[~total.isnan()].all()) and not bool(total.isnan().all())
    if shares:
        return []
    if _is_shared_again(attention, softmax):
        # keys that choose among queries, whose shares each query then weighs, as slots and groups do
        return []
    if _goes_over(softmax) == axis - marks.arrays["x"].ndim or _goes_over(softmax) == axis:
        # over the keys and more of them, as with a sink
        return []
    if _goes_over(softmax) in (-1, value.ndim - 1) and is_turned(run, attention):
        return [weighed_otherwise(attention)]
    place = axis - value.ndim

    def right(*args: Any, **options: Any) -> Any:
        kept = {name: each for name, each in options.items() if name in ("dtype",)}
        return torch.softmax(args[0] if args else options["input"], dim=place, **kept)

    return [
        Suspect(
            "softmax-axis", softmax.operation.span, {site_of(softmax.operation): right},
            said={"axis": place, "was": str(_goes_over(softmax))},
            home=written_in(run.target, softmax.operation.span, lambda each: isinstance(each, nn.Module)),
        )
    ]  # fmt: skip


def is_mutual(run: Run, attention: AttentionOps) -> bool:
    """Whether the same scores are shared out along two axes, for two sums: each side chooses among the other."""
    softmax = attention.softmax
    if softmax is None or attention.scores is None:
        return False
    others = [each for each in attentions(run) if each.scores is attention.scores and each.softmax is not None]
    return any(_goes_over(each.softmax) != _goes_over(softmax) for each in others if each.softmax is not None)


def chooses_both_ways(run: Run, attention: AttentionOps) -> bool:
    """Whether the same scores make two sums: of keys for each query, and of queries for each key."""
    others = [each for each in attentions(run) if each.scores is not None and each.scores is attention.scores]
    return any(each.looks != attention.looks for each in others)


def _is_shared_again(attention: AttentionOps, softmax: MarkedOp) -> bool:
    """Whether what the softmax gives is divided by its own sum over the keys, to which a constant may be added."""
    for entry in attention.path:
        marks = entry.made[0] if entry.made else None
        if entry.at <= softmax.at or entry.operation.name not in DIVISIONS or marks is None or marks.kind != "pair":
            continue
        axis, values = key_axis(marks, attention), [each.value for each in entry.operation.inputs]
        if axis is None or len(values) != len(("share", "sum")) or values[0] is None or values[1] is None:
            continue
        share, total = values[0], values[1]
        if share.ndim == total.ndim and total.shape[axis] == 1 < share.shape[axis]:
            more = total - share.sum(dim=axis, keepdim=True)
            if bool(((more - more.mean()).abs() < TOLERANCE).all()):
                return True
    return False


def _goes_over(softmax: MarkedOp) -> int | None:
    given = softmax.options.get("dim", next((each for each in softmax.args[1:] if isinstance(each, int)), None))
    return given if isinstance(given, int) else None


def _shared_elsewhere(attention: AttentionOps) -> bool:
    """Whether the path makes shares by hand: it divides by a sum."""
    return any(each.last in ("exp", "exp_", "logsumexp") for each in attention.path)


def _divided(attention: AttentionOps) -> list[Suspect]:
    """A softmax by hand whose sum goes over other axes."""
    for entry in reversed(attention.path):
        value, marks = entry.operation.outputs[0].value, entry.made[0] if entry.made else None
        if value is None or marks is None or marks.kind != "pair" or entry.operation.name not in ("/", "/=", "div"):
            continue
        axis = key_axis(marks, attention)
        if axis is None:
            continue
        elsewhere = [a for a in range(value.ndim) if a != axis and bool((value.sum(dim=a) - 1).abs().max() < TOLERANCE)]
        if elsewhere:

            def right(*args: Any, axis: int = axis - value.ndim, **_: Any) -> Any:
                return args[0] / args[0].sum(dim=axis, keepdim=True)

            return [Suspect("softmax-axis", entry.operation.span, {site_of(entry.operation): right},
                            said={"axis": axis - value.ndim, "was": str(elsewhere[0])})]  # fmt: skip
    return []


def _missing(attention: AttentionOps) -> list[Suspect]:
    kept = [each for each in attention.path if "dropout" not in each.last and not is_movement(each.operation.function)]
    last = kept[-1] if kept else attention.path[-1]
    marks = last.made[0] if last.made else None
    if marks is None or marks.kind != "pair" or any(_by_hand(each) for each in attention.path[1:]):
        return []
    axis = key_axis(marks, attention)
    if axis is None:
        return []
    function, place = last.function, axis - len(marks.shape)

    def right(*args: Any, **options: Any) -> Any:
        return torch.softmax(function(*args, **options), dim=place)

    return [
        Suspect(
            "softmax-missing", last.operation.span, {site_of(last.operation): right}, said={"axis": place},
            home=alias_after(last.operation.span),
        )
    ]  # fmt: skip


def _by_hand(entry: MarkedOp) -> bool:
    """Whether an operation multiplies scores by something that differs between keys, or cuts those of later ones off,
    as retention and linear attention do.
    """
    if entry.last in TRIANGLES:
        return True
    if entry.operation.name not in ("*", "*=", "mul"):
        return False
    others = [
        each.value for each, marks in zip(entry.operation.inputs, entry.given, strict=True)
        if marks is None and each.value is not None and each.value.numel() > 1
    ]  # fmt: skip
    return bool(others)
