"""Weight sums: whether the weights of each query sum to 1 over its keys."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from headwise.dataflow import (
    TRIANGLES,
    AttentionOps,
    MarkedOp,
    Run,
    attentions,
)
from headwise.diagnosis.checks.head_layout import sides
from headwise.diagnosis.checks.inputs import makings
from headwise.diagnosis.checks.projection_names import role_of
from headwise.diagnosis.checks.untaken_branches import is_shared_elsewhere
from headwise.diagnosis.repair import Repair
from headwise.diagnosis.suspects import Suspect
from headwise.source import alias_after, axis_of, made_at, written_in

__all__ = ["TOLERANCE", "are_shares", "chooses_both_ways", "is_mutual", "sharing_suspects"]

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
        weights, softmax = attention.weights, attention.softmax
        if weights is None or _shares(weights):
            continue
        if is_mutual(run, attention):
            continue
        if softmax is not None:
            out += _wrong_axis(run, attention, softmax)
        elif _shared_elsewhere(attention):
            out += _divided(attention)
        elif not any(entry.last in OTHERS for entry in attention.path) and attention.scores is not None:
            out += [] if is_shared_elsewhere(run) else _missing(attention)
        if out:
            return out
    return []


def are_shares(weights: Tensor, axis: int) -> bool:
    """Whether numbers sum to 1 along an axis, and none is below 0."""
    sums = weights.sum(dim=axis)
    return bool(((sums - 1).abs() < TOLERANCE).all()) and bool((weights >= -TOLERANCE).all())


def _shares(weights: Tensor) -> bool:
    """Whether the weights of each query sum to 1, but for queries that may attend to nothing, whose weights are NaN, or
    0 where others have some.
    """
    is_open = ~weights.isnan().any(dim=-1) & (weights != 0).any(dim=-1)
    return bool(is_open.any()) and are_shares(weights[is_open], -1)


def _wrong_axis(run: Run, attention: AttentionOps, softmax: MarkedOp) -> list[Suspect]:
    if softmax.pair is None:
        return []
    axis, value = attention.key_axis(softmax), softmax.value
    if softmax.pair.arrays[attention.keys].unique().numel() == 1:
        # along which axis the keys lie is not known
        return []
    if axis is None or value is None:
        return [Suspect("softmax-axis-merged", softmax.span)]
    made = value.exp() if softmax.last == "log_softmax" else value
    total = made.sum(dim=axis)
    shares = bool(((total - 1).abs() < TOLERANCE)[~total.isnan()].all()) and not bool(total.isnan().all())
    if shares:
        return []
    if _is_shared_again(attention, softmax):
        # keys that choose among queries, whose shares each query then weighs, as slots and groups do
        return []
    if _goes_over(softmax) == axis - value.ndim or _goes_over(softmax) == axis:
        # over the keys and more of them, as with a sink
        return []
    if _goes_over(softmax) in (-1, value.ndim - 1) and _is_turned(run, attention):
        return [_weighed_otherwise(attention)]
    place = axis - value.ndim
    if (again := _divided_again(attention, softmax)) is not None:
        return [_over(again, place, _goes_over(softmax))]

    def right(*args: Any, **options: Any) -> Any:
        kept = {name: each for name, each in options.items() if name in ("dtype",)}
        return torch.softmax(args[0] if args else options["input"], dim=place, **kept)

    return [
        Suspect(
            "softmax-axis",
            softmax.span,
            Repair({softmax.site: right}),
            values={"axis": place, "was": str(_goes_over(softmax))},
            home=written_in(run.target, softmax.span, lambda value: isinstance(value, nn.Module))
            or made_at(softmax.span, softmax.operation.chain, axis_of),
        )
    ]


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
        if entry.at <= softmax.at or entry.name not in DIVISIONS:
            continue
        axis, values = attention.key_axis(entry), [tensor.value for tensor in entry.inputs]
        if axis is None or len(values) != len(("share", "sum")) or values[0] is None or values[1] is None:
            continue
        share, total = values[0], values[1]
        if share.ndim == total.ndim and total.shape[axis] == 1 < share.shape[axis]:
            more = total - share.sum(dim=axis, keepdim=True)
            if bool(((more - more.mean()).abs() < TOLERANCE).all()):
                return True
    return False


def _divided_again(attention: AttentionOps, softmax: MarkedOp) -> MarkedOp | None:
    """What divides the shares of a softmax by their sum over the axis of that softmax once more, which changes none:
    the sum over the other axis was meant, as of slots that share inputs out (arXiv:2006.15055, section 2.1).
    """
    axis = _goes_over(softmax)
    for entry in attention.path:
        values = [tensor.value for tensor in entry.inputs]
        if entry.at <= softmax.at or entry.name not in DIVISIONS or len(values) != 2 or axis is None:
            continue
        share, total = values
        if share is None or total is None or share.ndim != total.ndim or not total.shape[axis] == 1 < share.shape[axis]:
            continue
        if torch.allclose(share.sum(dim=axis, keepdim=True), total):
            return entry
    return None


def _over(division: MarkedOp, axis: int, was: int | None) -> Suspect:
    """That a division by a sum is by that over another axis."""

    def right(*args: Any, **_: Any) -> Any:
        return args[0] / args[0].sum(dim=axis, keepdim=True)

    return Suspect(
        "softmax-axis", division.span, Repair({division.site: right}), values={"axis": axis, "was": str(was)}
    )


def _goes_over(softmax: MarkedOp) -> int | None:
    dim = softmax.options.get(
        "dim", next((argument for argument in softmax.args[1:] if isinstance(argument, int)), None)
    )
    return dim if isinstance(dim, int) else None


def _shared_elsewhere(attention: AttentionOps) -> bool:
    """Whether the path makes shares by hand: it divides by a sum."""
    return any(entry.last in ("exp", "exp_", "logsumexp") for entry in attention.path)


def _divided(attention: AttentionOps) -> list[Suspect]:
    """A softmax by hand whose sum goes over other axes."""
    for entry in reversed(attention.path):
        value, axis = entry.value, attention.key_axis(entry)
        if value is None or axis is None or entry.name not in DIVISIONS:
            continue
        elsewhere = [a for a in range(value.ndim) if a != axis and bool((value.sum(dim=a) - 1).abs().max() < TOLERANCE)]
        if elsewhere:
            return [_over(entry, axis - value.ndim, elsewhere[0])]
    return []


def _missing(attention: AttentionOps) -> list[Suspect]:
    kept = [entry for entry in attention.path if "dropout" not in entry.last and not entry.is_movement]
    last = kept[-1] if kept else attention.path[-1]
    axis = attention.key_axis(last)
    if axis is None or any(_by_hand(entry) for entry in attention.path[1:]):
        return []
    function, place = last.function, axis - len(last.outputs[0].shape)

    def right(*args: Any, **options: Any) -> Any:
        return torch.softmax(function(*args, **options), dim=place)

    return [
        Suspect(
            "softmax-missing",
            last.span,
            Repair({last.site: right}),
            values={"axis": place},
            home=alias_after(last.span),
        )
    ]


def _by_hand(entry: MarkedOp) -> bool:
    """Whether an operation multiplies scores by something that differs between keys, or cuts those of later ones off,
    as retention and linear attention do.
    """
    if entry.last in TRIANGLES:
        return True
    if entry.name not in ("*", "*=", "mul"):
        return False
    return any(tensor.value is not None and tensor.value.numel() > 1 for tensor in entry.unmarked_inputs)


def _is_turned(run: Run, attention: AttentionOps) -> bool:
    """Whether what is taken for keys is queries: by the name of its weights, or as it stands first in the product."""
    origins = makings(run, attention)
    if attention.scores is None or attention.scores.joint is None or not {"q", "k"} <= origins.keys():
        return False
    names = {} if not isinstance(run.target, nn.Module) else {id(p): n for n, p in run.target.named_parameters()}
    roles = {side: role_of(names.get(id(origins[side].value), "")) for side in "qk"}
    if any(roles.values()):
        return roles == {"q": "k", "k": "q"}
    keys = next(side for side in sides(attention) if side.name == "k")
    return keys.operand is attention.scores.joint.a


def _weighed_otherwise(attention: AttentionOps) -> Suspect:
    """That the weighted sum goes over the queries; and the same over the keys."""
    entry = attention.context
    function = entry.function
    weights = next(
        (t for t, m in zip(entry.tensors, entry.given, strict=True) if m is not None and m.kind == "pair"), None
    )
    place = next((at for at, each in enumerate(entry.args) if each is weights), None)

    def right(*args: Any, **options: Any) -> Any:
        return function(*(_turned(each) if at == place else each for at, each in enumerate(args)), **options)

    stand_ins = {} if place is None else {entry.site: right}
    return Suspect("weights-transposed", entry.span, Repair(stand_ins))


def _turned(weights: Tensor) -> Tensor:
    is_square = weights.ndim > 1 and weights.shape[-1] == weights.shape[-2]
    return weights.transpose(-1, -2) if is_square else weights
