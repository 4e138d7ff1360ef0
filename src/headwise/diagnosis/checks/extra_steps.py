"""Extra steps: whether scores, weights and values are changed on their way by a step that no attention has."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from headwise.dataflow import FAILURES, AttentionOps, Einsum, MarkedOp, Run, attentions, chain_of, makers
from headwise.diagnosis.checks.head_layout import sides
from headwise.diagnosis.checks.weight_sums import TOLERANCE, are_shares
from headwise.diagnosis.repair import Repair
from headwise.diagnosis.suspects import Suspect

__all__ = ["value_suspects"]

# parts of the names of what is done on purpose, and is judged elsewhere or not at all
MEANT = ("drop", "mask", "where", "pool", "fft", "interpolate", "fold", "conv", "norm", "pad", "tril", "triu", "clamp",
         "relu", "threshold", "topk", "scatter", "gather", "shrink", "softmax", "setitem", "nan_to_num", "entmax",
         "sparsemax")  # fmt: skip
# what only rounds
CASTS = frozenset({"float", "half", "bfloat16", "double", "to", "type", "type_as"})
NEAR = 1e-9


def value_suspects(run: Run) -> list[Suspect]:
    """The first step that gives what attention does not: it sums over an axis of one side alone, takes no account of
    the sign of scores, makes weights no shares, or adds up, sorts or counts what has no order.
    """
    for attention in attentions(run):
        if attention.fused:
            suspects = _ordered(run, attention)
        elif attention.scores is None:
            continue
        else:
            suspects = _lone_axis(attention) or _signless(run, attention) or _unshared(run, attention)
            suspects = suspects or _ordered(run, attention)
        if suspects:
            return suspects
    return []


def _lone_axis(attention: AttentionOps) -> list[Suspect]:
    """A product that also sums over an axis that its other side has not."""
    for entry in (attention.scores, attention.context):
        if entry is not None and entry.joint is not None and _has_lone(entry.joint):
            return [Suspect("contraction-extra-axis", entry.span)]
    return []


def _has_lone(joint: Einsum) -> bool:
    for letters, others, operand in ((joint.left, joint.right, joint.a), (joint.right, joint.left, joint.b)):
        if any(
            letter not in others and letter not in joint.out and operand.shape[letters.index(letter)] > 1
            for letter in letters
        ):
            return True
    return False


def _signless(run: Run, attention: AttentionOps) -> list[Suspect]:
    """Scores of which only the size counts: a key that points away weighs as much as one that points along."""
    softmax, scores = attention.softmax, attention.scores
    if softmax is None or scores is None:
        return []
    for entry in attention.path:
        is_between = scores.at < entry.at < softmax.at
        if is_between and _is_alone(entry) and _is_even(entry) and _is_on_way(run, entry, softmax, scores):
            return [_changed(entry)]
    return []


def _unshared(run: Run, attention: AttentionOps) -> list[Suspect]:
    """Weights that were shares of 1, and are none after a step that takes nothing but them."""
    softmax, weights = attention.softmax, attention.weights
    if softmax is None or weights is None or weights.isnan().any() or are_shares(weights, -1):
        return []
    for entry in attention.path:
        if entry.at <= softmax.at or not _is_alone(entry) or _is_meant(entry) or _is_scaled(entry):
            continue
        before, after = entry.inputs[0].value, entry.outputs[0].value
        axis = attention.key_axis(entry)
        if before is None or after is None or axis is None or before.shape != after.shape:
            continue
        if are_shares(before, axis) and not are_shares(after, axis) and _is_on_way(run, entry, attention.context):
            return [_changed(entry)]
    return []


def _ordered(run: Run, attention: AttentionOps) -> list[Suspect]:
    """A step that takes one tensor, keeps its shape, and gives what depends on the order of its entries."""
    goals: dict[int, tuple[MarkedOp, MarkedOp]] = {}
    for side in sides(attention):
        chain = chain_of(run, side.entry, side.operand)
        start = max((place for place, each in enumerate(chain) if each.joint is not None), default=len(chain))
        goals |= {op.at: (op, side.entry) for op in chain[start + 1 :]}
    goals |= {op.at: (op, attention.context) for op in attention.path if op.joint is None}
    after = next((op.at for op in run.seen if op.at > attention.context.at and op.joint is not None), None)
    if after is not None:
        goals |= {op.at: (op, run.seen[after]) for op in run.seen[attention.context.at + 1 : after]}
    for entry, goal in (goals[at] for at in sorted(goals)):
        is_meant = _is_meant(entry) or entry.is_movement
        if not is_meant and _is_alone(entry) and _depends_on_order(entry) and _is_on_way(run, entry, goal):
            return [_changed(entry)]
    return []


def _is_alone(entry: MarkedOp) -> bool:
    """Whether an operation takes one tensor that follows from the inputs, and gives one of its shape first."""
    numbers = entry.taken
    if len(numbers) != 1 or not entry.outputs or not entry.is_marked:
        return False
    before, after = entry.inputs[0], entry.outputs[0]
    return before.value is not None and after.value is not None and tuple(before.shape) == tuple(after.shape)


def _is_meant(entry: MarkedOp) -> bool:
    return entry.last in CASTS or any(each in entry.last for each in MEANT)


def _is_scaled(entry: MarkedOp) -> bool:
    """Whether an operation multiplies all by one number."""
    before, after = entry.inputs[0].value, entry.outputs[0].value
    if before is None or after is None:
        return False
    is_known = before.abs() > NEAR
    factors = (after / before)[is_known]
    return not factors.numel() or bool(((factors - factors.flatten()[0]).abs() < TOLERANCE).all())


def _is_even(entry: MarkedOp) -> bool:
    """Whether an operation gives the same for a number and for its opposite, and not the number itself."""
    value, output = entry.inputs[0].value, entry.outputs[0].value
    if (
        value is None
        or output is None
        or not value.isfinite().all()
        or torch.equal(value, output)
        or not (value < 0).any()
    ):
        return False
    turned = _again(entry, -value)
    is_constant = output.numel() > 1 and bool((output == output.flatten()[0]).all())
    return turned is not None and turned.shape == output.shape and torch.equal(turned, output) and not is_constant


def _depends_on_order(entry: MarkedOp) -> bool:
    """Whether entries in another order along an axis give other entries, and not the same in that order."""
    value = entry.inputs[0].value
    if value is None or not value.is_floating_point() or not bool(value.isfinite().all()):
        return False
    plain = _again(entry, value)
    if plain is None or plain.dtype == torch.bool:
        # what is only asked of numbers takes no place of theirs
        return False
    for axis in range(value.ndim):
        if value.shape[axis] < 3 or plain.shape != value.shape:
            continue
        order = torch.arange(value.shape[axis]).roll(1)
        order[:2] = order[:2].flip(0)
        turned = _again(entry, value.index_select(axis, order))
        wanted = plain.index_select(axis, order)
        if turned is not None and not bool(((turned - wanted).abs() <= NEAR * (1 + wanted.abs())).all()):
            return True
    return False


def _again(entry: MarkedOp, value: Tensor) -> Tensor | None:
    """What an operation gives for another tensor; None: it does not take it."""

    def instead(argument: Any) -> Any:
        if isinstance(argument, tuple | list) and any(isinstance(part, Tensor) for part in argument):
            return [instead(part) for part in argument]
        return value.clone() if isinstance(argument, Tensor) else argument

    try:
        with torch.no_grad():
            out = entry.function(
                *map(instead, entry.args), **{name: instead(value) for name, value in entry.options.items()}
            )
    except FAILURES:
        return None
    first = next((tensor for tensor in out if isinstance(tensor, Tensor)), None) if isinstance(out, tuple) else out
    return first if isinstance(first, Tensor) else None


def _is_on_way(run: Run, entry: MarkedOp, goal: MarkedOp, start: MarkedOp | None = None) -> bool:
    """Whether all that comes to an operation from where its own chain begins comes through another. start: where; None:
    where what the other took was made.
    """
    begins = {start.at} if start is not None else {each.at for each in _first_makers(run, entry)}
    ahead, met = [(goal.at, tensor.number) for tensor in goal.marked_inputs], set[int]()
    while ahead:
        before, number = ahead.pop()
        for maker in makers(run, before, number):
            if maker.at in begins:
                return False
            if maker.at in met or maker.at == entry.at:
                continue
            met.add(maker.at)
            ahead += [(maker.at, tensor.number) for tensor in maker.marked_inputs]
    return True


def _first_makers(run: Run, entry: MarkedOp) -> Iterable[MarkedOp]:
    return makers(run, entry.at, entry.inputs[0].number)


def _changed(entry: MarkedOp) -> Suspect:
    """That a step should leave what it takes as it is."""
    function = entry.function

    def right(*args: Any, **options: Any) -> Any:
        output = function(*args, **options)
        inputs = next(tensor for tensor in (*args, *options.values()) if isinstance(tensor, Tensor))
        if isinstance(output, tuple):
            return type(output)((inputs, *output[1:])) if hasattr(output, "n_fields") else (inputs, *output[1:])
        return inputs

    stand_in: Callable[..., Any] = right
    values = {"name": entry.last.strip("_")}
    return Suspect("value-changed", entry.span, Repair({entry.site: stand_in}), values=values)
