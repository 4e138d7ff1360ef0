"""Einsum: an einsum that sums the weights by themselves, and the letter with which they meet their values."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from headwise.dataflow import AttentionOps, Einsum, MarkedOp, contraction, looking, operand_marks
from headwise.diagnosis.checks.head_layout import breaches
from headwise.diagnosis.checks.weight_sums import TOLERANCE, weights_of
from headwise.diagnosis.suspects import Suspect

__all__ = ["sums_alone", "unmet_weights"]


def sums_alone(entry: MarkedOp) -> bool:
    """Whether a product sums over an axis that one side has alone."""
    joint = entry.joint
    return joint is not None and not (set(joint.left) ^ set(joint.right)) <= set(joint.out)


def unmet_weights(attention: AttentionOps) -> Suspect | None:
    """That an einsum sums weights and values apart, so that no weight meets its value; None: it does not."""
    entry, joint = attention.context, attention.context.joint
    equation = entry.args[0] if entry.last == "einsum" and entry.args else None
    if not isinstance(equation, str) or joint is None or joint.summed or not sums_alone(entry):
        return None
    said: dict[str, object] = {"name": equation}
    is_first = (first := operand_marks(entry)[0]) is not None and first.kind == "pair"
    right = (each for each in _others(equation, 0 if is_first else 1) if _is_weighted(attention, each, left=is_first))
    if (other := next(right, None)) is not None:
        said["_equation"] = other
    return Suspect("einsum-weights-summed", entry.operation.span, said=said)


def _others(equation: str, place: int) -> Iterator[str]:
    """The equations in which the letter that the weights sum over alone stands for another one, of the values or of the
    result. place: of the weights among the operands.
    """
    terms, arrow, out = equation.partition("->")
    sides = terms.split(",")
    if not arrow or len(sides) != 2:
        return
    weights, values = sides[place], sides[1 - place]
    for alone in (each for each in weights if each.isalpha() and each not in values + out):
        shared = [each for each in weights if each.isalpha() and each in values and each in out]
        for each in reversed(shared):
            pair = [weights, values.replace(each, alone)]
            yield f"{','.join(pair if place == 0 else pair[::-1])}->{out}"
        yield from (f"{terms}->{out.replace(each, alone)}" for each in reversed(shared))


def _is_weighted(attention: AttentionOps, equation: str, *, left: bool) -> bool:
    """Whether by another equation the context is a sum of values by weights that sum to 1, in the same shape.

    left: whether the weights are the first operand.
    """
    entry = attention.context
    joint = contraction("einsum", (equation, *entry.args[1:]), {})
    if joint is None or not joint.is_possible or _shape(joint) != tuple(entry.operation.outputs[0].shape):
        return False
    marks, letters = operand_marks(entry)[0 if left else 1], joint.left if left else joint.right
    if marks is None:
        return False
    looks = looking(marks, [letters.index(each) for each in joint.summed])
    then = replace(attention, context=replace(entry, joint=joint), looks=looks)
    weights = None if breaches(then) else weights_of(then)
    if weights is None:
        return False
    known = weights[~weights.isnan().any(dim=-1)]
    return attention.softmax is None or bool(((known.sum(dim=-1) - 1).abs() < TOLERANCE).all())


def _shape(joint: Einsum) -> tuple[int, ...]:
    sizes = dict(zip(joint.left + joint.right, (*joint.a.shape, *joint.b.shape), strict=True))
    return tuple(sizes[each] for each in joint.out)
